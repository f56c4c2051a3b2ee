"""Idempotent producers of one partition that were told to try again, and what they had sent behind.

A producer sends several batches before the first is answered. When the first is refused and the next ones meet a broker
that could take them by then (its lease came back, replicas are in sync again), they skip sequence numbers through no
fault of their own. Told so, librdkafka begins a new epoch and sends everything again, also what other partitions have
kept: duplicates. So they get the first one's refusal, once each: the producer then sends all of them again, in order.

Invariant: a batch that comes a second time without the one that was refused before it is out of order, and is told so.
Pure; driven by broker/operations/produce.py.
"""

from typing import NamedTuple

from millpond.model.errors import MillpondError
from millpond.model.ids import ProducerId, Sequence
from millpond.protocol.records import BatchHeader

PRODUCERS_MAX = 1_000


class _Refused(NamedTuple):
    error: MillpondError
    newest: Sequence
    """First sequence of the newest batch that was refused."""


class Refusals:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def refused(self, header: BatchHeader, error: MillpondError) -> None:
        """It was the producer's next batch, and shall come again."""
        if header.producer_id < 0:
            return
        self._by_producer.pop(header.producer_id, None)
        while len(self._by_producer) >= PRODUCERS_MAX:
            del self._by_producer[next(iter(self._by_producer))]
        self._by_producer[header.producer_id] = _Refused(error, header.base_sequence)

    def taken(self, header: BatchHeader) -> None:
        self._by_producer.pop(header.producer_id, None)

    def why_out_of_order(self, header: BatchHeader) -> MillpondError | None:
        """The refusal that the batch was sent behind; None where its producer has skipped numbers by itself."""
        known = self._by_producer.get(header.producer_id)
        if known is None or header.base_sequence <= known.newest:
            self._by_producer.pop(header.producer_id, None)
            return None
        self._by_producer[header.producer_id] = known._replace(newest=header.base_sequence)
        return known.error
