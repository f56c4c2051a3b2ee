"""JoinGroup: become, or stay, a member of a group whose members assign partitions among themselves.

Behaviour: the coordinator holds all joins back until the members it knows have joined or run out of time, then
answers everybody with the new generation and picks the leader, who alone gets the list of members and their
metadata. A newcomer without a member id is given one, and from version 4 has to come back with it.

Version notes:
    1  rebalance_timeout_ms    2  throttling    4  MEMBER_ID_REQUIRED for newcomers
    5  static members: group_instance_id    6  flexible
    7  protocol_type in the response, protocol_name may be null    8  reason    9  skip_assignment
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, data, int16, int32, served, string, wire


@wire
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = data()


@wire
class JoinGroupRequest:
    api_key: ClassVar[int] = 11
    versions: ClassVar[range] = served(0, 9)
    flexible_since: ClassVar[int | None] = 6

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable_since=8, default=None)


@wire
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    metadata: bytes = data()


@wire
class JoinGroupResponse:
    api_key: ClassVar[int] = 11
    versions: ClassVar[range] = served(0, 9)
    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable_since=7, default=None)
    protocol_name: str | None = string(nullable_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
