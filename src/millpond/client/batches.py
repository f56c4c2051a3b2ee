"""A batch of messages on its way to one partition, from the first message to its acknowledgement.

Invariant: a batch that has been sent keeps its producer id and sequence until the broker has said that it is not in the
log; only then may it become another batch. Its outcome is set once, and then whoever waits is called.
Pure. Driven by outbox.py.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from millpond.model.errors import MillpondError
from millpond.model.ids import NO_PRODUCER, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.records import Codec, NewRecord, decode_batch, encode_batch, encode_values, stamp_producer

RECORD_BYTES_EXTRA: Final = 24
"""What a small record takes besides its key, value and headers, at most."""
BATCH_BYTES_EXTRA: Final = 61
HEADER_BYTES_EXTRA: Final = 10
UNKNOWN_OFFSET: Final = Offset(-1)
SEQUENCE_MASK: Final = 0x7FFF_FFFF
"""Sequence numbers wrap from 2**31 - 1 to 0."""


class Identity(NamedTuple):
    producer_id: ProducerId
    epoch: ProducerEpoch


NO_IDENTITY: Final = Identity(NO_PRODUCER, ProducerEpoch(-1))


class Numbered(NamedTuple):
    """Whose batch it is, and which of theirs."""

    identity: Identity
    sequence: SequenceNumber


class Outcome(NamedTuple):
    base_offset: Offset
    """UNKNOWN_OFFSET where nobody said: without acknowledgements."""
    append_time: TimestampMs
    error: MillpondError | None = None


class Batch:
    """Either of records, or of values alone: those are encoded many times faster."""

    __slots__ = (
        "at", "count", "created", "encoded", "expires", "failures", "halves", "is_failed", "is_sealed", "numbered",
        "outcome", "records", "refusal", "size", "timestamp", "values", "waiters",
    )  # fmt: skip

    def __init__(self, at: TopicPartition, *, now: float, expires: float) -> None:
        self.at = at
        self.created = now
        self.expires = expires
        self.records: list[NewRecord] = []
        self.values: Sequence[bytes] = ()
        self.timestamp = TimestampMs(-1)
        """Of all, where there are only values."""
        self.count = 0
        self.size = BATCH_BYTES_EXTRA
        """In bytes, before compression; a little more than it will be."""
        self.is_sealed = False
        """Takes no more messages."""
        self.encoded: bytes | None = None
        self.numbered: Numbered | None = None
        self.failures = 0
        self.is_failed = False
        """To be sent again, when all that was sent beside it is answered too."""
        self.refusal: MillpondError | None = None
        """What went wrong last, if the next try is to come to nothing either."""
        self.outcome: Outcome | None = None
        self.halves: tuple[Batch, Batch] | None = None
        """What it was split into."""
        self.waiters: list[Callable[[Outcome], None]] = []

    @classmethod
    def of_values(
        cls,
        at: TopicPartition,
        values: Sequence[bytes],
        *,
        size: int,
        timestamp: TimestampMs,
        now: float,
        expires: float,
    ) -> "Batch":
        batch = cls(at, now=now, expires=expires)
        batch.values, batch.count, batch.timestamp, batch.is_sealed = values, len(values), timestamp, True
        batch.size += size
        return batch

    @classmethod
    def of_records(
        cls, at: TopicPartition, records: list[NewRecord], *, size: int, now: float, expires: float
    ) -> "Batch":
        batch = cls(at, now=now, expires=expires)
        batch.records, batch.count, batch.is_sealed = records, len(records), True
        batch.size += size
        return batch

    # On the wire

    def encode(self, numbered: Numbered | None, codec: Codec) -> bytes:
        """The bytes to send: made at the first try, and anew only under another number."""
        if self.encoded is None:
            (producer_id, epoch), sequence = numbered or Numbered(NO_IDENTITY, SequenceNumber(-1))
            if self.values:
                self.encoded = encode_values(
                    self.values,
                    timestamp=self.timestamp,
                    codec=codec,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                )
            else:
                self.encoded = encode_batch(
                    self.records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
                )
            self.values, self.records = (), []
        elif numbered is not None and numbered != self.numbered:
            changed = bytearray(self.encoded)
            (producer_id, epoch), sequence = numbered
            stamp_producer(changed, producer_id=producer_id, epoch=epoch, base_sequence=sequence)
            self.encoded = bytes(changed)
        self.numbered = numbered
        return self.encoded

    def split(self) -> "tuple[Batch, Batch]":
        """Two batches instead of one that is too large; together they have its numbers."""
        assert self.encoded is not None
        assert self.count > 1
        records = [NewRecord(each.value, each.key, each.timestamp, each.headers) for each in decode_batch(self.encoded)]
        middle = self.count // 2
        self.halves = halves = (self._part(records[:middle], start=0), self._part(records[middle:], start=middle))
        halves[0].size = self.size // 2
        halves[1].size = self.size - halves[0].size
        for half in halves:
            half.waiters.append(self._half_done)
        return halves

    def _part(self, records: list[NewRecord], *, start: int) -> "Batch":
        part = Batch.of_records(self.at, records, size=0, now=self.created, expires=self.expires)
        part.failures, part.is_failed = self.failures, True
        if self.numbered is not None:
            identity, sequence = self.numbered
            part.numbered = Numbered(identity, SequenceNumber((sequence + start) & SEQUENCE_MASK))
        return part

    def _half_done(self, outcome: Outcome) -> None:
        assert self.halves is not None
        outcomes = [half.outcome for half in self.halves]
        if None not in outcomes:
            self.finish(next((each for each in outcomes if each and each.error), outcome))

    def outcome_of(self, place: int) -> Outcome:
        """Of one message, once the batch is done; its offset is the message's own."""
        if self.halves is not None:
            first, second = self.halves
            return first.outcome_of(place) if place < first.count else second.outcome_of(place - first.count)
        assert self.outcome is not None, "not done yet: await it, or look at is_done first"
        base = self.outcome.base_offset
        return self.outcome if base == UNKNOWN_OFFSET else self.outcome._replace(base_offset=Offset(base + place))

    def parts(self) -> "list[Batch]":
        """What it was sent as: itself, or what it was split into."""
        return [self] if self.halves is None else [part for half in self.halves for part in half.parts()]

    def finish(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.values, self.records, self.encoded = (), [], None
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                waiter(outcome)


def record_bytes(value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """What a record counts for, a little more than it will take."""
    size = RECORD_BYTES_EXTRA
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in headers:
        size += HEADER_BYTES_EXTRA + len(name) * 4 + (0 if content is None else len(content))
    return size
