"""ListOffsets: the offset that belongs to a moment.

Behaviour: for each partition the first offset whose record is not older than `timestamp`, with that record's own
timestamp; -1 for both where there is none. Timestamps below zero ask for places: -1 the end as the isolation level
sees it, -2 the start, -3 the record with the largest timestamp, -4 the start of what is kept locally, -5 the last
offset tiered away.

Version notes:
    1  one offset instead of a list    2  isolation_level, throttling    4  leader epochs    6  flexible
    7  timestamp -3    8  timestamp -4    9  timestamp -5    10  timeout_ms, for brokers that look into remote storage
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int8, int16, int32, int64, served, string, wire


@wire
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


@wire
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@wire
class ListOffsetsRequest:
    api_key: ClassVar[int] = 2
    versions: ClassVar[range] = served(1, 10)
    flexible_since: ClassVar[int | None] = 6

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


@wire
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@wire
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@wire
class ListOffsetsResponse:
    api_key: ClassVar[int] = 2
    versions: ClassVar[range] = served(1, 10)
    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
