"""OffsetForLeaderEpoch: where a leader's epoch ended, so that a consumer or follower knows what to take back.

Behaviour: an epoch newer than any here is answered with -1 and -1.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.model.errors import MillpondError
from millpond.model.ids import LeaderEpoch
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def answer(node: Node, request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_partition(node, topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _partition(node: Node, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = node.find(topic, NO_ID, part.partition)
        if isinstance(partition, MillpondError):
            raise partition
        partition.check_epoch(LeaderEpoch(part.current_leader_epoch))
        partition.require_leader()
    except MillpondError as error:
        return EpochEndOffset(partition=part.partition, error_code=error.kafka_code)
    if part.leader_epoch < 0:
        return EpochEndOffset(partition=part.partition)
    epoch, end = partition.log.end_of_epoch(LeaderEpoch(part.leader_epoch))
    return EpochEndOffset(partition=part.partition, leader_epoch=epoch, end_offset=end)
