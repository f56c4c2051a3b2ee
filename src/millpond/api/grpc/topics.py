"""The Topics service: create, list, describe, delete. Any broker answers; changes go to the controller."""

from collections.abc import Sequence

from millpond.api.anywhere.refusals import no_such_topic, wrong
from millpond.api.grpc.calls import Calls
from millpond.api.grpc.failures import Context
from millpond.api.grpc.proto.millpond.v1 import topics_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.topics_pb2_grpc import TopicsServicer
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.configs import describe_topic
from millpond.core.metadata.controller import UNSPECIFIED, NewTopic, TopicToDelete, create_topics, delete_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.model.ids import topic_id_text


class Topics(TopicsServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._node = calls.node

    async def CreateTopic(self, request: wire.CreateTopicRequest, context: Context) -> wire.Topic:  # noqa: N802
        node = self._node
        async with self._calls.answering(context):
            wanted = NewTopic(
                name=request.name,
                partitions=_given("partitions", request),
                replication_factor=_given("replication_factor", request),
                configs=tuple(request.configs.items()),
            )
            decision = await node.metadata.decide(
                lambda image: create_topics(image, [wanted], static=node.static, rng=node.rng)
            )
            _check(decision.answers)
            return self._told(self._find(request.name))

    async def ListTopics(  # noqa: N802
        self, request: wire.ListTopicsRequest, context: Context
    ) -> wire.ListTopicsResponse:
        topics = [topic for _, topic in sorted(self._node.image.topics.items())]
        return wire.ListTopicsResponse(
            topics=[_summary(topic) for topic in topics if request.internal or not topic.internal]
        )

    async def DescribeTopic(self, request: wire.DescribeTopicRequest, context: Context) -> wire.Topic:  # noqa: N802
        async with self._calls.answering(context):
            return self._told(self._find(request.name))

    async def DeleteTopic(  # noqa: N802
        self, request: wire.DeleteTopicRequest, context: Context
    ) -> wire.DeleteTopicResponse:
        node = self._node
        async with self._calls.answering(context):
            wanted = TopicToDelete(name=request.name)
            decision = await node.metadata.decide(lambda image: delete_topics(image, [wanted], static=node.static))
            _check(decision.answers)
            return wire.DeleteTopicResponse()

    def _find(self, name: str) -> Topic:
        topic = self._node.image.topics.get(name)
        if topic is None:
            raise no_such_topic(name)
        return topic

    def _told(self, topic: Topic) -> wire.Topic:
        node = self._node
        found = describe_topic(topic.configs, layers(node.image, node.static, broker=node.node_id))
        return wire.Topic(
            name=topic.name,
            topic_id=topic_id_text(topic.topic_id),
            is_internal=topic.internal,
            partitions=[
                wire.TopicPartition(
                    partition=number,
                    leader=each.leader if each.leader >= 0 else None,
                    replicas=each.replicas,
                    in_sync=each.isr,
                )
                for number, each in enumerate(topic.partitions)
            ],
            configs={each.name: wire.TopicConfig(value=each.value, is_default=each.is_default) for each in found},
        )


def _given(field: str, request: wire.CreateTopicRequest) -> int:
    if not request.HasField(field):
        return UNSPECIFIED
    number: int = getattr(request, field)
    if number < 1:
        raise wrong(field, f"{field} is {number}; it is at least 1, or left out")
    return number


def _check(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer.error


def _summary(topic: Topic) -> wire.TopicSummary:
    return wire.TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=max((len(each.replicas) for each in topic.partitions), default=0),
        is_internal=topic.internal,
    )
