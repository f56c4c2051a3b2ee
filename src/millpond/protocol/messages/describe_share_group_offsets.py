"""DescribeShareGroupOffsets: where share groups are: the first offset that is not done with, of each partition.

Behaviour: null topics ask for all that the group knows. A start_offset of -1 is one that is not known.

Version notes:
    0  flexible from the start    1  lag: how many records are left to deliver; -1 where that is not known
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, int64, served, string, uuid, wire


@wire
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[int] = array(Kind.INT32)


@wire
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable_since=0
    )


@wire
class DescribeShareGroupOffsetsRequest:
    api_key: ClassVar[int] = 90
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@wire
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@wire
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class DescribeShareGroupOffsetsResponse:
    api_key: ClassVar[int] = 90
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
