"""DescribeLogDirs: how much of each partition lies in which directory.

Behaviour: null `topics` asks for everything. `is_future_key` marks a copy on its way to another directory.

Version notes:
    1  first served    2  flexible    3  an error for the whole    4  total and usable bytes of the volume
    5  whether the directory takes no new partitions
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, int64, served, string, wire


@wire
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@wire
class DescribeLogDirsRequest:
    api_key: ClassVar[int] = 35
    versions: ClassVar[range] = served(1, 5)
    flexible_since: ClassVar[int | None] = 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)


@wire
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@wire
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@wire
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5)


@wire
class DescribeLogDirsResponse:
    api_key: ClassVar[int] = 35
    versions: ClassVar[range] = served(1, 5)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
