"""AlterPartitionReassignments: move partitions to other brokers.

Behaviour: `replicas` is where a partition shall be, the preferred leader first; null cancels what is under way. The
answer comes when the movement has begun, not when it is done.

Version notes:
    0  flexible from the start    1  a change of the number of replicas can be forbidden
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, served, string, wire


@wire
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(Kind.INT32, nullable_since=0)


@wire
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@wire
class AlterPartitionReassignmentsRequest:
    api_key: ClassVar[int] = 45
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@wire
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@wire
class AlterPartitionReassignmentsResponse:
    api_key: ClassVar[int] = 45
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
