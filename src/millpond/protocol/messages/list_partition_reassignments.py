"""ListPartitionReassignments: which partitions are moving.

Behaviour: null `topics` asks for all; partitions that are not moving go unmentioned.

Version notes:
    0  flexible from the start
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, wire


@wire
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@wire
class ListPartitionReassignmentsRequest:
    api_key: ClassVar[int] = 46
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, nullable_since=0)


@wire
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(Kind.INT32)
    adding_replicas: list[int] = array(Kind.INT32)
    removing_replicas: list[int] = array(Kind.INT32)


@wire
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@wire
class ListPartitionReassignmentsResponse:
    api_key: ClassVar[int] = 46
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
