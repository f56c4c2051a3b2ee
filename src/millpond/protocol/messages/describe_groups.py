"""DescribeGroups: state and members of groups of the classic protocol.

Behaviour: a group that is not there is answered as Dead without an error up to version 5, and as
GROUP_ID_NOT_FOUND after that.

Version notes:
    1  throttling    3  authorized operations    4  static members: group_instance_id    5  flexible    6  error_message
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, data, int16, int32, served, string, wire


@wire
class DescribeGroupsRequest:
    api_key: ClassVar[int] = 15
    versions: ClassVar[range] = served(0, 6)
    flexible_since: ClassVar[int | None] = 5

    groups: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean(since=3)


@wire
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


@wire
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-(2**31))


@wire
class DescribeGroupsResponse:
    api_key: ClassVar[int] = 15
    versions: ClassVar[range] = served(0, 6)
    flexible_since: ClassVar[int | None] = 5

    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
