"""Which ready message comes next: by offset within a lane, among lanes by priority.

Strict: high before normal before low. Weighted: by turns, so many of each. In both, a lane whose first message has
waited too long goes first, so that nothing starves.
Pure; part of the ledger.
"""

from bisect import bisect_right
from typing import Final

from msgspec import Struct

from millpond.core.delivery.runs import Runs
from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import LANES, Lane

WEIGHTS: Final = {Lane.HIGH: 6, Lane.NORMAL: 3, Lane.LOW: 1}
MARK_EVERY_MS: Final = 100
MARKS_MAX: Final = 10_000
"""With more, every other one is forgotten: ages become rough."""


class Offer(Struct, frozen=True, gc=False):
    first: int
    last: int
    lane: Lane


class Lanes:
    def __init__(self, settings: DeliverySettings) -> None:
        self._settings = settings
        self._runs: tuple[Runs[None], ...] = tuple(Runs() for _ in LANES)
        """By lane."""
        self._credit = dict(WEIGHTS)
        self._marked: list[int] = []
        self._marks_ms: list[int] = []
        """Offsets, and when about they were written: for the age of what waits."""

    @property
    def size(self) -> int:
        high, normal, low = self._runs
        return high.size + normal.size + low.size

    @property
    def runs(self) -> int:
        return sum(len(runs) for runs in self._runs)

    def depth(self, lane: Lane) -> int:
        return self._runs[lane].size

    def size_within(self, first: int, last: int) -> int:
        return sum(len(run) for runs in self._runs for run in runs.overlapping(first, last))

    def add(self, first: int, last: int, lane: Lane) -> None:
        self._runs[lane].set(first, last, None)

    def remove(self, first: int, last: int) -> None:
        for runs in self._runs:
            if runs.size:
                runs.clear(first, last)

    def mark(self, offset: int, written_wall_ms: int, *, start: int) -> None:
        """Nobody asks for what is before `start` any more."""
        if not self._marked or (offset > self._marked[-1] and written_wall_ms >= self._marks_ms[-1] + MARK_EVERY_MS):
            self.forget_marks(start)
            if len(self._marked) >= MARKS_MAX:
                del self._marked[1::2], self._marks_ms[1::2]
            self._marked.append(offset)
            self._marks_ms.append(written_wall_ms)

    def forget_marks(self, before: int) -> None:
        spent = bisect_right(self._marked, before) - 1
        if spent > 0:
            del self._marked[:spent], self._marks_ms[:spent]

    def next(self, *, wall_ms: int) -> Offer | None:
        """Not taken yet: `take` says that it was."""
        high, normal, low = self._runs
        if not high.size and not low.size:  # as in most queues
            if not normal.size:
                return None
            first, last = normal.first()
            return Offer(first, last, Lane.NORMAL)
        filled = [lane for lane in LANES if self._runs[lane].size]
        if not filled:
            return None
        lane = self._pick(filled, wall_ms) if len(filled) > 1 else filled[0]
        first, last = self._runs[lane].first()
        if self._settings.priority is Priority.WEIGHTED and len(filled) > 1:
            last = min(last, first + max(1, self._credit[lane]) - 1)
        return Offer(first, last, lane)

    def take(self, first: int, last: int, lane: Lane) -> None:
        """What was offered, or the first of it."""
        self._runs[lane].clear(first, last)
        if self._settings.priority is Priority.WEIGHTED:
            self._credit[lane] -= last - first + 1

    def _pick(self, filled: list[Lane], wall_ms: int) -> Lane:
        oldest = min(filled, key=self._first_offset)
        if wall_ms - self._written(self._first_offset(oldest)) > self._settings.priority_age_ms_max:
            return oldest
        if self._settings.priority is Priority.STRICT:
            return filled[0]
        if all(self._credit[lane] <= 0 for lane in filled):
            self._credit = dict(WEIGHTS)
        return next(lane for lane in filled if self._credit[lane] > 0)

    def _first_offset(self, lane: Lane) -> int:
        lowest = self._runs[lane].lowest
        assert lowest is not None
        return lowest

    def _written(self, offset: int) -> int:
        index = bisect_right(self._marked, offset) - 1
        return self._marks_ms[max(index, 0)] if self._marks_ms else 0
