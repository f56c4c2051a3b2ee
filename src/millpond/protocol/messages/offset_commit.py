"""OffsetCommit: remember how far a group has read.

Behaviour: the coordinator keeps offset and `metadata` per partition. A member of a group is checked by id and
generation (a member epoch for groups of the new protocol); a consumer that assigns partitions to itself sends
generation -1 and an empty member id.

Version notes:
    2  retention_time_ms, until 4    6  committed_leader_epoch    7  group_instance_id    8  flexible
    9  the new group protocol: stale member epochs and unknown groups have errors    10  topic ids instead of names
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, int64, served, string, uuid, wire


@wire
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable_since=0)


@wire
class OffsetCommitRequestTopic:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@wire
class OffsetCommitRequest:
    api_key: ClassVar[int] = 8
    versions: ClassVar[range] = served(2, 10)
    flexible_since: ClassVar[int | None] = 8

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    retention_time_ms: int = int64(until=4, default=-1)
    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@wire
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@wire
class OffsetCommitResponseTopic:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@wire
class OffsetCommitResponse:
    api_key: ClassVar[int] = 8
    versions: ClassVar[range] = served(2, 10)
    flexible_since: ClassVar[int | None] = 8

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
