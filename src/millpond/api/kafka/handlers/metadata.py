"""Metadata: brokers, topics, partitions and who leads them.

Behaviour: names that are not there are created where the request and the broker allow it, and answered only then. While
the leader of something that is asked for is found out to be gone, the answer waits for the next, for a second at most.
A broker that has just gone is still listed. Any broker takes changes, so the one that answers names itself as the
controller (Kafka's name any that is up): clients would wait for one that has just gone, and look again after minutes.
Version notes: version 0 has no way to ask for no topics: an empty list is all of them there; from 1 null is all. From
10 topics have ids, and from 12 may be asked for by id.
"""

from collections.abc import Awaitable

from millpond.api.kafka.allowed import CLUSTER, TOPIC, if_asked
from millpond.api.kafka.context import Context
from millpond.broker.drivers.departures import Departures
from millpond.broker.node import Node
from millpond.core.metadata.controller import auto_create
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Image, Topic
from millpond.model.errors import InvalidTopicName
from millpond.model.topic_names import check_topic_name
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_UNKNOWN_TOPIC = 3
_UNKNOWN_TOPIC_ID = 100
_NAME_NULLABLE_SINCE = 12
"""In the answer; requests may leave it out two versions earlier."""


def answer(node: Node, request: MetadataRequest, context: Context) -> Awaitable[MetadataResponse] | MetadataResponse:
    image = node.image
    if request.topics is None or (context.version == 0 and not request.topics):
        return _response(node, request, image, [_topic(topic) for _, topic in sorted(image.topics.items())])
    missing = [each.name for each in request.topics if each.name is not None and each.name not in image.topics]
    if missing and request.allow_auto_topic_creation:
        return _create(node, request, missing, version=context.version)
    if node.departures is not None and _leaders(image, request) - {node.node_id}:
        return _settled(node, node.departures, request, version=context.version)
    return _response(node, request, image, _wanted(image, request, {}, version=context.version))


def _leaders(image: Image, request: MetadataRequest) -> set[int]:
    found: set[int] = set()
    for each in request.topics or []:
        topic = image.topics_by_id.get(each.topic_id) if each.name is None else image.topics.get(each.name)
        found.update(partition.leader for partition in (topic.partitions if topic is not None else ()))
    return found


async def _settled(node: Node, departures: Departures, request: MetadataRequest, *, version: int) -> MetadataResponse:
    await departures.wait_settled(lambda image: _leaders(image, request))
    return _response(node, request, node.image, _wanted(node.image, request, {}, version=version))


async def _create(node: Node, request: MetadataRequest, missing: list[str], *, version: int) -> MetadataResponse:
    decision = await node.metadata.decide(lambda image: auto_create(image, missing, static=node.static, rng=node.rng))
    refused = {each.subject: each.error.kafka_code for each in decision.answers if isinstance(each, Refused)}
    image = node.image
    return _response(node, request, image, _wanted(image, request, refused, version=version))


def _wanted(
    image: Image, request: MetadataRequest, refused: dict[str, int], *, version: int
) -> list[MetadataResponseTopic]:
    no_name = None if version >= _NAME_NULLABLE_SINCE else ""
    topics = []
    for each in {(each.topic_id, each.name): each for each in request.topics or []}.values():
        by_id = each.topic_id != NO_ID
        topic = image.topics_by_id.get(each.topic_id) if by_id else image.topics.get(each.name or "")
        if topic is not None:
            topics.append(_topic(topic))
        elif by_id:
            topics.append(MetadataResponseTopic(error_code=_UNKNOWN_TOPIC_ID, name=no_name, topic_id=each.topic_id))
        else:
            code = refused.get(each.name or "") or _why_unknown(each.name or "")
            topics.append(MetadataResponseTopic(error_code=code, name=no_name if each.name is None else each.name))
    return topics


def _why_unknown(name: str) -> int:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        return error.kafka_code
    return _UNKNOWN_TOPIC


def _topic(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
            for number, partition in enumerate(topic.partitions)
        ],
    )


def _response(
    node: Node, request: MetadataRequest, image: Image, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker,
                host=broker.endpoints[0].host,
                port=broker.endpoints[0].port,
                rack=broker.rack,
            )
            for broker in node.listed.of(image)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=if_asked(request.include_cluster_authorized_operations, CLUSTER),
    )
