"""OffsetForLeaderEpoch: where a leader epoch ended, to find out whether a log was cut.

Behaviour: the largest epoch not above the one asked for that the leader has, and its end offset; -1 and -1 for an
epoch that is still to come.

Version notes:
    2  the leader epoch the client knows is checked    3  replica_id    4  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, int64, served, string, wire


@wire
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@wire
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@wire
class OffsetForLeaderEpochRequest:
    api_key: ClassVar[int] = 23
    versions: ClassVar[range] = served(2, 4)
    flexible_since: ClassVar[int | None] = 4

    replica_id: int = int32(since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@wire
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@wire
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@wire
class OffsetForLeaderEpochResponse:
    api_key: ClassVar[int] = 23
    versions: ClassVar[range] = served(2, 4)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
