"""Leases: how long a broker may act as what the image says it is, and when the controller may take it for dead.

A heartbeat that is answered lets a broker act for a session, counted on its own clock from when it *sent* it and
shortened by what clocks may differ. The controller counts the same session on its clock from when it heard it, which
was later. So a broker that the controller may fence has stopped acting.
A process that has ended holds no lease, whatever it was given: who knows that it has need not wait.
Invariant: a broker is fenced only after every lease it was given is over, or its process; once fencing has begun, its
heartbeats are not answered until it registers anew.
The controller's own lease as a broker is its Raft lease. Pure: `now` is monotonic milliseconds of one machine. Driven
by broker/drivers.
"""

from collections.abc import Mapping
from enum import Enum

from millpond.model.values import dataclass

DRIFT_PERCENT_MAX = 10
"""How much faster one clock may run than another, over a session."""

_OVER = -(2**62)


class Lease:
    """A broker's own."""

    __slots__ = ("_lease_ms", "valid_until")

    def __init__(self, *, session_ms: int) -> None:
        self._lease_ms = session_ms * (100 - DRIFT_PERCENT_MAX) // 100
        self.valid_until = _OVER

    def renewed(self, *, sent_at: int) -> None:
        """A heartbeat that was sent then has been answered."""
        self.valid_until = max(self.valid_until, sent_at + self._lease_ms)

    def give_up(self) -> None:
        """When it is told that it is fenced, and when it becomes controller: from then on its Raft lease counts, and
        the next controller relies on there being no other."""
        self.valid_until = _OVER

    def is_valid(self, now: int) -> bool:
        return now < self.valid_until


class Heard(Enum):
    RENEWED = "renewed"
    STALE = "stale"  # of an earlier life of that broker: STALE_BROKER_EPOCH
    FENCED = "fenced"  # taken for dead, or about to be: it must register anew
    UNKNOWN = "unknown"  # registered, as it says, and not known here yet: it tries again


@dataclass(slots=True)
class _Session:
    epoch: int
    until: int
    fencing: bool = False


class Sessions:
    """The controller's, for as long as it is controller. It begins by granting everybody a full session, because it
    does not know what its predecessor granted."""

    __slots__ = ("_session_ms", "_sessions")

    def __init__(self, live: Mapping[int, int], *, own: int, session_ms: int, now: int) -> None:
        """`live` are the brokers that are not fenced, with their epochs; `own` is never fenced by itself."""
        self._session_ms = session_ms
        self._sessions: dict[int, _Session] = {}
        self.follow(live, own=own, now=now)

    def expect_of_predecessor(self, broker: int, *, term: int, last_term: int, now: int, grace_ms: int) -> None:
        """The previous controller acted by its Raft lease, which was over before another was elected; so it need not
        have a session. Only if nobody was controller in between, who could have given it another lease: whoever was,
        has committed something, so its term is in the log. `term` is the last in which `broker` led, `last_term` that
        of the last entry before this controller's own."""
        session = self._sessions.get(broker)
        if session is not None and last_term <= term:
            session.until = min(session.until, now + grace_ms)

    def follow(self, live: Mapping[int, int], *, own: int, now: int) -> None:
        """The image has changed: a broker that registered has a session from now, one that is fenced has none."""
        for broker in self._sessions.keys() - live.keys():
            del self._sessions[broker]
        for broker, epoch in live.items():
            known = self._sessions.get(broker)
            if broker != own and (known is None or known.epoch != epoch):
                self._sessions[broker] = _Session(epoch, now + self._session_ms)

    def heard(self, broker: int, *, epoch: int, now: int) -> Heard:
        """A heartbeat. It is answered, and so becomes a lease, only if this says `RENEWED`."""
        session = self._sessions.get(broker)
        if session is None or session.fencing:
            return Heard.FENCED
        if epoch != session.epoch:
            return Heard.STALE if epoch < session.epoch else Heard.UNKNOWN
        session.until = max(session.until, now + self._session_ms)
        return Heard.RENEWED

    def gone(self, broker: int, *, epoch: int, now: int) -> None:
        """The process that registered with this epoch has ended, and its leases with it. What it said before is heard
        no more; whoever starts in its place registers anew."""
        session = self._sessions.get(broker)
        if session is not None and session.epoch == epoch:
            session.until = min(session.until, now)
            session.fencing = True

    def forgive(self, *, now: int) -> None:
        """It was the controller that was stopped for a while; what others said meanwhile is not read yet. So they have
        a full session, but for those whose fencing has begun."""
        for session in self._sessions.values():
            if not session.fencing:
                session.until = max(session.until, now + self._session_ms)

    def due(self, now: int) -> list[tuple[int, int]]:
        """The brokers to be fenced, and in which epoch. From here on, whatever becomes of the attempt, they are not
        heard any more; they are named again and again until the image shows it."""
        over = sorted(broker for broker, session in self._sessions.items() if session.until <= now)
        for broker in over:
            self._sessions[broker].fencing = True
        return [(broker, self._sessions[broker].epoch) for broker in over]

    def next_deadline(self) -> int | None:
        """When `due` is to be asked next; None while nobody can fall silent."""
        return min((session.until for session in self._sessions.values()), default=None)
