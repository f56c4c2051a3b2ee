"""LeaveGroup: members go, without waiting for their sessions to end.

Behaviour: static members stay through restarts and leave only when an administrator removes them by instance id.

Version notes:
    1  throttling    3  several members at once, each with its own error; one member_id before
    4  flexible    5  reason
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, served, string, wire


@wire
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=0, default=None)
    reason: str | None = string(since=5, nullable_since=5, default=None)


@wire
class LeaveGroupRequest:
    api_key: ClassVar[int] = 13
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 4

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@wire
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=0)
    error_code: int = int16()


@wire
class LeaveGroupResponse:
    api_key: ClassVar[int] = 13
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
