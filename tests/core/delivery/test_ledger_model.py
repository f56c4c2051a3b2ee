"""The ledger against a plain model: one object for each message, and nothing clever.

Every step also restores a ledger from what would be on disk, now and then goes on with that one, and compares.
"""

import random
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from millpond.core.delivery.encoding import decode, encode, encode_whole
from millpond.core.delivery.lanes import Offer
from millpond.core.delivery.ledger import Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import Lane, Leased, Outcome, Waiting
from millpond.model.errors import LeaseLost
from millpond.model.instant import Instant

LOCK_MS = 1000
WALL_MS = 1_700_000_000_000
HOLDERS = ("anna", "bert", "cara")


@dataclass
class Message:
    """As the model sees it."""

    lane: Lane
    key: bytes | None
    attempts: int = 0
    state: str = "ready"
    holder: str = ""
    until_ms: int = 0


class LedgerAgainstModel(RuleBasedStateMachine):
    @initialize(
        by_key=st.booleans(),
        priority=st.sampled_from(Priority),
        attempts_max=st.integers(1, 3),
        backoff_ms=st.sampled_from([0, 300]),
        has_dead_letters=st.booleans(),
    )
    def begin(
        self, *, by_key: bool, priority: Priority, attempts_max: int, backoff_ms: int, has_dead_letters: bool
    ) -> None:
        self.settings = DeliverySettings(
            attempts_max=attempts_max,
            lock_ms=LOCK_MS,
            leased_max=12,
            held_max=8,
            backoff_ms=backoff_ms,
            jitter=0.0,
            has_dead_letters=has_dead_letters,
            is_ordered_by_key=by_key,
            priority=priority,
        )
        self.ledger = Ledger(self.settings, random.Random(0), start=0)
        self.documents = [encode_whole(self.ledger)]
        self.messages: dict[int, Message] = {}
        self.end = self.log_start = 0
        self.now_ms = 0

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, WALL_MS + self.now_ms)

    def keep(self) -> None:
        self.documents.append(encode(self.ledger, self.ledger.take_changes()))

    # Messages

    @rule(count=st.integers(1, 6), seed=st.integers(0, 2**16))
    def come(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            key = chance.choice([None, b"x", b"y"])
            lane = chance.choice(list(Lane)) if self.settings.priority is not Priority.OFF else Lane.NORMAL
            self.messages[self.end] = Message(lane, key)
            self.end += 1
        self.let_in()

    def let_in(self) -> None:
        if not self.settings.looks_at_messages:
            self.ledger.admit_until(self.end)
        while True:
            self.ledger.pass_done()
            offset = self.ledger.frontier
            if offset >= self.end:
                return
            if self.can_be_plain(offset):
                last = offset
                while last + 1 < self.end and self.can_be_plain(last + 1):
                    last += 1
                self.ledger.admit_plain(max(0, offset - 1), last, written_wall_ms=WALL_MS)
            elif (message := self.messages.get(offset)) is None:
                self.ledger.skip_until(offset + 1)
            else:
                self.ledger.admit(offset, lane=message.lane, key=message.key, written_wall_ms=WALL_MS)

    def can_be_plain(self, offset: int) -> bool:
        """Messages that say nothing of a priority are let in many at a time; those that are done may be among them."""
        message = self.messages.get(offset, Message(Lane.NORMAL, None))
        is_gone = offset not in self.messages and offset >= self.ledger.end
        return not self.settings.is_ordered_by_key and not is_gone and message.lane is Lane.NORMAL

    @precondition(lambda self: self.end > 0)
    @rule(part=st.floats(0, 1))
    def lose_the_oldest(self, part: float) -> None:
        self.log_start = start = max(self.log_start, int(self.end * part))
        self.ledger.trim(start)
        for offset in [each for each, message in self.messages.items() if each < start and message.state != "doomed"]:
            del self.messages[offset]
        self.keep()

    # Consumers

    def can_go(self, offset: int) -> bool:
        message = self.messages[offset]
        if message.state != "ready":
            return False
        return (
            not self.settings.is_ordered_by_key
            or message.key is None
            or not any(self.log_start <= at < offset and self.messages[at].key == message.key for at in self.messages)
        )

    @rule(holder=st.sampled_from(HOLDERS), count=st.integers(1, 5))
    def receive(self, holder: str, count: int) -> None:
        self.expire()
        room = self.ledger.room_for(holder)
        assert room == min(12 - sum(m.state == "leased" for m in self.messages.values()), 8 - self.held(holder))
        offer = self.ledger.offer(self.now)
        possible = [offset for offset in self.messages if self.can_go(offset)]
        if offer is None:
            assert not possible
            return
        if not room:
            return
        assert offer.first == min(offset for offset in possible if self.messages[offset].lane == offer.lane)
        if self.settings.priority is Priority.STRICT:
            assert offer.lane == min(self.messages[offset].lane for offset in possible)
        taken = Offer(offer.first, min(offer.last, offer.first + min(count, room) - 1), offer.lane)
        deliveries = self.ledger.acquire(taken, holder=holder, lock_ms=LOCK_MS, now=self.now)
        attempts = {at: run.attempt for run in deliveries for at in range(run.first, run.last + 1)}
        assert list(attempts) == list(range(taken.first, taken.last + 1))
        for offset, attempt in attempts.items():
            assert self.can_go(offset) or offset != taken.first
            message = self.messages[offset]
            assert attempt == message.attempts + 1 <= self.settings.attempts_max
            message.attempts, message.state, message.holder = attempt, "leased", holder
            message.until_ms = self.now_ms + LOCK_MS
        self.keep()

    def held(self, holder: str) -> int:
        return sum(m.state == "leased" and m.holder == holder for m in self.messages.values())

    @rule(
        holder=st.sampled_from(HOLDERS),
        first=st.integers(0, 60),
        count=st.integers(1, 4),
        outcome=st.sampled_from(Outcome),
        delay_ms=st.sampled_from([None, 0, 700]),
    )
    def say(self, holder: str, first: int, count: int, outcome: Outcome, delay_ms: int | None) -> None:
        self.expire()
        span = range(first, first + count)
        is_right = all(
            (m := self.messages.get(at)) is not None and m.state == "leased" and m.holder == holder for at in span
        )
        verdict = Verdict(first, first + count - 1, outcome)
        if not is_right:
            with pytest.raises(LeaseLost):
                self.ledger.acknowledge([verdict], holder=holder, now=self.now)
            return
        self.ledger.acknowledge([verdict], holder=holder, now=self.now, delay_ms=delay_ms, lock_ms=2 * LOCK_MS)
        for offset in span:
            match outcome:
                case Outcome.ACCEPT | Outcome.GAP:
                    del self.messages[offset]
                case Outcome.RELEASE:
                    self.give_back(offset, delay_ms)
                case Outcome.REJECT:
                    self.doom(offset)
                case Outcome.RENEW:
                    self.messages[offset].until_ms = self.now_ms + 2 * LOCK_MS
        self.keep()

    @rule(holder=st.sampled_from(HOLDERS))
    def hang_up(self, holder: str) -> None:
        self.expire()
        self.ledger.release_all(holder, self.now)
        for offset, message in list(self.messages.items()):
            if message.state == "leased" and message.holder == holder:
                self.give_back(offset, 0)
        self.keep()

    @rule()
    def bury(self) -> None:
        for run in list(self.ledger.doomed):
            self.ledger.buried(run.first, run.last)
            for offset in range(run.first, run.last + 1):
                assert self.messages.pop(offset).state == "doomed"
        assert not any(message.state == "doomed" for message in self.messages.values())
        self.keep()

    def give_back(self, offset: int, delay_ms: int | None) -> None:
        message = self.messages[offset]
        if message.attempts >= self.settings.attempts_max:
            self.doom(offset)
            return
        wait_ms = self.settings.backoff_ms * 2 ** (message.attempts - 1) if delay_ms is None else delay_ms
        message.state, message.until_ms = ("waiting", self.now_ms + wait_ms) if wait_ms else ("ready", 0)

    def doom(self, offset: int) -> None:
        if self.settings.has_dead_letters:
            self.messages[offset].state = "doomed"
        else:
            del self.messages[offset]

    # Time

    @rule(ms=st.sampled_from([1, 299, 300, 999, 1000, 5000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.expire()
        self.ledger.tick(self.now)
        self.keep()

    def expire(self) -> None:
        for offset, message in list(self.messages.items()):
            if message.until_ms <= self.now_ms:
                if message.state == "waiting":
                    message.state = "ready"
                elif message.state == "leased":
                    self.give_back(offset, None)
        # A backoff that begins late in the model's day begins at the same moment in the ledger: at its tick.
        self.ledger.tick(self.now)

    @rule()
    def restart(self) -> None:
        """With what is on disk; leases get their whole time again."""
        self.expire()
        self.keep()
        self.ledger = Ledger.restore(self.settings, random.Random(0), decode(self.documents), now=self.now)
        self.documents = [encode_whole(self.ledger)]
        for offset, message in self.messages.items():
            if message.state == "leased":
                message.until_ms = self.now_ms + self.lock_of(offset)
        self.ledger.trim(self.log_start)
        self.let_in()

    def lock_of(self, offset: int) -> int:
        (run,) = [run for run in self.ledger.open_runs() if run.first <= offset <= run.last]
        assert isinstance(run.value, Leased)
        return run.value.lock_ms

    # What always holds

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert self.ledger.start == min(self.messages, default=self.ledger.end) or self.ledger.start == self.ledger.end
        assert self.ledger.leased == sum(m.state == "leased" for m in self.messages.values())
        assert self.ledger.ready == sum(self.can_go(offset) for offset in self.messages)
        assert self.ledger.unfinished == len(self.messages)
        doomed = {at for run in self.ledger.doomed for at in range(run.first, run.last + 1)}
        assert doomed == {offset for offset, m in self.messages.items() if m.state == "doomed"}

    @invariant()
    def what_is_kept_is_what_is(self) -> None:
        if not hasattr(self, "ledger"):
            return
        changes = self.ledger.take_changes()
        if changes:
            self.documents.append(encode(self.ledger, changes))
        kept = decode(self.documents)
        assert (kept.start, kept.end) == (self.ledger.start, self.ledger.end)
        restored = Ledger.restore(self.settings, random.Random(0), kept, now=self.now)
        assert states_of(restored) == states_of(self.ledger)


def states_of(ledger: Ledger) -> dict[int, object]:
    """Message by message, without what is found anew after a restart: monotonic times and lanes."""
    return {
        offset: replace(run.value, until_ms=0, lane=Lane.NORMAL)
        if isinstance(run.value, Leased | Waiting)
        else run.value
        for run in ledger.open_runs()
        for offset in range(run.first, run.last + 1)
    }


TestLedger = LedgerAgainstModel.TestCase
