"""Heartbeat: a member of a group is alive.

Behaviour: answered at once; REBALANCE_IN_PROGRESS tells the member to join again.

Version notes:
    1  throttling    3  static members: group_instance_id    4  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import int16, int32, served, string, wire


@wire
class HeartbeatRequest:
    api_key: ClassVar[int] = 12
    versions: ClassVar[range] = served(0, 4)
    flexible_since: ClassVar[int | None] = 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)


@wire
class HeartbeatResponse:
    api_key: ClassVar[int] = 12
    versions: ClassVar[range] = served(0, 4)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
