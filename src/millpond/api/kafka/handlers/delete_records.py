"""DeleteRecords: partitions forget what lies before an offset.

Behaviour: each partition for itself; answered with its new start once that is durable. -1 is the high watermark, and
nothing beyond it can go. Version notes: 2 is flexible, and otherwise all are the same.
"""

import asyncio
from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations.delete_records import delete_records
from millpond.model.errors import MillpondError
from millpond.model.ids import Offset
from millpond.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_START = -1


def answer(node: Node, request: DeleteRecordsRequest, context: Context) -> Awaitable[DeleteRecordsResponse]:
    return _delete(node, request)


async def _delete(node: Node, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    parts = [_partition(node, topic.name, part) for topic in request.topics for part in topic.partitions]
    results = iter(await asyncio.gather(*parts))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=[next(results) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


async def _partition(node: Node, topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        start = await delete_records(node.partitions.named(topic, part.partition_index), Offset(part.offset))
    except MillpondError as error:
        return DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=_NO_START, error_code=error.kafka_code
        )
    return DeleteRecordsPartitionResult(partition_index=part.partition_index, low_watermark=start)
