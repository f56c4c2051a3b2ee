"""The delayed messages of one partition that are not delivered yet: when they are due, and where their records lie.

A message is a row of three numbers: its id (the offset its producer was told), when it is due (negative for a schedule,
0 once it is done with), and the offset of the control batch that holds its record. Rows are in order of ids, in arrays;
together with its place on the wheel a message takes 40 bytes.

Invariant: the rows are what the facts of the log, applied one after another, come to; nothing else changes them. So a
leader that restarts, or the next one, knows the same.
Pure: `now` is wall-clock milliseconds. Driven by broker/drivers/delays.py: `apply` for every fact in the log, oldest
first, `wind` until it is done, and then `due`.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import compress
from typing import Final, NamedTuple

from millpond.core.delivery.parked_format import (
    Cancelled,
    Carried,
    CheckpointPart,
    Fact,
    Moved,
    Numbers,
    Parked,
    Rescheduled,
)
from millpond.core.delivery.wheel import FIRST, Due, TimerWheel
from millpond.model.ids import Offset

DONE: Final = 0
TIDY_MIN: Final = 1_000
"""Fewer rows that are done with than this are not worth tidying."""


class Waiting(NamedTuple):
    """A message that is not delivered yet, or a schedule."""

    id: int
    due: int
    is_recurring: bool
    place: Offset


class Delays:
    def __init__(self) -> None:
        self._ids, self._dues, self._places = array("q"), array("q"), array("q")
        self._count = 0
        self._wheel = TimerWheel()
        self._wound = 0
        """So many rows have their place on the wheel."""
        self._is_wound = False
        self._handed_out: set[int] = set()
        """Due, and on its way into the log."""
        self._parts: list[CheckpointPart] = []

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    # What the log says

    def apply(self, fact: Fact) -> None:
        match fact:
            case Parked(base_offset, dues):
                self._add(base_offset, dues)
            case Carried(place, ids, dues):
                for id_, due in zip(ids, dues, strict=True):
                    self._carry(id_, due, place)
            case Cancelled(ids):
                for id_ in ids:
                    self._change(id_, DONE)
            case Rescheduled(ids, dues):
                for id_, due in zip(ids, dues, strict=True):
                    self._change(id_, due)
            case Moved(messages):
                for id_, next_at in messages:
                    self._change(id_, DONE if next_at is None else -next_at)
            case CheckpointPart():
                self._restore(fact)

    def _add(self, base_offset: Offset, dues: Numbers) -> None:
        self._ids.extend(range(base_offset, base_offset + len(dues)))
        self._dues += dues
        self._places.extend([base_offset] * len(dues))
        self._count += len(dues)
        if self._is_wound:
            for id_, due in enumerate(dues, base_offset):
                self._wheel.insert(id_, abs(due))
            self._wound = len(self._ids)

    def _carry(self, id_: int, due: int, place: Offset) -> None:
        row = bisect_left(self._ids, id_)
        if row < len(self._ids) and self._ids[row] == id_:
            self._places[row] = place
            return
        assert not self._wound, f"message {id_} is carried, and was not among those that wait"
        # Where it was parked is not in the log any more.
        self._ids.insert(row, id_)
        self._dues.insert(row, due)
        self._places.insert(row, place)
        self._count += 1

    def _change(self, id_: int, due: int) -> None:
        row = self._row(id_)
        if row is None:
            return
        if id_ in self._handed_out:
            self._handed_out.remove(id_)
        elif row < self._wound:
            self._wheel.cancel(id_, abs(self._dues[row]))
        self._dues[row] = due
        if due == DONE:
            self._count -= 1
            self._tidy()
        elif row < self._wound:
            self._wheel.insert(id_, abs(due))

    def _restore(self, fact: CheckpointPart) -> None:
        """Counts only where all parts follow one another; and then it says all there is to know."""
        if fact.part != len(self._parts):
            self._parts = []
            if fact.part:
                return
        self._parts.append(fact)
        if len(self._parts) < fact.parts:
            return
        parts, self._parts = self._parts, []
        if self._is_wound or len(self._ids):  # it was here when it was written, and is what is here
            return
        for part in parts:
            self._ids += part.ids
            self._dues += part.dues
            self._places += part.places
        self._count = len(self._ids)

    # Time

    def wind(self, now: int, *, work_max: int = 10_000) -> bool:
        """Gives the rows their places on the wheel, so many in one call. Whether all have theirs; nothing is due
        before."""
        if self._is_wound:
            return True
        if not self._wound:
            self._wheel = TimerWheel(now=now)
        end = min(self._wound + work_max, len(self._ids))
        for row in range(self._wound, end):
            if self._dues[row] != DONE:
                self._wheel.insert(self._ids[row], abs(self._dues[row]))
        self._wound = end
        self._is_wound = end == len(self._ids)
        return self._is_wound

    def next_at(self) -> int | None:
        """When to ask what is due: not before. None where nothing waits."""
        return self._wheel.next_at() if self._is_wound else None

    def prepare(self, until: int, *, work_max: int) -> bool:
        """For what is due by then, so that nothing is late because very many are due with it. Whether there is more."""
        return self._wheel.prepare(until, work_max=work_max)

    def due(self, now: int, *, count_max: int) -> list[Waiting]:
        """The next messages that are due, each handed out once: what is not appended then is to be `put_back`."""
        assert self._is_wound, "nothing is due before the rows are wound"
        found = [self._waiting(each) for each in self._wheel.advance(now, work_max=count_max)]
        self._handed_out.update(each.id for each in found)
        return found

    def put_back(self, messages: Iterable[Waiting]) -> None:
        for each in messages:
            if each.id in self._handed_out:
                self._handed_out.remove(each.id)
                self._wheel.insert(each.id, each.due)

    # Questions

    def find(self, id_: int) -> Waiting | None:
        row = self._row(id_)
        return None if row is None else self._read(row)

    def first(self, count: int, *, after: Due = FIRST) -> list[Waiting]:
        """The next that come due, in order."""
        return [self._waiting(each) for each in self._wheel.first(count, after=after)]

    def placed_before(self, offset: Offset, *, after: int, count_max: int) -> list[Waiting]:
        """Messages whose records lie in control batches before an offset: the next ones behind an id."""
        found: list[Waiting] = []
        for row in range(bisect_right(self._ids, after), len(self._ids)):
            id_, place = self._ids[row], self._places[row]
            if offset <= place <= id_:
                break  # it lies where it was parked, and so do those behind it, or further on
            if place < offset and self._dues[row] != DONE:
                found.append(self._read(row))
                if len(found) == count_max:
                    break
        return found

    def first_place(self) -> Offset | None:
        """The oldest control batch that is still needed."""
        place = min(compress(self._places, self._dues), default=None)
        return None if place is None else Offset(place)

    def rows(self) -> tuple[Numbers, Numbers, Numbers]:
        """Ids, dues and places of all that wait: what a checkpoint keeps."""
        dues = self._dues
        return (
            array("q", compress(self._ids, dues)),
            array("q", filter(None, dues)),
            array("q", compress(self._places, dues)),
        )

    # Within

    def _row(self, id_: int) -> int | None:
        row = bisect_left(self._ids, id_)
        if row == len(self._ids) or self._ids[row] != id_ or self._dues[row] == DONE:
            return None
        return row

    def _read(self, row: int) -> Waiting:
        due = self._dues[row]
        return Waiting(self._ids[row], abs(due), due < 0, Offset(self._places[row]))

    def _waiting(self, due: Due) -> Waiting:
        row = self._row(due.key)
        assert row is not None, f"message {due.key} is on the wheel, and not among those that wait"
        return self._read(row)

    def _tidy(self) -> None:
        """Lets go of rows that are done with, when they are more than the others."""
        if self._is_wound and len(self._ids) - self._count > max(TIDY_MIN, self._count):
            self._ids, self._dues, self._places = self.rows()
            self._wound = len(self._ids)
