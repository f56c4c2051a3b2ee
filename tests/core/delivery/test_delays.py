"""The machine of delayed messages against a plain dictionary; and read anew from the facts that it was told."""

import random
from array import array
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.core.delivery import delay_rows
from millpond.core.delivery.delay_rows import DelayRows
from millpond.core.delivery.delays import Delays
from millpond.core.delivery.parked_format import (
    Aside,
    Cancelled,
    Carried,
    CheckpointPart,
    Fact,
    Moved,
    Parked,
    Rescheduled,
    Shelved,
    aside_batch,
    cancelled_batch,
    carried_batch,
    checkpoint_batch,
    fact_of,
    last_whole,
    moved_batch,
    parked_batch,
    rescheduled_batch,
)
from millpond.core.delivery.wheel import Due
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.protocol.compression import Codec
from millpond.protocol.records import (
    HEADER_BYTES,
    NewRecord,
    check_batch,
    decode_batch,
    encode_batch,
    encode_survivors,
    parse_header,
    stamp,
)

START = 1_767_225_600_000
DELAYS = st.one_of(st.integers(0, 100), st.integers(0, 1_000_000), st.integers(0, 400 * 86_400_000))
EVERY_MS = 60_000
"""The schedules here fire a minute after they fired."""


class DelaysAgainstADictionary(RuleBasedStateMachine):
    """All facts go through their bytes, as they do in a log."""

    def __init__(self) -> None:
        super().__init__()
        self.small = patch.object(delay_rows, "CHUNK_ROWS", 2)
        self.small.start()
        self.checkpoint: Iterator[CheckpointPart] = iter(())
        self.now = START
        self.machine = Delays()
        assert self.machine.wind(self.now)
        self.waiting: dict[int, int] = {}
        self.recurring: set[int] = set()
        self.log: list[tuple[int, bytes]] = []
        self.next_offset = 0

    def teardown(self) -> None:
        self.small.stop()

    def write(self, batch: bytes) -> Fact:
        data = bytearray(batch)
        stamp(data, base_offset=Offset(self.next_offset), leader_epoch=LeaderEpoch(1))
        header = check_batch(data)
        self.log.append((self.next_offset, bytes(data)))
        self.next_offset = header.next_offset
        fact = fact_of(data, 0, header)
        assert fact is not None
        return fact

    def tell(self, batch: bytes) -> None:
        self.machine.apply(self.write(batch))

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=4), recurs=st.booleans())
    def park(self, delays: list[int], recurs: bool) -> None:
        base = self.next_offset
        dues = [self.now + delay for delay in delays]
        batch = encode_batch([NewRecord(b"%d" % each, timestamp=TimestampMs(1)) for each in dues])
        self.tell(parked_batch(batch, [-each if recurs else each for each in dues], now=self.now))
        ids = range(base, base + len(dues))
        self.waiting |= dict(zip(ids, dues, strict=True))
        self.recurring |= set(ids) if recurs else set()

    @rule(delays=st.lists(st.none() | DELAYS, min_size=2, max_size=5))
    def put_aside(self, delays: list[int | None]) -> None:
        """Of a batch that is not delayed as a whole."""
        records = decode_batch(encode_batch([NewRecord(b"z", timestamp=TimestampMs(1)) for _ in delays]))
        wanted = {1 + self.next_offset + at: self.now + each for at, each in enumerate(delays) if each is not None}
        if not 0 < len(wanted) < len(delays):
            return
        rest = encode_survivors(
            [each for each, delay in zip(records, delays, strict=True) if delay is None],
            of=parse_header(encode_batch([NewRecord(b"z", timestamp=TimestampMs(1)) for _ in delays])),
        )
        aside = records[: len(wanted)]
        note = aside_batch(
            aside, list(wanted), list(wanted.values()), rest=parse_header(rest), codec=Codec.NONE, now=self.now
        )
        self.tell(note)
        self.log.append((self.next_offset, rest))
        self.next_offset += len(delays)
        self.waiting |= wanted

    @rule(step=DELAYS, count_max=st.integers(1, 6), fails=st.booleans())
    def deliver(self, step: int, count_max: int, fails: bool) -> None:
        self.now += step
        found = self.machine.due(self.now, count_max=count_max)
        for each in found:
            assert self.waiting[each.id] == each.due <= self.now
            assert each.is_recurring == (each.id in self.recurring)
        if found and not fails:
            batch = encode_batch([NewRecord(b"x", timestamp=TimestampMs(1))])
            record = Shelved(batch[HEADER_BYTES:], parse_header(batch))
            nexts = [self.now + EVERY_MS if each.is_recurring else None for each in found]
            messages = [(each.id, record, at) for each, at in zip(found, nexts, strict=True)]
            self.tell(moved_batch(messages, origin=b"t/0/", codec=Codec.NONE, now=self.now, log_append_time=False))
            for each, at in zip(found, nexts, strict=True):
                if at is None:
                    del self.waiting[each.id]
                else:
                    self.waiting[each.id] = at
        self.machine.put_back(found)

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0, 1 << 30), delay=st.none() | DELAYS)
    def cancel_or_reschedule(self, choice: int, delay: int | None) -> None:
        id_ = sorted(self.waiting)[choice % len(self.waiting)]
        if delay is None:
            self.tell(cancelled_batch([id_], now=self.now))
            del self.waiting[id_]
        else:
            due = self.now + delay
            self.tell(rescheduled_batch([id_], [-due if id_ in self.recurring else due], now=self.now))
            self.waiting[id_] = due

    @precondition(lambda self: self.waiting)
    @rule(part=st.floats(0, 1))
    def carry_and_forget(self, part: float) -> None:
        """Retention takes the oldest of the log."""
        before = Offset(int(self.next_offset * part))
        last = -1
        while messages := self.machine.placed_before(before, after=last, count_max=3):
            last = messages[-1].id
            records = decode_batch(encode_batch([NewRecord(b"y", timestamp=TimestampMs(1)) for _ in messages]))
            dues = [-each.due if each.is_recurring else each.due for each in messages]
            ids = [each.id for each in messages]
            self.tell(carried_batch(records, ids, dues, codec=Codec.NONE, now=self.now))
        place = self.machine.first_place()
        assert place is None or place >= before
        self.log = [each for each in self.log if each[0] >= before]

    @rule()
    def begin_a_checkpoint(self) -> None:
        """Whatever comes next may come between its parts."""
        self.checkpoint = self.machine.checkpoint()
        self.go_on_with_the_checkpoint()

    @rule()
    def go_on_with_the_checkpoint(self) -> None:
        part = next(self.checkpoint, None)
        if part is not None:
            self.tell(checkpoint_batch(part, now=self.now))

    @rule(work_max=st.integers(1, 3), from_checkpoint=st.booleans())
    def read_anew(self, work_max: int, from_checkpoint: bool) -> None:
        """As the next leader does, from the start of the log or from its last checkpoint."""
        facts = [fact_of(data, 0, check_batch(data)) for _, data in self.log]
        begin = 0
        if from_checkpoint:
            parts = [
                (Offset(number), fact.part, fact.parts)
                for number, fact in enumerate(facts)
                if isinstance(fact, CheckpointPart)
            ]
            begin = last_whole(parts) or 0
        self.checkpoint = iter(())  # the next leader does not go on with it
        self.machine = Delays()
        for fact in facts[begin:]:
            if fact is not None:  # else it is the rest of a batch
                self.machine.apply(fact)
        while not self.machine.wind(self.now, work_max=work_max):
            pass

    @invariant()
    def knows_what_waits(self) -> None:
        assert len(self.machine) == len(self.waiting)
        expected = sorted((due, id_) for id_, due in self.waiting.items())
        assert [(each.due, each.id) for each in self.machine.first(1_000)] == expected
        if expected:
            assert [each.id for each in self.machine.first(2, after=Due(*expected[0]))] == [
                id_ for _, id_ in expected[1:3]
            ]
            next_at = self.machine.next_at()
            assert next_at is not None
            assert next_at <= expected[0][0]


TestDelaysAgainstADictionary = DelaysAgainstADictionary.TestCase


def test_rows_are_let_go_of_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_rows, "CHUNK_ROWS", 16)
    rng, rows = random.Random(4), DelayRows()
    rows.extend(range(1_000), array("q", range(1, 1_001)), array("q", range(1_000)))
    left = list(range(1_000))
    rng.shuffle(left)
    while left:
        at = rows.find(id_ := left.pop())
        assert at is not None
        rows.finish(at)
        assert rows.find(id_) is None
        assert len(rows) == len(left)
        kept = [len(chunk.ids) for chunk in rows.copies()]
        assert sum(kept) <= 3 * len(left), "what is done with is let go of"
        assert [id_ for id_, _, _ in rows.live_from(0)] == sorted(left)


def machine_with(*dues: int) -> Delays:
    machine = Delays()
    machine.apply(Parked(Offset(0), array("q", dues), memoryview(b"")))
    while not machine.wind(START):
        pass
    return machine


def parts_of(machine: Delays) -> list[CheckpointPart]:
    """By way of their bytes."""
    facts = [
        fact_of(batch, 0, check_batch(batch))
        for batch in (checkpoint_batch(each, now=1) for each in machine.checkpoint())
    ]
    return [fact for fact in facts if isinstance(fact, CheckpointPart)]


def test_a_checkpoint_of_several_parts_counts_when_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_rows, "CHUNK_ROWS", 2)
    machine = machine_with(*range(START, START + 10))
    parts = parts_of(machine)
    assert len(parts) == 3
    read = Delays()
    for part in (parts[0], parts[1], *parts):  # a leader that was interrupted, and another
        read.apply(part)
    assert read.wind(START)
    assert read.first(20) == machine.first(20)
    torn = Delays()
    for part in (parts[1], parts[2]):
        torn.apply(part)
    assert len(torn) == 0


def test_what_is_said_between_the_parts_of_a_checkpoint_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_rows, "CHUNK_ROWS", 2)
    machine = machine_with(*range(START, START + 10))
    facts: list[Fact] = []
    for number, part in enumerate(machine.checkpoint()):
        said = Moved([(1 + 4 * number, None)])
        new = Parked(Offset(100 + number), array("q", [START + 50 + number]), memoryview(b""))
        carried = Carried(Offset(200 + number), array("q", [9 - number]), array("q", [START + 9]), memoryview(b""))
        for fact in (said, new, carried):
            machine.apply(fact)
        facts += [part, said, new, carried]
    read = Delays()
    for each in facts:
        read.apply(each)
    assert read.wind(START)
    assert read.first(20) == machine.first(20)
    assert sorted(each.id for each in read.first(20)) == [0, 2, 3, 4, 6, 7, 8, 100, 101, 102]


def test_the_last_checkpoint_is_the_last_that_is_whole() -> None:
    assert last_whole([]) is None
    assert last_whole([(Offset(5), 0, 1)]) == 5
    interrupted = [(Offset(1), 0, 2), (Offset(2), 1, 2), (Offset(4), 0, 3), (Offset(5), 1, 3)]
    assert last_whole(interrupted) == 1
    assert last_whole([*interrupted, (Offset(9), 2, 3)]) == 4
    assert last_whole([(Offset(1), 0, 3), (Offset(3), 2, 3)]) is None
    assert last_whole([(Offset(3), 2, 3), (Offset(4), 1, 3)]) is None


def test_a_million_messages_take_less_than_a_hundred_bytes_each() -> None:
    import tracemalloc  # noqa: PLC0415

    rng, count = random.Random(1), 100_000
    dues = array("q", [START + rng.randrange(86_400_000) for _ in range(count)])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    machine = machine_with(*dues)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(machine) == count
    assert (after - before) / count < 100


FACTS: list[Callable[[], tuple[bytes, Fact]]] = [
    lambda: (cancelled_batch([3, 4], now=1), Cancelled(array("q", [3, 4]))),
    lambda: (rescheduled_batch([3], [-9], now=1), Rescheduled(array("q", [3]), array("q", [-9]))),
]


@pytest.mark.parametrize("make", FACTS)
def test_facts_come_back_from_their_bytes(make: Callable[[], tuple[bytes, Fact]]) -> None:
    batch, fact = make()
    assert fact_of(batch, 0, check_batch(batch)) == fact


def test_a_parked_batch_holds_what_its_producer_sent() -> None:
    sent = encode_batch([NewRecord(b"a", timestamp=TimestampMs(1)), NewRecord(b"b", timestamp=TimestampMs(2))])
    batch = parked_batch(sent, [5, 6], now=4)
    header = check_batch(batch)
    assert (header.is_control, header.record_count, header.last_offset_delta) == (True, 1, 1)
    fact = fact_of(batch, 0, header)
    assert isinstance(fact, Parked)
    assert bytes(fact.batch) == sent
    assert fact.dues.tolist() == [5, 6]
    carried = carried_batch(decode_batch(sent), [7, 3], [5, -6], codec=Codec.NONE, now=4)
    found = fact_of(carried, 0, check_batch(carried))
    assert isinstance(found, Carried)
    assert (found.ids.tolist(), found.dues.tolist()) == ([7, 3], [5, -6])
    aside = aside_batch(decode_batch(sent), [3, 7], [5, -6], rest=header, codec=Codec.NONE, now=4)
    put = fact_of(aside, 0, check_batch(aside))
    assert isinstance(put, Aside)
    assert (put.ids.tolist(), put.dues.tolist(), put.rest_checksum) == ([3, 7], [5, -6], header.crc)
    assert [each.value for each in decode_batch(put.batch)] == [b"a", b"b"]
