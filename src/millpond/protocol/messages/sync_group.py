"""SyncGroup: the leader hands out the assignments, the others collect theirs.

Behaviour: answers wait until the leader's request has come. The assignment is opaque to the coordinator; see
consumer_protocol.py for what consumers put there.

Version notes:
    1  throttling    3  static members: group_instance_id    4  flexible
    5  protocol type and name, checked against the group's
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, data, int16, int32, served, string, wire


@wire
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = data()


@wire
class SyncGroupRequest:
    api_key: ClassVar[int] = 14
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    protocol_type: str | None = string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@wire
class SyncGroupResponse:
    api_key: ClassVar[int] = 14
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None)
    assignment: bytes = data()
