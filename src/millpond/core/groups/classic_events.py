"""What happens to a classic group, and what it answers. Pure values.

Version notes, for the handlers: JoinGroup below v4 does not know MEMBER_ID_REQUIRED (`requires_known_member_id`
False); v0 has no rebalance timeout and uses its session timeout; v9 knows `skip_assignment`. SyncGroup from v5 on
names the protocol it believes in. LeaveGroup below v3 names one member.
"""

from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.model.values import dataclass

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors with the member's metadata for each, the one it likes best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    token: Token
    member_id: str = ""
    instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: Protocols
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = True
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    token: Token
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: whatever is due by `now` happens."""


ClassicEvent = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | Tick


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member, as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    error: GroupError = GroupError.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """Everybody, for the leader; empty for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    error: GroupError = GroupError.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    error: GroupError = GroupError.NONE


@dataclass(frozen=True, slots=True)
class LeaveResult:
    error: GroupError = GroupError.NONE
    members: tuple[tuple[Leaving, GroupError], ...] = ()
