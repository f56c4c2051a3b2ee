"""One member of a consumer group (KIP-848), as the member sees it: what it owns, what it should own, when to say so.

    JOINING ── answered ──> MEMBER ── fenced, or forgotten ──> JOINING
       └──────── refused for good ────> FAILED <───┘            either ── leave ──> LEFT

The coordinator decides; a heartbeat's answer may bring a new target. The member gives up what is not in it, takes what
is new, and says what it owns in its next heartbeat, at once. A heartbeat says only what changed; after one that was not
answered, the next says everything, and its answer brings the target again.

Invariant: `owned` is what the application has; it changes only by `own`, after whatever has to happen first (a commit).
A member that was fenced owns nothing any more: its partitions may be another's already.
Pure: the caller passes `now` and sends what `due` gives. Driven by group.py.
"""

from enum import Enum
from typing import Final, NamedTuple

from millpond.client.refusals import NEW_COORDINATOR_CODES, RETRIED_CODES, refusal
from millpond.client.retries import Backoff
from millpond.model.errors import MillpondError
from millpond.model.ports import Rng
from millpond.model.values import dataclass

UNKNOWN_MEMBER_ID: Final = 25
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111
FENCED_CODES: Final = frozenset({UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH})
JOIN_EPOCH, LEAVE_EPOCH, AWAY_EPOCH = 0, -1, -2


class Place(NamedTuple):
    """A partition, as the group protocol names it."""

    topic_id: bytes
    partition: int


class State(Enum):
    JOINING = "joining"
    MEMBER = "member"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: frozenset[str] = frozenset()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What is None has not changed since the last."""

    epoch: int
    subscription: Subscription | None = None
    owned: frozenset[Place] | None = None


class Membership:
    def __init__(self, subscription: Subscription, *, is_static: bool, backoff: Backoff, rng: Rng) -> None:
        self.state = State.JOINING
        self.epoch = JOIN_EPOCH
        self.owned: frozenset[Place] = frozenset()
        self.target: frozenset[Place] | None = None
        """What to own, where that is not what is owned."""
        self.failure: MillpondError | None = None
        self._subscription = subscription
        self._is_static = is_static
        self._backoff = backoff
        self._rng = rng
        self._failures = 0
        self._next_at = 0.0
        self._interval = 1.0
        self._is_asking = self._has_asked = False
        self._says_everything = True
        self._says_owned = False
        self._says_subscription = False

    # What to do

    @property
    def next_at(self) -> float | None:
        """When the next heartbeat is due; None while one is unanswered, or none will ever be."""
        return None if self._is_asking or self.state in (State.FAILED, State.LEFT) else self._next_at

    def due(self, *, now: float) -> Heartbeat | None:
        """The heartbeat to send now, if any."""
        if self.next_at is None or now < self.next_at:
            return None
        self._is_asking = self._has_asked = True
        everything = self._says_everything or self.state is State.JOINING
        heartbeat = Heartbeat(
            epoch=self.epoch,
            subscription=self._subscription if everything or self._says_subscription else None,
            owned=self.owned if everything or self._says_owned else None,
        )
        self._says_everything = self._says_owned = self._says_subscription = False
        return heartbeat

    def leave(self) -> Heartbeat | None:
        """The last heartbeat; a static member says that it will be back, and finds its partitions kept."""
        was, self.state = self.state, State.LEFT
        if was is State.MEMBER or (was is State.JOINING and self._has_asked):  # it may be in without having heard of it
            return Heartbeat(epoch=AWAY_EPOCH if self._is_static else LEAVE_EPOCH)
        return None

    # What happened

    def subscribe(self, subscription: Subscription) -> None:
        if subscription != self._subscription:
            self._subscription = subscription
            self._says_subscription = True
            self._next_at = 0.0

    def own(self, owned: frozenset[Place]) -> None:
        """The application has these now; the coordinator hears of it at once."""
        if owned != self.owned:
            self.owned = owned
            self._says_owned = True
            self._next_at = 0.0
        if self.target == owned:
            self.target = None

    def answered(self, *, epoch: int, interval_seconds: float, assignment: frozenset[Place] | None, now: float) -> None:
        self._is_asking = False
        self._failures = 0
        if self.state in (State.FAILED, State.LEFT):
            return
        self.state, self.epoch = State.MEMBER, epoch
        self._interval = interval_seconds
        if not (self._says_owned or self._says_subscription):
            self._next_at = now + interval_seconds
        if assignment is not None:
            self.target = None if assignment == self.owned else assignment

    def refused(self, code: int, reason: str | None, *, of: str, now: float) -> bool:
        """Whether all that was owned is lost."""
        self._is_asking = False
        self._says_everything = True
        if code in FENCED_CODES:
            had = bool(self.owned) or self.target is not None
            self.state, self.epoch = State.JOINING, JOIN_EPOCH
            self.owned, self.target = frozenset(), None
            self._next_at = now
            return had
        if code in RETRIED_CODES or code in NEW_COORDINATOR_CODES or code == UNRELEASED_INSTANCE_ID:
            self._retry(now)
            return False
        self.state, self.failure = State.FAILED, refusal(code, reason, of=of)
        return False

    def unanswered(self, *, now: float) -> None:
        self._is_asking = False
        self._says_everything = True
        self._retry(now)

    def _retry(self, now: float) -> None:
        self._failures += 1
        self._next_at = now + self._backoff.pause(self._failures, self._rng)
