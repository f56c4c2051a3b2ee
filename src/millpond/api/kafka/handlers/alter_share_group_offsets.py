"""AlterShareGroupOffsets: an empty share group begins elsewhere."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import share_offsets
from millpond.model.errors import MillpondError
from millpond.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


def answer(
    node: Node, request: AlterShareGroupOffsetsRequest, context: Context
) -> Awaitable[AlterShareGroupOffsetsResponse]:
    return _answer(node, request)


async def _answer(node: Node, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    try:
        share_offsets.require_empty(node, request.group_id)
    except MillpondError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.kafka_code, error_message=str(error))
    return AlterShareGroupOffsetsResponse(
        responses=[await _topic(node, request.group_id, topic) for topic in request.topics]
    )


async def _topic(
    node: Node, group: str, topic: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    known = node.image.topics.get(topic.topic_name)
    parts = []
    for each in topic.partitions:
        part = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
        try:
            await share_offsets.move(node, group, topic.topic_name, each.partition_index, each.start_offset)
        except MillpondError as error:
            part.error_code, part.error_message = error.kafka_code, str(error)
        parts.append(part)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=bytes(16) if known is None else known.topic_id, partitions=parts
    )
