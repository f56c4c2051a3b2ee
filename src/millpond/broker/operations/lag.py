"""Lag: how far groups are behind, in messages and in seconds.

The time is that of the batch at the committed offset, from its header. A log never changes below its end, so what was
looked up once is remembered for as long as somebody's offset stays there.
Invariant: one survey reads the disk at most LOOK_UPS_MAX times and begins no further read after LOOK_UP_NS_MAX, and
lets others have a turn in between; a lag in time that was not looked up is None.
Driven by measure.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.core.groups.lag import Lag, LogFacts
from millpond.model.errors import MillpondError
from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from millpond.protocol.records import parse_header

LOOK_UPS_MAX = 1_000
LOOK_UP_NS_MAX = 50_000_000
LOOK_UPS_PER_TURN = 8
PLACES_PER_TURN = 200

_Place = tuple[Partition, Offset]
"""By the open partition, not by its name: a topic created anew has other records at the same offsets."""


class LagSurvey:
    def __init__(self, node: Node, *, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._node = node
        self._now_ns = now_ns
        self._known: dict[_Place, TimestampMs] = {}

    async def look(self) -> AsyncIterator[tuple[str, tuple[Lag, ...]]]:
        """Each group and its lags, one for each partition it has committed."""
        node, round_ = self._node, _Round(self._known, self._now_ns)
        groups = node.groups
        for group in [each.group for each in groups.listings()]:
            logs: dict[TopicPartition, LogFacts] = {}
            for committed in groups.committed(group):
                partition = node.partitions.named(*committed.at)
                if partition is not None:
                    logs[committed.at] = round_.facts_of(partition, committed.offset)
                    if round_.wants_a_pause:
                        await asyncio.sleep(0)
            yield group, groups.lag(group, logs, wall_ms=node.clock.wall_ms())
        self._known = round_.seen


class _Round:
    """One survey: what it may still read, and what it has seen."""

    def __init__(self, known: dict[_Place, TimestampMs], now_ns: Callable[[], int]) -> None:
        self._known = known
        self._now_ns = now_ns
        self._spent_ns = 0
        self._look_ups = 0
        self._places = 0
        self.seen: dict[_Place, TimestampMs] = {}
        self.wants_a_pause = False

    def facts_of(self, partition: Partition, committed: Offset) -> LogFacts:
        start, end = partition.log.start_offset, partition.high_watermark
        position = max(committed, start)
        self._places += 1
        self.wants_a_pause = self._places % PLACES_PER_TURN == 0
        return LogFacts(start, end, self._timestamp_at(partition, position) if position < end else None)

    def _timestamp_at(self, partition: Partition, position: Offset) -> TimestampMs | None:
        place = (partition, position)
        found = self._known.get(place) or self.seen.get(place)
        if found is None and self._look_ups < LOOK_UPS_MAX and self._spent_ns < LOOK_UP_NS_MAX:
            began_ns = self._now_ns()
            found = _read_timestamp(partition, position)
            self._spent_ns += self._now_ns() - began_ns
            self._look_ups += 1
            self.wants_a_pause |= self._look_ups % LOOK_UPS_PER_TURN == 0
        if found is not None:
            self.seen[place] = found
        return found


def _read_timestamp(partition: Partition, position: Offset) -> TimestampMs | None:
    """None where the batch cannot be read, or carries no time."""
    with suppress(MillpondError):
        header = parse_header(partition.read(position, bytes_max=1).data)
        found = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return found if found != NO_TIMESTAMP else None
    return None
