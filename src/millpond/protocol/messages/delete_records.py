"""DeleteRecords: move the start of partitions forward.

Behaviour: records below `offset` are gone for readers at once, and from disk in time; -1 stands for the high
watermark. The response has the new start.

Version notes:
    1  as 0    2  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, int64, served, string, wire


@wire
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@wire
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@wire
class DeleteRecordsRequest:
    api_key: ClassVar[int] = 21
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@wire
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@wire
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@wire
class DeleteRecordsResponse:
    api_key: ClassVar[int] = 21
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
