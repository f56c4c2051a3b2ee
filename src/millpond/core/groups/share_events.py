"""What happens to a share group (KIP-932), and what it answers. Pure values.

A field that is None has not changed since the last heartbeat.
"""

from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer_events import TopicsChanged
from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import TopicIdPartition
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    token: Token
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


ShareEvent = ShareHeartbeat | TopicsChanged | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatResult:
    error: GroupError = GroupError.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None
    """What the member is to read; None where that is what it was told last."""
