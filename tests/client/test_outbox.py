"""The outbox against a broker that loses requests, answers and connections, refuses, and changes its mind.

The broker's side is the log's own memory of producers (storage/producers.py): what that refuses, this one refuses.
"""

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.client.batches import Batch, Identity, record_bytes
from millpond.client.outbox import Outbox
from millpond.client.retries import Backoff
from millpond.client.settings import ProducerSettings
from millpond.model.errors import BrokerUnreachable, DeliveryTimedOut, InvalidRecord, MillpondError, RequestError
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord, check_batch, decode_batch
from millpond.storage.producers import ProducerStates

AT = TopicPartition("t", 0)
NODE = 1
NOT_LEADER, NOT_ENOUGH, NOT_ENOUGH_AFTER, TOO_LARGE, INVALID = 6, 19, 20, 10, 87


class Log:
    """One partition, as its leader keeps it."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.producers = ProducerStates()

    def append(self, data: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        header = check_batch(data)
        try:
            duplicate = self.producers.find_duplicate(header) if header.producer_id >= 0 else None
        except RequestError as error:
            return error.kafka_code, -1
        if duplicate is not None:
            return 0, duplicate.first_offset
        base = len(self.values)
        self.values += [each.value for each in decode_batch(data)]
        if header.producer_id >= 0:
            self.producers.remember(header, base_offset=Offset(base))
        return 0, base


class World:
    def __init__(self, **given_settings: object) -> None:
        self.settings = ProducerSettings(delivery_seconds_max=1000, **given_settings)  # type: ignore[arg-type]
        self.outbox = Outbox(self.settings, backoff=Backoff(), rng=random.Random(0))
        self.log = Log()
        self.now = 0.0
        self.requests: deque[tuple[Batch, bytes]] = deque()
        self.answers: deque[tuple[Batch, int, int]] = deque()
        self.sent: list[tuple[bytes, Batch, int]] = []
        self.ids = 0

    def send(self, size: int = 3) -> None:
        value = b"%0*d" % (size, len(self.sent))
        record = NewRecord(value, None, TimestampMs(0))
        batch, place = self.outbox.add(AT, record, record_bytes(value, None, ()), now=self.now)
        self.sent.append((value, batch, place))
        self.drain()

    def drain(self) -> None:
        while True:
            taken = self.outbox.take(now=self.now, leader_of=lambda at: NODE)
            if taken.wants_identity:
                self.ids += 1
                self.outbox.identity = Identity(ProducerId(self.ids), ProducerEpoch(0))
            for batch in taken.by_node.get(NODE, []):
                assert batch.encoded is not None
                self.requests.append((batch, batch.encoded))
            if not taken.by_node and not taken.wants_identity:
                return

    def process(self, refuse: int = 0) -> None:
        """The broker takes the next request, or refuses it before or after it is appended."""
        if not self.requests:
            return
        batch, data = self.requests.popleft()
        if refuse == TOO_LARGE and batch.count == 1:
            refuse = 0
        if refuse in (NOT_LEADER, NOT_ENOUGH, TOO_LARGE, INVALID):
            self.answers.append((batch, refuse, -1))
            return
        code, base = self.log.append(data)
        self.answers.append((batch, code or refuse, base))

    def answer(self) -> None:
        if not self.answers:
            return
        batch, code, base = self.answers.popleft()
        if code == 0:
            self.outbox.accepted(batch, base_offset=base, now=self.now)
        else:
            self.outbox.refused(batch, code, None, now=self.now)
        self.drain()

    def lose_connection(self) -> None:
        """Whatever is on it, either way, is gone; no answer says whether it was appended."""
        lost = [each[0] for each in self.answers] + [each[0] for each in self.requests]
        self.requests.clear()
        self.answers.clear()
        for batch in lost:
            self.outbox.failed(batch, BrokerUnreachable("gone"), now=self.now)
        self.drain()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.drain()

    def calm(self) -> None:
        self.outbox.seal()
        for _ in range(10_000):
            self.pass_time(2)
            while self.requests:
                self.process()
            while self.answers:
                self.answer()
            if all(batch.outcome is not None for _, batch, _ in self.sent):
                return
        raise AssertionError("it never ends")

    def check(self) -> None:
        log = self.log.values
        assert len(set(log)) == len(log), "something is there twice"
        assert log == sorted(log, key=lambda value: int(value or b"")), "out of order"
        for value, batch, place in self.sent:
            outcome = batch.outcome_of(place)
            if outcome.error is None:
                offset = outcome.base_offset
                assert log[offset] == value if offset >= 0 else value in log
        assert self.outbox.buffered_bytes == 0


EVENTS = st.lists(
    st.one_of(
        st.sampled_from(["send", "send", "process", "process", "answer", "answer", "lose", "wait"]),
        st.sampled_from([NOT_LEADER, NOT_ENOUGH, NOT_ENOUGH_AFTER, TOO_LARGE, INVALID]),
    ),
    max_size=120,
)


@given(EVENTS, st.integers(1, 5), st.sampled_from([30, 90, 4000]), st.sampled_from([0.0, 100.0]))
@settings(max_examples=400)
def test_whatever_happens_each_message_is_there_once_and_in_order(
    events: list[str | int], in_flight: int, batch_bytes: int, linger_ms: float
) -> None:
    world = World(in_flight_max=in_flight, batch_bytes=61 + batch_bytes, linger_ms=linger_ms)
    for event in events:
        match event:
            case "send":
                world.send()
            case "process":
                world.process()
            case "answer":
                world.answer()
            case "lose":
                world.lose_connection()
            case "wait":
                world.pass_time(1)
            case int():
                world.process(refuse=event)
    world.calm()
    world.check()
    refused = [batch.outcome.error for _, batch, _ in world.sent if batch.outcome and batch.outcome.error]
    assert all(isinstance(error, InvalidRecord) for error in refused)


def test_a_lone_message_leaves_at_once_and_the_next_ones_travel_together() -> None:
    world = World()
    world.send()
    assert [batch.count for batch, _ in world.requests] == [1]
    for _ in range(5):
        world.send()
    assert len(world.requests) == 1
    world.process()
    world.answer()
    assert [batch.count for batch, _ in world.requests] == [5]


def test_lingering_gathers_what_comes_in_time() -> None:
    world = World(linger_ms=10)
    world.send()
    world.send()
    taken = world.outbox.take(now=0.0, leader_of=lambda at: NODE)
    assert not taken.by_node
    assert taken.wake_at == 0.01
    world.pass_time(0.01)
    assert [batch.count for batch, _ in world.requests] == [2]


def test_full_batches_do_not_wait_for_each_other_up_to_five() -> None:
    world = World(batch_bytes=61)
    world.send()
    world.process()
    world.answer()
    for _ in range(8):
        world.send()
    assert len(world.requests) == 5


def test_nothing_follows_the_first_batch_of_a_producer_before_it_is_acknowledged() -> None:
    world = World(batch_bytes=61)
    world.send()
    world.send()
    assert len(world.requests) == 1
    world.process(refuse=NOT_ENOUGH)
    world.calm()
    world.check()


def test_what_is_too_large_together_goes_in_halves() -> None:
    world = World(linger_ms=1000)
    for _ in range(7):
        world.send()
    world.pass_time(2)
    world.process(refuse=TOO_LARGE)
    world.answer()
    assert [batch.count for batch, _ in world.requests] == [3]
    world.calm()
    world.check()
    assert [batch.outcome_of(place).base_offset for _, batch, place in world.sent] == list(range(7))


def test_a_message_whose_time_is_over_says_so_and_why() -> None:
    world = World()
    world.send()
    world.lose_connection()
    world.pass_time(0.001)
    world.pass_time(2000)
    _, batch, _ = world.sent[0]
    world.lose_connection()
    world.pass_time(2)
    assert batch.outcome is not None
    error = batch.outcome.error
    assert isinstance(error, DeliveryTimedOut)
    assert "t-0: not acknowledged within 1000 s, it may have been written all the same; the last try: gone" in str(
        error
    )
    assert world.outbox.buffered_bytes == 0


def test_a_batch_that_cannot_be_written_takes_no_other_with_it() -> None:
    world = World(batch_bytes=61)
    batch, _ = world.outbox.add(AT, NewRecord(b"", None, TimestampMs(2**63)), 30, now=0.0)
    world.send()
    world.calm()
    world.check()
    assert batch.outcome is not None
    assert isinstance(batch.outcome.error, MillpondError)


def test_without_idempotence_nothing_is_numbered() -> None:
    world = World(acks="leader")
    world.send()
    _, data = world.requests[0]
    assert check_batch(data).producer_id == -1
    world.calm()
    world.check()


@pytest.mark.parametrize("failures", [1, 2, 5, 40])
def test_pauses_grow_and_are_drawn_from_their_upper_half(failures: int) -> None:
    longest = min(1.0, 0.05 * 2 ** (failures - 1))
    drawn = [Backoff().pause(failures, random.Random(seed)) for seed in range(50)]
    assert longest / 2 <= min(drawn) < max(drawn) <= longest
