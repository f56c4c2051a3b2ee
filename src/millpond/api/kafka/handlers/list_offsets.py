"""ListOffsets: where partitions start and end, and what was there at a time.

Behaviour: -1 is the end that consumers see, -2 the start, -3 the newest time, any other the first record since then.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations.list_offsets import list_offset
from millpond.model.errors import MillpondError
from millpond.model.ids import LeaderEpoch
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def answer(node: Node, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_partition(node, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _partition(node: Node, topic: str, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
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
