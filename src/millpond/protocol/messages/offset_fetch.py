"""OffsetFetch: how far groups have read.

Behaviour: the committed offset, or -1, for each partition asked for; null `topics` asks for all the group has.
`require_stable` holds back partitions with transactional offsets that are still pending.

Version notes:
    2  null topics; an error for the whole    5  committed_leader_epoch    6  flexible    7  require_stable
    8  several groups at once: `groups` replaces the fields at the top    9  member id and epoch, for the new protocol
   10  topic ids instead of names
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, int64, served, string, uuid, wire


@wire
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@wire
class OffsetFetchRequestTopics:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partition_indexes: list[int] = array(Kind.INT32)


@wire
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string(since=9, nullable_since=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable_since=0)


@wire
class OffsetFetchRequest:
    api_key: ClassVar[int] = 9
    versions: ClassVar[range] = served(1, 10)
    flexible_since: ClassVar[int | None] = 6

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@wire
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable_since=0)
    error_code: int = int16()


@wire
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@wire
class OffsetFetchResponsePartitions:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable_since=0)
    error_code: int = int16()


@wire
class OffsetFetchResponseTopics:
    name: str = string(until=9)
    topic_id: bytes = uuid(since=10)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@wire
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


@wire
class OffsetFetchResponse:
    api_key: ClassVar[int] = 9
    versions: ClassVar[range] = served(1, 10)
    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
