"""Idempotent producers of one partition that were told to try again, and what they had sent behind.

A producer sends several batches before the first is answered. When the first is refused and the next ones meet a broker
that could take them by then (its lease came back, replicas are in sync again), they would leave a gap through no fault
of their own. Told so, librdkafka begins a new epoch and sends everything again, also what other partitions have kept:
duplicates. And where the producer is new to the log, the gap would not even be seen: the first batch, sent again, would
be taken for an old one, and be lost. So what comes behind gets the first one's refusal, once each; the producer then
sends all of them again, in order.

A leader that has just begun has not seen what the one before it refused, nor what it refused itself before it knew of
the partition, and librdkafka may send what comes behind to it first. So a producer's first gap there is forgiven, and
so is a beginning that is none, of a producer it does not know: the batch is refused once, as if it had come behind one.
A producer that was only forgotten sends it again, and is believed.

Invariant: no batch that was sent behind a refused one is taken before it. One that comes a second time without it is
for the log to judge: its producer has given the first one up.
Pure; driven by broker/operations/produce.py.
"""

from typing import NamedTuple

from millpond.model.errors import MillpondError
from millpond.model.ids import ProducerEpoch, ProducerId, Sequence
from millpond.model.recent import Recent
from millpond.protocol.records import BatchHeader

PRODUCERS_MAX = 1_000


class _Refused(NamedTuple):
    error: MillpondError
    epoch: ProducerEpoch
    newest: Sequence
    """First sequence of the last batch that was refused."""


class Refusals:
    __slots__ = ("_by_producer", "_gaps")

    def __init__(self) -> None:
        self._by_producer: Recent[ProducerId, _Refused] = Recent(count_max=PRODUCERS_MAX)
        self._gaps: Recent[ProducerId, tuple[ProducerEpoch, Sequence]] = Recent(count_max=PRODUCERS_MAX)
        """The newest that was forgiven: the first sequence behind it."""

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def refused(self, header: BatchHeader, error: MillpondError) -> None:
        """The batch shall come again."""
        if header.producer_id < 0 or self.why_not_yet(header) is not None:
            return
        error = error.with_traceback(None)  # which would hold the batch
        refused = _Refused(error, header.producer_epoch, header.base_sequence)
        self._by_producer.remember(header.producer_id, refused)

    def why_not_yet(self, header: BatchHeader) -> MillpondError | None:
        """The refusal that the batch was sent behind; None where it may be taken."""
        known = self._by_producer.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch == known.epoch and header.base_sequence > known.newest:
            self._by_producer[header.producer_id] = known._replace(newest=header.base_sequence)
            return known.error
        del self._by_producer[header.producer_id]
        return None

    def forgives(self, header: BatchHeader, error: MillpondError) -> bool:
        """Whether a batch that leaves a gap is refused with this error, for now; once, then the gap is one."""
        gap = header.producer_epoch, header.base_sequence
        if header.producer_id in self._gaps and self._gaps[header.producer_id] >= gap:
            return False
        self._gaps.remember(header.producer_id, gap)
        self.refused(header, error)
        return True
