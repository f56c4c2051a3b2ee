"""Idempotent producers of one partition: who they are and which sequence numbers they last used.

Invariant: for each producer id, `batches` holds the last five batches of its newest epoch, in sequence; so a batch
that is sent again is known again, with the offset it was first given.
Pure; log.py keeps snapshots of it in `<offset>.producers` documents:
    [[producer id, epoch, [[first sequence, last sequence, first offset, last offset, timestamp], ...]], ...]
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import Any, NamedTuple, cast

from millpond.model.errors import DuplicateSequence, OutOfOrderSequence, StaleProducerEpoch
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.values import dataclass
from millpond.protocol.records import BatchHeader

BATCHES_REMEMBERED = 5
"""As many as a Kafka producer may have in flight with idempotence."""

SEQUENCE_MASK = 0x7FFF_FFFF
"""Sequence numbers wrap from 2**31 - 1 to 0."""


class SequencedBatch(NamedTuple):
    first_sequence: Sequence
    last_sequence: Sequence
    first_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


@dataclass(slots=True)
class Producer:
    epoch: ProducerEpoch
    batches: deque[SequencedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerStates:
    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[ProducerId, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def knows(self, producer_id: ProducerId) -> bool:
        return producer_id in self._producers

    def find_duplicate(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch this one repeats, or None where it is the next in order; raises where it is neither."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # forgotten or new: any first sequence is believed (KIP-360)
        if header.producer_epoch != producer.epoch:
            self._check_new_epoch(header, producer)
            return None
        first, last = header.base_sequence, _last_sequence(header)
        for batch in producer.batches:
            if (batch.first_sequence, batch.last_sequence) == (first, last):
                return batch
        newest = producer.batches[-1].last_sequence
        expected = (newest + 1) & SEQUENCE_MASK
        if first == expected:
            return None
        # Within half the circle behind what is expected: an old batch, too old to know its offset. But while all there
        # were are remembered, it is none of them: a client would take "duplicate" for "kept", and lose it.
        is_old = (expected - first) & SEQUENCE_MASK < SEQUENCE_MASK // 2
        if is_old and len(producer.batches) == BATCHES_REMEMBERED:
            raise DuplicateSequence(
                f"producer {header.producer_id} sent sequences {first} to {last} again; it is at {expected} now, "
                f"and only its last {BATCHES_REMEMBERED} batches are remembered"
            )
        raise OutOfOrderSequence(
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {first}; expected is {expected}"
        )

    @staticmethod
    def _check_new_epoch(header: BatchHeader, producer: Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}; it was replaced by epoch "
                f"{producer.epoch}. Make a new producer, or call InitProducerId"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} began epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence}; a new epoch begins with 0"
            )

    def remember(self, header: BatchHeader, *, base_offset: Offset) -> None:
        """The batch is in the log at `base_offset`."""
        if header.base_sequence < 0:
            return  # control batches carry a producer id without a sequence
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
        last_offset = Offset(base_offset + header.last_offset_delta)
        producer.batches.append(
            SequencedBatch(header.base_sequence, _last_sequence(header), base_offset, last_offset, header.max_timestamp)
        )

    def expire(self, *, before: TimestampMs) -> None:
        """Forgets producers whose last batch is older than `before`."""
        self._producers = {key: each for key, each in self._producers.items() if each.batches[-1].timestamp >= before}

    def newest(self) -> Iterator[tuple[ProducerId, ProducerEpoch, SequencedBatch]]:
        """Each producer with its newest batch."""
        for key, producer in self._producers.items():
            yield key, producer.epoch, producer.batches[-1]

    def last_offset(self, producer_id: ProducerId) -> Offset | None:
        """Of its newest batch; None where it is not known."""
        producer = self._producers.get(producer_id)
        return None if producer is None else producer.batches[-1].last_offset

    def last_offsets(self) -> frozenset[Offset]:
        """Last offset of each producer's newest batch: compaction keeps the headers of these."""
        return frozenset(producer.batches[-1].last_offset for producer in self._producers.values())

    def snapshot(self) -> list[Any]:
        return [[key, each.epoch, [list(batch) for batch in each.batches]] for key, each in self._producers.items()]

    @classmethod
    def restore(cls, snapshot: object) -> "ProducerStates":
        states = cls()
        for key, epoch, batches in cast("list[tuple[int, int, list[list[Any]]]]", snapshot):
            producer = states._producers[ProducerId(key)] = Producer(ProducerEpoch(epoch))
            producer.batches.extend(SequencedBatch(*batch) for batch in batches)
        return states


def _last_sequence(header: BatchHeader) -> Sequence:
    return Sequence((header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK)
