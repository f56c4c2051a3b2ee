"""ChangeMembers: another voter in the quorum, or one fewer, asked of the controller. Between brokers only.

Behaviour: the answer is empty where the change has begun, or why not; whoever asked looks at its own log for the end.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import int8, int32, served, string, wire

PROMOTE: Final = 0
REMOVE: Final = 1


@wire
class ChangeMembersRequest:
    api_key: ClassVar[int] = 20005
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    change: int = int8()
    node: int = int32()


@wire
class ChangeMembersResponse:
    api_key: ClassVar[int] = 20005
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    refusal: str = string()
    """The name of a `core.raft.output.Reason`, or empty."""
