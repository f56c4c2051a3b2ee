"""OffsetDelete: forget offsets a group has committed.

Behaviour: partitions of topics that members of the group are subscribed to are refused.

Version notes:
    0  the only one, and not flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, served, string, wire


@wire
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@wire
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@wire
class OffsetDeleteRequest:
    api_key: ClassVar[int] = 47
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@wire
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@wire
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@wire
class OffsetDeleteResponse:
    api_key: ClassVar[int] = 47
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
