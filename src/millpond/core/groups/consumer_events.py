"""What happens to a consumer group (KIP-848), and what it answers. Pure values.

Version notes, for the handlers: ConsumerGroupHeartbeat v0 may join without a member id and is given one; from v1 on
the client brings its own. A field that is None (or a timeout of -1) has not changed since the last heartbeat.
"""

from collections.abc import Mapping
from typing import NamedTuple

from millpond.core.groups.classic_events import Tick
from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import TopicIdPartition
from millpond.model.values import dataclass

JOINING = 0
LEAVING = -1
AWAY = -2
"""The member epoch of a static member that said it will be back."""


class Topic(NamedTuple):
    topic_id: bytes
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    token: Token
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    """Empty to end a subscription by pattern."""
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """All topics there are, by name. The same mapping may be given to every group: it is only read."""

    topics: Mapping[str, Topic]


ConsumerEvent = ConsumerHeartbeat | TopicsChanged | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatResult:
    error: GroupError = GroupError.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None
    """What the member is to own; None where that is what it was told last."""
