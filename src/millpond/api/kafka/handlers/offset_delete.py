"""OffsetDelete: a group forgets how far it had come, where no member is subscribed."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import DeleteOffsets, PartitionErrors
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def answer(node: Node, request: OffsetDeleteRequest, context: Context) -> Awaitable[OffsetDeleteResponse]:
    named = [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    wanted = tuple(at for at in named if node.image.partition(at) is not None)
    asked = node.groups.ask(request.group_id, lambda token: DeleteOffsets(token=token, partitions=wanted))
    return _response(named, asked)


async def _response(named: list[TopicPartition], asked: Awaitable[PartitionErrors]) -> OffsetDeleteResponse:
    result = await asked
    if result.error is not GroupError.NONE:
        return OffsetDeleteResponse(error_code=result.error, topics=[])
    codes = dict(result.partitions)
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    for at in named:
        code = codes.get(at, GroupError.UNKNOWN_TOPIC_OR_PARTITION)
        topic = topics.setdefault(at.topic, OffsetDeleteResponseTopic(name=at.topic, partitions=[]))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=at.partition, error_code=code))
    return OffsetDeleteResponse(error_code=result.error, topics=list(topics.values()))
