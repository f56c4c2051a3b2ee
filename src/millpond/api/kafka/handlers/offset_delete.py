"""OffsetDelete: a group forgets how far it had come, where no member is subscribed."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.offsets import DeleteOffsets, PartitionErrors
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def answer(node: Node, request: OffsetDeleteRequest, context: Context) -> Awaitable[OffsetDeleteResponse]:
    wanted = tuple(
        TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    return _response(node.groups.ask(request.group_id, lambda token: DeleteOffsets(token=token, partitions=wanted)))


async def _response(asked: Awaitable[PartitionErrors]) -> OffsetDeleteResponse:
    result = await asked
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    for at, code in result.partitions:
        topic = topics.setdefault(at.topic, OffsetDeleteResponseTopic(name=at.topic, partitions=[]))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=at.partition, error_code=code))
    return OffsetDeleteResponse(error_code=result.error, topics=list(topics.values()))
