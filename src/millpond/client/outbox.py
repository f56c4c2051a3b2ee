"""Messages on their way out: gathered into batches, numbered, sent in order, sent again where that is needed.

Each partition is a lane. The batch at the head of a lane goes when it is full, when it has lingered long enough or,
where no lingering was asked for, as soon as nothing of its partition is on its way: so a lone message leaves at once,
and under load batches grow by themselves. Up to `in_flight_max` batches of a lane are on their way; when one comes back
refused, no more are sent until all are answered, and then the failed ones go again, in their order.

With idempotence a batch has a producer id and a sequence number, which the broker checks. Four rules keep that true:

    a batch keeps its number until the broker has refused it for being out of order with nothing before it pending: then
    it is certainly not in the log, and may get a new number under a new producer id
    batches under two producer ids are never on their way together, or the second could pass the first
    a broker that does not know a producer id, or no longer, believes the first number it sees: so the second batch
    under an id waits for the first to be acknowledged, or it could be taken where the first was refused
    a batch that failed for good leaves a gap; what comes after it goes under a new producer id

Invariants: what is acknowledged is in the log once; messages of one partition are in the order they were sent;
`buffered_bytes` is what is neither acknowledged nor failed.
Pure: the caller passes `now` and the leaders, sends what `take` gives, and tells what came of it. Driven by sender.py.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import field

from millpond.client.batches import SEQUENCE_MASK, UNKNOWN_OFFSET, Batch, Identity, Numbered, Outcome
from millpond.client.refusals import RETRIED_CODES, refusal
from millpond.client.retries import Backoff
from millpond.client.settings import ProducerSettings
from millpond.model.errors import DeliveryTimedOut, MillpondError
from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.model.ids import Sequence as SequenceNumber
from millpond.model.ports import Rng
from millpond.model.values import dataclass
from millpond.protocol.records import NewRecord

MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER_CODES = frozenset({45, 46, 47, 59})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID: this number
will never do. A duplicate is one: a number before all that the broker remembers, and it remembers as many
batches as can be on their way, so it did not take this one."""

NEVER = float("-inf")
MEMORY_SECONDS = 60.0
"""Brokers remember a producer for far longer than this after its last batch."""


@dataclass(slots=True)
class Lane:
    at: TopicPartition
    queue: deque[Batch] = field(default_factory=deque)
    out: list[Batch] = field(default_factory=list)
    """Sent, and not done: in the order sent."""
    not_before: float = 0.0
    identity: Identity | None = None
    next_sequence: int = 0
    known_until: float = NEVER
    """So long the broker certainly remembers the producer id."""

    @property
    def is_settling(self) -> bool:
        return any(each.is_failed for each in self.out)


@dataclass(slots=True)
class Taken:
    """What is to be done now."""

    by_node: dict[int, list[Batch]] = field(default_factory=dict)
    """To be sent, each batch encoded; at most one of a partition."""
    wants_identity: bool = False
    wake_at: float | None = None


class Outbox:
    def __init__(self, settings: ProducerSettings, *, backoff: Backoff, rng: Rng) -> None:
        self.identity: Identity | None = None
        """Given by a broker; None until then, and when the last one has had its day."""
        self.buffered_bytes = 0
        self.trouble: MillpondError | None = None
        """What keeps the driver from sending at all, for those whose time runs out meanwhile."""
        self._settings = settings
        self._linger = settings.linger_ms / 1000
        self._backoff = backoff
        self._rng = rng
        self._lanes: dict[TopicPartition, Lane] = {}
        self._waiting: dict[TopicPartition, Lane] = {}
        """Lanes with something in their queue."""

    # In

    def add(self, at: TopicPartition, record: NewRecord, size: int, *, now: float) -> tuple[Batch, int]:
        """Into the open batch of the partition, or a new one; the batch, and the record's place in it."""
        lane = self._lanes.get(at) or self._new_lane(at)
        queue = lane.queue
        batch = queue[-1] if queue else None
        if batch is None or batch.is_sealed or batch.size + size > self._settings.batch_bytes:
            if batch is not None:
                batch.is_sealed = True
            batch = Batch(at, now=now, expires=now + self._settings.delivery_seconds_max)
            self.buffered_bytes += batch.size
            queue.append(batch)
            self._waiting[at] = lane
        batch.records.append(record)
        batch.size += size
        self.buffered_bytes += size
        place = batch.count
        batch.count = place + 1
        return batch, place

    def add_batch(self, batch: Batch) -> None:
        """Behind all that was added to its partition before."""
        lane = self._lanes.get(batch.at) or self._new_lane(batch.at)
        if lane.queue:
            lane.queue[-1].is_sealed = True
        lane.queue.append(batch)
        self._waiting[batch.at] = lane
        self.buffered_bytes += batch.size

    def is_open(self, at: TopicPartition) -> bool:
        """Whether there is a batch that the next message would join."""
        lane = self._lanes.get(at)
        return lane is not None and bool(lane.queue) and not lane.queue[-1].is_sealed

    def seal(self) -> list[Batch]:
        """Nothing lingers any more; all batches that are not done."""
        for lane in self._waiting.values():
            lane.queue[-1].is_sealed = True
        return [batch for lane in self._lanes.values() for batch in (*lane.out, *lane.queue)]

    def _new_lane(self, at: TopicPartition) -> Lane:
        lane = self._lanes[at] = Lane(at)
        return lane

    # Out

    def take(self, *, now: float, leader_of: Callable[[TopicPartition], int | None]) -> Taken:
        taken = Taken()
        for at, lane in list(self._waiting.items()):
            self._expire(lane, now)
            wake_at = self._wait_of(lane, now)
            if wake_at is None and lane.queue:
                node = leader_of(at)
                if node is not None and self._number(lane, taken):
                    taken.by_node.setdefault(node, []).append(self._depart(lane))
                    wake_at = self._wait_of(lane, now)
                    if wake_at is None:
                        wake_at = now
            if not lane.queue:
                del self._waiting[at]
                continue
            expires = lane.queue[0].expires
            wake_at = expires if wake_at is None else min(wake_at, expires)
            taken.wake_at = wake_at if taken.wake_at is None else min(taken.wake_at, wake_at)
        return taken

    def _wait_of(self, lane: Lane, now: float) -> float | None:
        """Until when the head of the lane waits, for ever where only an answer can end that; None if it may go."""
        if not lane.queue or len(lane.out) >= self._settings.in_flight_max or lane.is_settling:
            return float("inf")
        if now < lane.not_before:
            return lane.not_before
        if lane.out and self._settings.is_idempotent and now > lane.known_until:
            return float("inf")
        batch = lane.queue[0]
        if lane.out and batch.numbered is not None and batch.numbered.identity != self._identity_out(lane):
            return float("inf")
        if lane.out and batch.numbered is None and lane.identity != self._identity_out(lane):
            return float("inf")
        if batch.is_sealed:
            return None
        if self._linger:
            due = batch.created + self._linger
            return None if now >= due else due
        return float("inf") if lane.out else None

    @staticmethod
    def _identity_out(lane: Lane) -> Identity | None:
        numbered = lane.out[-1].numbered
        return None if numbered is None else numbered.identity

    def _number(self, lane: Lane, taken: Taken) -> bool:
        """Gives the head of the lane its number and its bytes; False where there is no producer id, or no bytes."""
        batch = lane.queue[0]
        numbered = batch.numbered
        is_new = self._settings.is_idempotent and numbered is None
        if is_new:
            if lane.identity is None:
                if self.identity is None:
                    taken.wants_identity = True
                    return False
                lane.identity, lane.next_sequence, lane.known_until = self.identity, 0, NEVER
            numbered = Numbered(lane.identity, SequenceNumber(lane.next_sequence))
        try:
            batch.encode(numbered, self._settings.codec)
        except MillpondError as error:
            lane.queue.popleft()
            self._finish(batch, Outcome(UNKNOWN_OFFSET, TimestampMs(-1), error))
            return False
        if is_new:
            lane.next_sequence = (lane.next_sequence + batch.count) & SEQUENCE_MASK
        return True

    @staticmethod
    def _depart(lane: Lane) -> Batch:
        batch = lane.queue.popleft()
        batch.is_sealed = True
        lane.out.append(batch)
        return batch

    def _expire(self, lane: Lane, now: float) -> None:
        while lane.queue and lane.queue[0].expires <= now:
            batch = lane.queue.popleft()
            trouble = batch.refusal or self.trouble
            last = f"; the last try: {trouble}" if trouble else ""
            sent = "it may have been written all the same" if batch.failures else "it was never written"
            seconds = self._settings.delivery_seconds_max
            self._finish(
                batch,
                Outcome(
                    UNKNOWN_OFFSET,
                    TimestampMs(-1),
                    DeliveryTimedOut(f"{batch.at}: not acknowledged within {seconds:g} s, {sent}{last}"),
                ),
            )

    # What came of it

    def accepted(self, batch: Batch, *, base_offset: int, append_time: int = -1, now: float) -> None:
        lane = self._lanes[batch.at]
        if batch.numbered is not None and batch.numbered.identity == lane.identity:
            lane.known_until = now + MEMORY_SECONDS
        lane.out.remove(batch)
        self._finish(batch, Outcome(Offset(base_offset), TimestampMs(append_time)))
        self._settle(lane)

    def refused(self, batch: Batch, code: int, reason: str | None, *, now: float) -> None:
        """The broker's word on it."""
        lane = self._lanes[batch.at]
        if code in OUT_OF_ORDER_CODES and batch.numbered is not None:
            self._out_of_order(lane, batch)
        elif code == MESSAGE_TOO_LARGE and batch.count > 1:
            place = lane.out.index(batch)
            lane.out[place : place + 1] = batch.split()
            self._settle(lane)
        elif code in RETRIED_CODES:
            self.failed(batch, refusal(code, reason, of=str(batch.at)), now=now)
        else:
            lane.out.remove(batch)
            if batch.numbered is not None:
                self._retire(lane, batch.numbered.identity)
            self._finish(batch, Outcome(UNKNOWN_OFFSET, TimestampMs(-1), refusal(code, reason, of=str(batch.at))))
            self._settle(lane)

    def failed(self, batch: Batch, error: MillpondError, *, now: float) -> None:
        """No answer, or one that asks for another try: it may be in the log, or not."""
        lane = self._lanes[batch.at]
        batch.is_failed = True
        batch.failures += 1
        batch.refusal = error
        lane.not_before = max(lane.not_before, now + self._backoff.pause(batch.failures, self._rng))
        self._settle(lane)

    def _out_of_order(self, lane: Lane, batch: Batch) -> None:
        assert batch.numbered is not None
        identity = batch.numbered.identity
        before = lane.out[: lane.out.index(batch)]
        if not any(each.numbered is not None and each.numbered.identity == identity for each in before):
            batch.numbered = None
            self._retire(lane, identity)
        batch.is_failed = True
        self._settle(lane)

    def _retire(self, lane: Lane, identity: Identity) -> None:
        """Nothing new goes to this partition under that producer id: its numbers there are no longer known."""
        if lane.identity == identity:
            lane.identity = None
        if self.identity == identity:
            self.identity = None

    def _settle(self, lane: Lane) -> None:
        """Once all that was sent is answered, what failed goes back to the head of the queue."""
        if lane.out and all(each.is_failed for each in lane.out):
            for batch in reversed(lane.out):
                batch.is_failed = False
                lane.queue.appendleft(batch)
            lane.out.clear()
            self._waiting[lane.at] = lane

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        self.buffered_bytes -= batch.size
        batch.finish(outcome)

    def fail_everything(self, error: MillpondError) -> None:
        """The producer ends: what is not done never will be."""
        for lane in self._lanes.values():
            for batch in (*lane.out, *lane.queue):
                self._finish(batch, Outcome(UNKNOWN_OFFSET, TimestampMs(-1), error))
            lane.queue.clear()
            lane.out.clear()
        self._waiting.clear()
