"""DeleteShareGroupOffsets: an empty share group forgets topics."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import share_offsets
from millpond.model.errors import MillpondError
from millpond.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


def answer(
    node: Node, request: DeleteShareGroupOffsetsRequest, context: Context
) -> Awaitable[DeleteShareGroupOffsetsResponse]:
    return _answer(node, request)


async def _answer(node: Node, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    try:
        share_offsets.require_empty(node, request.group_id)
        forgotten = await share_offsets.forget(node, request.group_id, [each.topic_name for each in request.topics])
    except MillpondError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.kafka_code, error_message=str(error))
    return DeleteShareGroupOffsetsResponse(responses=[_topic(node, name, error) for name, error in forgotten.items()])


def _topic(node: Node, name: str, error: MillpondError | None) -> DeleteShareGroupOffsetsResponseTopic:
    known = node.image.topics.get(name)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=bytes(16) if known is None else known.topic_id,
        error_code=0 if error is None else error.kafka_code,
        error_message=None if error is None else str(error),
    )
