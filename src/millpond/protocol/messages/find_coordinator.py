"""FindCoordinator: which broker looks after a group or a transaction.

Behaviour: key_type 0 is a group, 1 a transactional id, 2 a share-group partition. While the coordinator is not known
the answer is a retriable error with node -1.

Version notes:
    0  groups only    1  key_type, error_message    3  flexible    4  several keys at once, in `coordinators`
    5  TRANSACTION_ABORTABLE among the errors    6  share groups
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int8, int16, int32, served, string, wire


@wire
class FindCoordinatorRequest:
    api_key: ClassVar[int] = 10
    versions: ClassVar[range] = served(0, 6)
    flexible_since: ClassVar[int | None] = 3

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(Kind.STRING, since=4)


@wire
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class FindCoordinatorResponse:
    api_key: ClassVar[int] = 10
    versions: ClassVar[range] = served(0, 6)
    flexible_since: ClassVar[int | None] = 3

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1, default=None)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
