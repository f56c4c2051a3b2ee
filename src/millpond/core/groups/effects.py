"""What a group asks of its driver, and the facts it tells.

The driver performs the effects of one coordinator **in order**: a `Reply` goes out once every `Persist` before it is
kept. So nobody is told of a generation, an assignment or an offset that a restart could forget, and a reader of
offsets never sees one that is not kept yet. A log that refuses a `Persist` ends the coordinator: its state is ahead
of the log, and is to be restored from there.
Pure.
"""

from enum import Enum
from typing import NewType

from millpond.core.groups.records import Record
from millpond.model.values import dataclass

Token = NewType("Token", int)
"""Names a request that waits for its answer; the driver's to choose, never the same one twice."""


class Why(Enum):
    """The reason behind a fact: for logs and metrics, never for decisions."""

    JOINED = "a member joined"
    REJOINED = "a member joined again"
    RETURNED = "a static member returned"
    LEFT = "a member left"
    SESSION_EXPIRED = "a member's session expired"
    NOT_REJOINED = "a member did not join again in time"
    NOT_SYNCED = "a member did not sync in time"
    NOT_REVOKED = "a member did not give up its partitions in time"
    REPLACED = "another process took over the instance id"
    SUBSCRIPTION = "a subscription changed"
    TOPICS = "topics changed"


@dataclass(frozen=True, slots=True)
class MemberJoined:
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class MemberGone:
    group: str
    member: str
    why: Why


@dataclass(frozen=True, slots=True)
class RebalanceBegan:
    group: str
    why: Why


@dataclass(frozen=True, slots=True)
class RebalanceEnded:
    """For a classic group when its leader has assigned; for a consumer group when every member has what is its own."""

    group: str
    generation: int
    members: int
    took_ms: int


Fact = MemberJoined | MemberGone | RebalanceBegan | RebalanceEnded


@dataclass(frozen=True, slots=True)
class Reply:
    to: Token
    result: object


@dataclass(frozen=True, slots=True)
class Persist:
    record: Record


@dataclass(frozen=True, slots=True)
class Noted:
    fact: Fact


Effect = Reply | Persist | Noted
