"""DeleteGroups: forget groups and their offsets.

Behaviour: each group stands for itself; one that has members is NON_EMPTY_GROUP.

Version notes:
    1  as 0    2  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, wire


@wire
class DeleteGroupsRequest:
    api_key: ClassVar[int] = 42
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    groups_names: list[str] = array(Kind.STRING)


@wire
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@wire
class DeleteGroupsResponse:
    api_key: ClassVar[int] = 42
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
