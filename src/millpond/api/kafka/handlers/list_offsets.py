"""ListOffsets: where partitions start and end, and what was there at a time.

Behaviour: -1 is the end that consumers see, -2 the start, -3 the newest time, any other the first record since then.
Version notes: 7 knows -3, 8 knows -4 (the start of what is on this disk), 9 knows -5 (the end of what is elsewhere).
"""

from collections import Counter

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    list_offset,
)
from millpond.model.errors import MillpondError
from millpond.model.ids import LeaderEpoch
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version that knows each place."""
_INVALID_REQUEST, _UNSUPPORTED_VERSION, _NEVER = 42, 35, 2**15


def answer(node: Node, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=_partitions(node, topic, context.version))
            for topic in request.topics
        ]
    )


def _partitions(node: Node, topic: ListOffsetsTopic, version: int) -> list[ListOffsetsPartitionResponse]:
    """One answer for each, also where the request names one twice: that is refused."""
    parts = {part.partition_index: part for part in topic.partitions}
    if len(parts) == len(topic.partitions):
        return [_partition(node, topic.name, part, version) for part in topic.partitions]
    times = Counter(part.partition_index for part in topic.partitions)
    return [
        ListOffsetsPartitionResponse(partition_index=index, error_code=_INVALID_REQUEST)
        if times[index] > 1
        else _partition(node, topic.name, part, version)
        for index, part in parts.items()
    ]


def _partition(node: Node, topic: str, part: ListOffsetsPartition, version: int) -> ListOffsetsPartitionResponse:
    if part.timestamp < 0 and version < _SINCE.get(part.timestamp, _NEVER):
        return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=_UNSUPPORTED_VERSION)
    try:
        partition = node.find(topic, NO_ID, part.partition_index)
        if isinstance(partition, MillpondError):
            raise partition
        partition.check_epoch(LeaderEpoch(part.current_leader_epoch))
        found = list_offset(partition, part.timestamp)
    except MillpondError as error:
        return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error.kafka_code)
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
