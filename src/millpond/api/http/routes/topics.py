"""/api/v1/topics: create, list, describe, alter, add partitions, delete."""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from millpond.api.anywhere.refusals import no_such_topic
from millpond.api.http.forms import INT32_MAX, TopicName
from millpond.api.http.problems import Blames
from millpond.api.http.routing import Call, Route
from millpond.broker.node import Node
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, ConfigOperation, OfGroup, alter_configs
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.configs import describe_topic
from millpond.core.metadata.controller import (
    UNSPECIFIED,
    MorePartitions,
    NewTopic,
    TopicToDelete,
    create_partitions,
    create_topics,
    delete_topics,
)
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.model.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidSetting,
    InvalidTopicName,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from millpond.model.ids import topic_id_text

PositiveInt = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Replicas = Annotated[int, Meta(ge=1, le=32_767)]
Setting = str | bool | int | float
"""A number, or true, means its text."""


class TopicWish(Struct, forbid_unknown_fields=True):
    name: TopicName
    partitions: PositiveInt | None = None
    """As the cluster's settings say, where it is left out."""
    replication_factor: Replicas | None = None
    configs: dict[str, Setting | None] = {}
    """Settings by Kafka's names."""


class TopicSummary(Struct):
    name: str
    partitions: int
    replication_factor: int
    is_internal: bool


class Topics(Struct):
    topics: list[TopicSummary]


class PartitionInfo(Struct):
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


class ConfigInfo(Struct):
    value: str
    is_default: bool


class TopicInfo(Struct):
    name: str
    topic_id: str
    """As Kafka's tools write it: 22 characters, base64 of the kind that fits into addresses."""
    is_internal: bool
    partitions: list[PartitionInfo]
    configs: dict[str, ConfigInfo]


class ListQuery(Struct, forbid_unknown_fields=True):
    internal: bool = False
    """Millpond's own topics as well."""


class Alteration(Struct, forbid_unknown_fields=True):
    configs: dict[str, Setting | None]
    """Those that shall change; null puts one back to its default."""


class Growth(Struct, forbid_unknown_fields=True):
    total: PositiveInt
    """How many the topic shall have."""


class DeletedTopic(Struct):
    deleted: str


async def list_topics(call: Call) -> Topics:
    found = sorted(call.services.node.image.topics.items())
    return Topics([_summary(topic) for _, topic in found if call.query.internal or not topic.internal])


async def create(call: Call) -> TopicInfo:
    node, wish = call.services.node, call.body
    wanted = NewTopic(
        name=wish.name,
        partitions=UNSPECIFIED if wish.partitions is None else wish.partitions,
        replication_factor=UNSPECIFIED if wish.replication_factor is None else wish.replication_factor,
        configs=tuple([(key, _text(value)) for key, value in wish.configs.items()]),
    )
    decision = await node.metadata.decide(
        lambda image: create_topics(image, [wanted], static=node.static, rng=node.rng)
    )
    _check(decision.answers)
    return _info(node, _find(node, wish.name))


def _text(value: Setting | None) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else str(value)


async def describe(call: Call) -> TopicInfo:
    node = call.services.node
    return _info(node, _find(node, call.names["topic"]))


async def alter(call: Call) -> TopicInfo:
    node, name = call.services.node, call.names["topic"]
    await alter_settings(node, name, call.body)
    return _info(node, _find(node, name))


async def alter_settings(node: Node, of: str | OfGroup, wish: Alteration) -> None:
    items = tuple(
        ConfigItem(key, _text(value), ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for key, value in wish.configs.items()
    )
    wanted = AlterConfigs(target=of, items=items)
    decision = await node.metadata.decide(lambda image: alter_configs(image, [wanted], static=node.static))
    _check(decision.answers)


async def grow(call: Call) -> TopicInfo:
    node, name = call.services.node, call.names["topic"]
    wanted = MorePartitions(name=name, count=call.body.total)
    decision = await node.metadata.decide(lambda image: create_partitions(image, [wanted], rng=node.rng))
    _check(decision.answers)
    return _info(node, _find(node, name))


async def delete(call: Call) -> DeletedTopic:
    node, name = call.services.node, call.names["topic"]
    wanted = TopicToDelete(name=name)
    decision = await node.metadata.decide(lambda image: delete_topics(image, [wanted], static=node.static))
    _check(decision.answers)
    return DeletedTopic(name)


def _check(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer.error


def _find(node: Node, name: str) -> Topic:
    topic = node.image.topics.get(name)
    if topic is None:
        raise no_such_topic(name)
    return topic


def _summary(topic: Topic) -> TopicSummary:
    replicas = max((len(each.replicas) for each in topic.partitions), default=0)
    return TopicSummary(topic.name, len(topic.partitions), replicas, topic.internal)


def _info(node: Node, topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        topic_id=topic_id_text(topic.topic_id),
        is_internal=topic.internal,
        partitions=[
            PartitionInfo(number, each.leader if each.leader >= 0 else None, list(each.replicas), list(each.isr))
            for number, each in enumerate(topic.partitions)
        ],
        configs={
            each.name: ConfigInfo(each.value, each.is_default)
            for each in describe_topic(topic.configs, layers(node.image, node.static, broker=node.node_id))
        },
    )


_ALL, _ONE = "/api/v1/topics", "/api/v1/topics/{topic}"
_BLAMES_OF_NEW: Final[Blames] = {
    InvalidTopicName: "name",
    TopicAlreadyExists: "name",
    InvalidPartitions: "partitions",
    InvalidReplicationFactor: "replication_factor",
    InvalidSetting: "configs",
}
_BLAMES: Final[Blames] = {
    UnknownTopicOrPartition: "topic",
    PolicyViolation: "topic",
    InvalidPartitions: "total",
    InvalidSetting: "configs",
}

ROUTES = (
    Route(method="GET", path=_ALL, summary="List topics", handler=list_topics, query=ListQuery, answer=Topics),
    Route(
        method="POST",
        path=_ALL,
        summary="Create a topic",
        handler=create,
        body=TopicWish,
        answer=TopicInfo,
        status=201,
        blames=_BLAMES_OF_NEW,
    ),
    Route(method="GET", path=_ONE, summary="Describe a topic", handler=describe, answer=TopicInfo),
    Route(
        method="PATCH",
        path=_ONE,
        summary="Change settings of a topic",
        handler=alter,
        body=Alteration,
        answer=TopicInfo,
        blames=_BLAMES,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/partitions",
        summary="Add partitions to a topic",
        handler=grow,
        body=Growth,
        answer=TopicInfo,
        blames=_BLAMES,
    ),
    Route(method="DELETE", path=_ONE, summary="Delete a topic", handler=delete, answer=DeletedTopic, blames=_BLAMES),
)
