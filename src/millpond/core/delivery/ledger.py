"""The deliveries of one group on one partition: which messages are ready, held by somebody, waiting, or done with.

Offsets from `end` on were never touched; below it, those in `_open` have a state, and all others are done. So what is
kept is as small as the queue is regular: ten million messages behind a slow one are two runs.

Invariants: no two leases of a message overlap; a message that is done is never handed out again; `start` never goes
back. They hold across restarts as far as every `Change` is kept before anybody is told of what it stands for.
Pure: the caller passes `now`, keeps the changes, and buries the doomed. Driven by broker/drivers/queue_partition.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from msgspec import Struct

from millpond.core.delivery.key_order import Behind, KeyOrder
from millpond.core.delivery.lanes import Lanes, Offer
from millpond.core.delivery.runs import Run, Runs
from millpond.core.delivery.settings import REASON_CHARS_MAX, DeliverySettings
from millpond.core.delivery.states import Doomed, Lane, Leased, Outcome, Ready, State, Waiting
from millpond.model.errors import LeaseLost
from millpond.model.instant import Instant
from millpond.model.ports import Rng

LOOKED_AHEAD_MAX: Final = 100_000
"""Messages, or runs of them, that a group which looks at each of them has before it at a time."""

RUNS_MAX: Final = 50_000
"""Nobody gets more while so many runs of messages are unfinished: all of them have to fit one document."""

DOOMED_MAX: Final = 2_000
"""Nor while so many wait for the dead-letter topic, each with its reason."""

DEADLINES_MIN: Final = 1_000
"""Fewer deadlines of leases that are over are not worth a sweep."""

SEQUENCES: Final = 1 << 31
"""Numbers of letters begin anew after so many."""

LEASE_EXPIRED: Final = "the lease ran out"


class Change(Struct, frozen=True, gc=False):
    """These messages are in that state from now on; None: they are done."""

    first: int
    last: int
    state: State | None


class Delivery(Struct, frozen=True, gc=False):
    first: int
    last: int
    attempt: int


class Verdict(Struct, frozen=True, gc=False):
    first: int
    last: int
    outcome: Outcome


class Remembered(NamedTuple):
    """What a ledger begins with after a restart."""

    start: int
    end: int
    producer_id: int
    next_sequence: int
    open: Runs[State]


class Ledger:
    def __init__(self, settings: DeliverySettings, rng: Rng, *, start: int) -> None:
        self.settings = settings
        self._rng = rng
        self._open: Runs[State] = Runs()
        self._lanes = Lanes(settings)
        self._keys = KeyOrder() if settings.is_ordered_by_key else None
        self.end = start
        """Nothing from here on was ever handed out."""
        self.frontier = start
        """As far as messages were let in; not below `end`, except while what was kept is looked at again."""
        self._trimmed_to = 0
        self._deadlines: list[tuple[int, int, int]] = []
        self._held: dict[str, int] = {}
        """How many messages each consumer has that has any."""
        self.leased = 0
        self.doomed_count = 0
        self._changes: list[Change] = []
        self.producer_id = -1
        """In whose name the doomed go to the dead-letter topic; -1 while nobody was doomed."""
        self.next_sequence = 0
        self.counts: Counter[str] = Counter()
        """What happened since the ledger was made: delivered, redelivered, accepted, doomed, expired."""

    @classmethod
    def restore(cls, settings: DeliverySettings, rng: Rng, kept: Remembered, *, now: Instant) -> "Ledger":
        """Leases get their whole time again: this process does not know how much of it is over."""
        ledger = cls(settings, rng, start=kept.start)
        ledger.end, ledger.producer_id, ledger.next_sequence = kept.end, kept.producer_id, kept.next_sequence
        for first, last, state in kept.open:
            match state:
                case Leased():
                    state = Leased(
                        state.attempts, state.lane, state.holder, state.lock_ms, now.monotonic_ms + state.lock_ms
                    )
                case Waiting():
                    left_ms = max(0, state.due_wall_ms - now.wall_ms)
                    state = Waiting(state.attempts, state.lane, state.due_wall_ms, now.monotonic_ms + left_ms)
            ledger._open.set(first, last, state)
            ledger._note_state(first, last, state)
            if isinstance(state, Ready) and not settings.looks_at_messages:
                ledger._lanes.add(first, last, Lane.NORMAL)
        if not settings.looks_at_messages:
            ledger.frontier = kept.end
        return ledger

    # What there is

    @property
    def start(self) -> int:
        """Everything below is done."""
        lowest = self._open.lowest
        return self.end if lowest is None else lowest

    @property
    def ready(self) -> int:
        """Messages that could be handed out now, as far as messages were let in."""
        return self._lanes.size

    def depth(self, lane: Lane) -> int:
        return self._lanes.depth(lane)

    def ready_within(self, first: int, last: int) -> int:
        return self._lanes.size_within(first, last)

    def ahead_within(self, first: int, last: int) -> int:
        """Of these, the messages that were not let in yet, and could be handed out then. After a restart those that
        were handed out before are among those that were not let in; not all of them are ready."""
        first = max(first, self.frontier)
        if first > last:
            return 0
        again = self._open.overlapping(first, min(last, self.end - 1)) if first < self.end else []
        ready = sum(len(run) for run in again if isinstance(run.value, Ready))
        return ready + max(0, last - max(first, self.end) + 1)

    @property
    def unfinished(self) -> int:
        """Messages that were let in and are not done."""
        untouched = max(0, self.frontier - self.end)
        return self._open.size + untouched

    @property
    def begun(self) -> int:
        """Messages that were handed out, or passed over, and are not done."""
        return self._open.size

    @property
    def runs(self) -> int:
        """How many runs those are."""
        return len(self._open)

    def may_expire(self, offset: int) -> bool:
        """Nobody has it, and none of its key is before it; or it waits to be tried again."""
        if offset < self.end and isinstance(self._open.at(offset), Waiting):
            return True
        return bool(self._lanes.size_within(offset, offset))

    def is_done(self, offset: int) -> bool:
        return offset < self.end and self._open.at(offset) is None

    @property
    def next_deadline(self) -> int | None:
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def doomed(self) -> list[Run[Doomed]]:
        """In the order of their numbers, which is that in which they have to be sent: not always that of offsets."""
        if not self.doomed_count:
            return []
        runs = [Run(first, last, state) for first, last, state in self._open if isinstance(state, Doomed)]
        return sorted(runs, key=lambda run: (run.first + run.value.sequence_shift - self.next_sequence) % SEQUENCES)

    def open_runs(self) -> Iterator[Run[State]]:
        return iter(self._open)

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_changes(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes

    # Messages come in

    @property
    def room_ahead(self) -> int:
        """How many more may be let in one by one."""
        with_keys = self._keys.size if self._keys is not None else 0
        return LOOKED_AHEAD_MAX - self._lanes.runs - with_keys

    def admit_until(self, end: int) -> None:
        """All before that offset, in a group that does not look at them."""
        assert not self.settings.looks_at_messages
        if end > self.frontier:
            self._lanes.add(self.frontier, end - 1, Lane.NORMAL)
            self.frontier = end

    def admit(self, offset: int, *, lane: Lane, key: bytes | None, written_wall_ms: int) -> None:
        """The next message, in a group that looks at each; offsets that have none are skipped, and done."""
        assert self.settings.looks_at_messages
        assert offset >= self.frontier
        self.skip_until(offset)
        self.frontier = offset + 1
        state: State | None = self._open.at(offset) if offset < self.end else Ready(0)
        if state is None:
            return
        self._lanes.mark(offset, written_wall_ms, start=self.start)
        is_in_front = self._keys is None or self._keys.admit(offset, key, lane)
        match state:
            case Ready():
                if is_in_front:
                    self._lanes.add(offset, offset, lane)
            case Leased():
                renewed = Leased(state.attempts, lane, state.holder, state.lock_ms, state.until_ms)
                self._open.set(offset, offset, renewed)
            case Waiting():
                self._open.set(offset, offset, Waiting(state.attempts, lane, state.due_wall_ms, state.until_ms))

    def admit_plain(self, first: int, last: int, *, written_wall_ms: int) -> None:
        """Messages that say nothing of a priority, all at once, in a group that looks at them but not at keys. Offsets
        that have none may be among them: they are skipped when they come up."""
        assert self._keys is None
        first = max(first, self.frontier)
        if first > last:
            return
        self.skip_until(first)
        self.frontier = last + 1
        self._lanes.mark(first, written_wall_ms, start=self.start)
        if first < self.end:
            for run in self._open.overlapping(first, last):
                if isinstance(run.value, Ready):
                    self._lanes.add(run.first, run.last, Lane.NORMAL)
        if last >= self.end:
            self._lanes.add(max(first, self.end), last, Lane.NORMAL)

    def pass_done(self) -> None:
        """What was done with before a restart needs no second look."""
        if self.frontier < self.end:
            following = self._open.first_from(self.frontier)
            self.frontier = self.end if following is None else following

    def skip_until(self, offset: int) -> None:
        """There are no messages from the frontier up to here."""
        if offset <= self.frontier:
            return
        first, self.frontier = self.frontier, offset
        self._set(first, offset - 1, None)

    def trim(self, log_start: int) -> bool:
        """The log has lost what is before: nobody will have it. Those that are doomed have a number already, and no
        number may be missing: they stay until they are buried. Whether others may be had for it."""
        if log_start == self._trimmed_to:
            return False
        self._trimmed_to = log_start
        first = self.start
        if log_start <= first:
            return False
        self.frontier = max(self.frontier, log_start)
        self._lanes.remove(first, log_start - 1)
        doomed = [run for run in self.doomed if run.first < log_start] if self.doomed_count else []
        for run in sorted(doomed):
            self._lose(first, run.first - 1)
            first = run.last + 1
        self._lose(first, log_start - 1)
        if self._keys is None:
            return False
        ready = self.ready
        for following in self._keys.trim(log_start):
            self._let_through(following)
        return self.ready > ready

    def _lose(self, first: int, last: int) -> None:
        if first <= last and (last >= self.end or self._open.overlapping(first, last)):
            self._replace(first, last, None)

    # Consumers

    def room_for(self, holder: str) -> int:
        """How many more messages this consumer may have."""
        if self.doomed_count > DOOMED_MAX or (self._open.size > RUNS_MAX < len(self._open) and self.leased):
            return 0
        settings = self.settings
        return max(0, min(settings.leased_max - self.leased, settings.held_max - self._held.get(holder, 0)))

    def offer(self, now: Instant) -> Offer | None:
        """The messages that come next, as of the last `tick`; `acquire` takes them, or the first of them."""
        return self._lanes.next(wall_ms=now.wall_ms)

    def acquire(self, offer: Offer, *, holder: str, lock_ms: int, now: Instant) -> list[Delivery]:
        first, last, lane = offer.first, offer.last, offer.lane
        self._lanes.take(first, last, lane)
        until_ms = now.monotonic_ms + lock_ms
        deliveries = self._next_deliveries(first, last)
        for each in deliveries:
            self._replace(each.first, each.last, Leased(each.attempt, lane, holder, lock_ms, until_ms))
            self.counts["delivered" if each.attempt == 1 else "redelivered"] += each.last - each.first + 1
        return deliveries

    def _next_deliveries(self, first: int, last: int) -> list[Delivery]:
        """These messages by which attempt comes next."""
        if first >= self.end:
            return [Delivery(first, last, 1)]
        deliveries = []
        at = first
        for run in self._open.overlapping(first, last):
            if run.first > at:
                deliveries.append(Delivery(at, run.first - 1, 1))
            deliveries.append(Delivery(run.first, run.last, run.value.attempts + 1))
            at = run.last + 1
        if at <= last:
            deliveries.append(Delivery(at, last, 1))
        return deliveries

    def acknowledge(
        self,
        verdicts: Iterable[Verdict],
        *,
        holder: str,
        now: Instant,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """All of them or, where the holder has not all of them (any more), none."""
        self.tick(now)
        pieces = [(self._held_runs(each, holder), each.outcome) for each in verdicts]
        for runs, outcome in pieces:
            for run in runs:
                if outcome is Outcome.ACCEPT or outcome is Outcome.GAP:  # as nearly all are
                    self._accept(run)
                    continue
                first, last, state = run
                match outcome:
                    case Outcome.RELEASE:
                        self._give_back(first, last, state, now, delay_ms=delay_ms, reason=reason or "released")
                    case Outcome.REJECT:
                        self._doom(first, last, state.attempts, reason or "rejected")
                    case Outcome.RENEW:
                        span_ms = state.lock_ms if lock_ms is None else lock_ms
                        until_ms = now.monotonic_ms + span_ms
                        self._set(first, last, Leased(state.attempts, state.lane, holder, span_ms, until_ms))

    def _accept(self, run: Run[Leased]) -> None:
        """One that is held, all in one state: so there is nothing to look for."""
        first, last, _ = run
        self._note_left(run)
        self._open.clear(first, last)
        self._changes.append(Change(first, last, None))
        self.counts["accepted"] += last - first + 1
        if self._keys is not None:
            self._finish_keys(self._keys, first, last)

    def held(self, first: int, last: int, *, holder: str) -> list[Run[Leased]]:
        """What the holder has of these messages."""
        runs: list[Run[Any]] = self._open.overlapping(first, last)
        return [run for run in runs if isinstance(run.value, Leased) and run.value.holder == holder]

    def _held_runs(self, verdict: Verdict, holder: str) -> list[Run[Leased]]:
        first, last = verdict.first, verdict.last
        found = self.held(first, last, holder=holder)
        missing = last - first + 1
        for at, until, _ in found:
            missing -= until - at + 1
        if missing:
            raise LeaseLost(
                f"offsets {first} to {last} are not, or no longer, leased to who says so: "
                "the lease ran out, or they were acknowledged before; what is not done will be delivered again"
            )
        return found

    def release_all(self, holder: str, now: Instant) -> None:
        """The consumer is gone; what it held is for others at once, and counts as an attempt."""
        if holder not in self._held:
            return
        for first, last, state in list(self._open):
            if isinstance(state, Leased) and state.holder == holder:
                self._give_back(first, last, state, now, delay_ms=0, reason="its consumer went away")

    def expire(self, offset: int) -> None:
        """A message that `may_expire` has outlived its time."""
        self.counts["expired"] += 1
        attempts = self._next_deliveries(offset, offset)[0].attempt - 1
        self._lanes.remove(offset, offset)
        if self.settings.buries_expired:
            self._doom(offset, offset, attempts, "expired")
        else:
            self._set(offset, offset, None)

    def skip(self, first: int, last: int) -> None:
        """Offsets that are ready, and turn out to have no message."""
        self._lanes.remove(first, last)
        self._set(first, last, None)

    def buried(self, first: int, last: int) -> None:
        """The dead-letter topic has them."""
        self._set(first, last, None)

    def tick(self, now: Instant) -> bool:
        """Leases run out, and backoffs end; whether any may have."""
        if not self._deadlines or self._deadlines[0][0] > now.monotonic_ms:
            return False
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ms:
            _, first, last = heappop(self._deadlines)
            for run in self._open.overlapping(first, last):
                state = run.value
                if isinstance(state, Leased) and state.until_ms <= now.monotonic_ms:
                    self._give_back(run.first, run.last, state, now, delay_ms=None, reason=LEASE_EXPIRED)
                elif isinstance(state, Waiting) and state.until_ms <= now.monotonic_ms:
                    self._make_ready(run.first, run.last, state.attempts, state.lane)
        return True

    # From state to state

    def _give_back(
        self, first: int, last: int, state: Leased, now: Instant, *, delay_ms: int | None, reason: str
    ) -> None:
        if state.attempts >= self.settings.attempts_max:
            self._doom(first, last, state.attempts, reason)
            return
        if delay_ms is None:
            delay_ms = self.settings.backoff_after(state.attempts, self._rng.random())
        if delay_ms == 0:
            self._make_ready(first, last, state.attempts, state.lane)
        else:
            due_wall_ms, until_ms = now.wall_ms + delay_ms, now.monotonic_ms + delay_ms
            self._set(first, last, Waiting(state.attempts, state.lane, due_wall_ms, until_ms))

    def _make_ready(self, first: int, last: int, attempts: int, lane: Lane) -> None:
        """Those that were not looked at yet since a restart come into their lanes when they are."""
        self._set(first, last, Ready(attempts))
        last = min(last, self.frontier - 1)
        if self._keys is None:
            if first <= last:
                self._lanes.add(first, last, lane)
            return
        for offset in range(first, last + 1):
            if not self._keys.is_behind(offset):
                self._lanes.add(offset, offset, lane)

    def _doom(self, first: int, last: int, attempts: int, reason: str) -> None:
        self.counts["doomed"] += last - first + 1
        if not self.settings.has_dead_letters:
            self._set(first, last, None)
            return
        self._set(first, last, Doomed(attempts, reason[:REASON_CHARS_MAX], self.next_sequence - first))
        self.next_sequence = (self.next_sequence + last - first + 1) % SEQUENCES

    def _set(self, first: int, last: int, state: State | None) -> None:
        self._replace(first, last, state)
        if state is None and self._keys is not None:
            self._finish_keys(self._keys, first, last)

    def _finish_keys(self, keys: KeyOrder, first: int, last: int) -> None:
        for offset in keys.in_front(first, last):
            self._let_through(keys.finish(offset))

    def _replace(self, first: int, last: int, state: State | None) -> None:
        if first > self.end:  # what was passed over is not done
            self._replace(self.end, first - 1, Ready(0))
        if first < self.end:
            for run in self._open.overlapping(first, last):
                self._note_left(run)
        if last >= self.end:
            self.end = last + 1
        if state is None:
            self._open.clear(first, last)
        else:
            self._open.set(first, last, state)
            self._note_state(first, last, state)
        self._changes.append(Change(first, last, state))

    def _note_left(self, run: Run[State] | Run[Leased]) -> None:
        first, last, state = run
        count = last - first + 1
        if isinstance(state, Leased):
            held = self._held
            self.leased -= count
            left = held[state.holder] = held.get(state.holder, 0) - count
            if not left:
                del held[state.holder]
        elif isinstance(state, Doomed):
            self.doomed_count -= count

    def _note_state(self, first: int, last: int, state: State) -> None:
        match state:
            case Leased():
                self.leased += last - first + 1
                self._held[state.holder] = self._held.get(state.holder, 0) + last - first + 1
                self._note_deadline(state.until_ms, first, last)
            case Waiting():
                self._note_deadline(state.until_ms, first, last)
            case Doomed():
                self.doomed_count += last - first + 1

    def _note_deadline(self, until_ms: int, first: int, last: int) -> None:
        """Those of leases that were settled stay until their time comes, or until they are most of all."""
        heappush(self._deadlines, (until_ms, first, last))
        if len(self._deadlines) > DEADLINES_MIN and len(self._deadlines) > DEADLINES_MIN + 2 * len(self._open):
            self._deadlines = [
                (state.until_ms, first, last)
                for first, last, state in self._open
                if isinstance(state, Leased | Waiting)
            ]
            heapify(self._deadlines)

    def _let_through(self, following: Behind | None) -> None:
        """It is in front among those of its key now; unless it is done, and then the next one is."""
        while following is not None:
            offset, lane = following
            state = self._open.at(offset) if offset < self.end else Ready(0)
            if state is not None:
                if isinstance(state, Ready):
                    self._lanes.add(offset, offset, lane)
                return
            assert self._keys is not None
            following = self._keys.finish(offset)
