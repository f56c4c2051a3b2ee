"""Messages of one queue that outlive their time while nobody comes for them.

Who takes messages meets those that have expired, and leaves them out. Here it is looked for the others every few
seconds, so that they are counted, and kept as dead letters where that is wished. A batch is looked at once, and then
when the first of its messages is due.

Invariant: of every batch below `_looked_to` that holds messages which are not done and whose time will end, the first
such end is in `_ends`.
Driven by queue_partition.py.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_reader import batches_in
from millpond.core.delivery.headers import expires_ms, mentioned
from millpond.core.delivery.ledger import Ledger
from millpond.model.ids import Offset
from millpond.model.limits import KIB
from millpond.model.ports import Clock
from millpond.protocol.records import decode_batch

PIECE_BYTES: Final = 64 * KIB
"""What is looked at in one go, before others have their turn."""
BATCHES_MAX: Final = 10_000
"""So many wait for their time; what comes after them is looked at when some are through."""
RUNS_MAX: Final = 10_000
"""A ledger with more runs is left alone: each message that expires between others may make one more."""
AGAIN_MS: Final = 10_000
"""A message that somebody has, or that is behind another of its key, is looked at again after so long."""


class QueueExpiry:
    def __init__(self, partition: Partition, ledger: Ledger, clock: Clock, *, ttl_ms_max: int) -> None:
        self._partition = partition
        self._ledger = ledger
        self._clock = clock
        self._ttl_ms_max = ttl_ms_max
        self._looked_to = 0
        self._ends: list[tuple[int, int]] = []
        """When, by the wall clock, and the base offset of which batch."""

    def look_further(self) -> bool:
        """At a piece of what has come since; False where there is nothing, or too much to keep in mind."""
        at = max(self._looked_to, self._ledger.start, self._partition.log.start_offset)
        if at >= self._partition.high_watermark or len(self._ends) >= BATCHES_MAX:
            return False
        part = self._partition.read(Offset(at), bytes_max=PIECE_BYTES)
        for content, header in batches_in(part.data):
            if mentioned(content, header).ttl:
                ends_ms = [expires_ms(record, ttl_ms_max=self._ttl_ms_max) for record in decode_batch(content)]
                self._note(header.base_offset, [each for each in ends_ms if each is not None])
        self._looked_to = part.next_offset
        return part.next_offset > at

    @property
    def is_due(self) -> bool:
        return bool(self._ends) and self._ends[0][0] <= self._clock.wall_ms() and self._ledger.runs < RUNS_MAX

    def expire_next(self) -> None:
        """What is due of the batch that was due first."""
        _, base = heappop(self._ends)
        at = max(base, self._ledger.start, self._partition.log.start_offset)
        if at >= self._partition.high_watermark:
            return
        content, header = next(batches_in(self._partition.read(Offset(at), bytes_max=1).data))
        ledger, wall_ms = self._ledger, self._clock.wall_ms()
        left: list[int] = []
        for record in decode_batch(content):
            end_ms = expires_ms(record, ttl_ms_max=self._ttl_ms_max)
            if end_ms is None or ledger.is_done(record.offset):
                continue
            if end_ms > wall_ms:
                left.append(end_ms)
            elif ledger.may_expire(record.offset):
                ledger.expire(record.offset)
            else:
                left.append(wall_ms + AGAIN_MS)
        self._note(header.base_offset, left)

    def _note(self, base: int, ends_ms: Sequence[int]) -> None:
        if ends_ms:
            heappush(self._ends, (min(ends_ms), base))
