"""ListGroups: the groups this broker coordinates.

Behaviour: empty filters let everything through.

Version notes:
    1  throttling    3  flexible    4  filter by state    5  filter by type, classic or consumer
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, wire


@wire
class ListGroupsRequest:
    api_key: ClassVar[int] = 16
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 3

    states_filter: list[str] = array(Kind.STRING, since=4)
    types_filter: list[str] = array(Kind.STRING, since=5)


@wire
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@wire
class ListGroupsResponse:
    api_key: ClassVar[int] = 16
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 3

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
