"""AlterShareGroupOffsets: move a share group, which must be empty, to other offsets.

Behaviour: what was acquired, acknowledged or counted before is forgotten for the partitions named.

Version notes:
    0  the only one, and flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, int64, served, string, uuid, wire


@wire
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = int32()
    start_offset: int = int64()


@wire
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@wire
class AlterShareGroupOffsetsRequest:
    api_key: ClassVar[int] = 91
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@wire
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@wire
class AlterShareGroupOffsetsResponse:
    api_key: ClassVar[int] = 91
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
