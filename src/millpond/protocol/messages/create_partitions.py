"""CreatePartitions: more partitions for topics.

Behaviour: `count` is how many there shall be afterwards; it can only grow. Null `assignments` leaves the placing to
the broker.

Version notes:
    1  as 0    2  flexible    3  an error for a throttled change
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, served, string, wire


@wire
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(Kind.INT32)


@wire
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable_since=0)


@wire
class CreatePartitionsRequest:
    api_key: ClassVar[int] = 37
    versions: ClassVar[range] = served(0, 3)
    flexible_since: ClassVar[int | None] = 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@wire
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class CreatePartitionsResponse:
    api_key: ClassVar[int] = 37
    versions: ClassVar[range] = served(0, 3)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
