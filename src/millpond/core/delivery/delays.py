"""The delayed messages of one partition that are not delivered yet: when they are due, and where their records lie.

A message is a row of three numbers (delay_rows.py): its id, which is the offset its producer was told, when it is due,
and the offset of the control batch that holds its record. Together with its place on the wheel it takes 40 bytes.

Invariant: the rows are what the facts of the log, applied one after another, come to; nothing else changes them. So a
leader that restarts, or the next one, knows the same.
Pure: `now` is wall-clock milliseconds. Driven by broker/drivers/delays.py: `apply` for every fact in the log, oldest
first, `wind` until it is done, and then `due`.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from millpond.core.delivery.delay_rows import DONE, Chunk, DelayRows, Place
from millpond.core.delivery.parked_format import (
    Aside,
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

CHUNKS_PER_PART: Final = 2
"""In one part of a checkpoint: 200 kilobytes at most."""
_ALL: Final = 1 << 63
"""More than any id."""


class Waiting(NamedTuple):
    """A message that is not delivered yet, or a schedule."""

    id: int
    due: int
    is_recurring: bool
    place: Offset


class Delays:
    def __init__(self) -> None:
        self._rows = DelayRows()
        self._wheel = TimerWheel()
        self._wound_to = 0
        """Rows with ids below this have their place on the wheel."""
        self._is_wound = False
        self._handed_out: set[int] = set()
        """Due, and on its way into the log."""
        self._parts: list[CheckpointPart] = []
        """Of a checkpoint that is read."""
        self._since_parts: list[Fact] | None = None
        """What was said since its first part, where that was the first that was read at all."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._rows)

    # What the log says

    def apply(self, fact: Fact) -> None:
        if isinstance(fact, CheckpointPart):
            self._restore(fact)
            return
        if self._since_parts is not None:
            self._since_parts.append(fact)
        match fact:
            case Parked(base_offset, dues):
                self._add(range(base_offset, base_offset + len(dues)), dues, base_offset)
            case Aside(place, ids, dues):
                self._add(ids, dues, place)
            case Carried(place, ids, dues):
                for id_, due in zip(ids, dues, strict=True):
                    self._carry(id_, due, place)
            case Cancelled(ids):
                self._change_all((id_, DONE) for id_ in ids)
            case Rescheduled(ids, dues):
                self._change_all(zip(ids, dues, strict=True))
            case Moved(messages):
                self._change_all((id_, DONE if next_at is None else -next_at) for id_, next_at in messages)

    def _add(self, ids: Sequence[int], dues: Numbers, place: Offset) -> None:
        """Behind all that wait."""
        self._rows.extend(ids, dues, array("q", [place]) * len(dues))
        if self._is_wound:
            for id_, due in zip(ids, dues, strict=True):
                self._wheel.insert(id_, abs(due))

    def _carry(self, id_: int, due: int, place: Offset) -> None:
        at = self._rows.find(id_)
        if at is None:
            assert not self._wound_to, f"message {id_} is carried, and was not among those that wait"
            self._rows.insert(id_, due, place)  # where it was parked is not in the log any more
        else:
            chunk, row = at
            chunk.places[row] = place

    def _change_all(self, dues: Iterable[tuple[int, int]]) -> None:
        for id_, due in dues:
            self._change(id_, due)

    def _change(self, id_: int, due: int) -> None:
        at = self._rows.find(id_)
        if at is None:
            return
        chunk, row = at
        if id_ in self._handed_out:
            self._handed_out.remove(id_)
        elif id_ < self._wound_to:
            self._wheel.cancel(id_, abs(chunk.dues[row]))
        if due == DONE:
            self._rows.finish(at)
            return
        chunk.dues[row] = due
        if id_ < self._wound_to:
            self._wheel.insert(id_, abs(due))

    def _restore(self, fact: CheckpointPart) -> None:
        """Counts only where all parts are there; and then it says all that was to know at its first part. Other facts
        may lie between the parts."""
        if not fact.part:
            self._parts, self._since_parts = [], None
            if not self._rows and not self._wound_to:  # else what it says is known already
                self._since_parts = []
        if fact.part != len(self._parts):
            return
        self._parts.append(fact)
        if len(self._parts) < fact.parts:
            return
        parts, since, self._parts, self._since_parts = self._parts, self._since_parts, [], None
        if since is None or self._wound_to:
            return
        self._rows = DelayRows()
        for part in parts:
            self._rows.extend(part.ids, part.dues, part.places)
        for each in since:
            self.apply(each)

    # Time

    def wind(self, now: int, *, work_max: int = 10_000) -> bool:
        """Gives the rows their places on the wheel, so many in one call. Whether all have theirs; nothing is due
        before."""
        if self._is_wound:
            return True
        if not self._wound_to:
            self._wheel = TimerWheel(now=now)
        self._is_wound = True
        for number, (id_, due, _) in enumerate(self._rows.live_from(self._wound_to)):
            if number == work_max:
                self._is_wound = False
                break
            self._wheel.insert(id_, abs(due))
            self._wound_to = id_ + 1
        if self._is_wound:
            self._wound_to, self._since_parts = _ALL, None
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
        found = [self._waiting(each.key) for each in self._wheel.advance(now, work_max=count_max)]
        self._handed_out.update(each.id for each in found)
        return found

    def put_back(self, messages: Iterable[Waiting]) -> None:
        for each in messages:
            if each.id in self._handed_out:
                self._handed_out.remove(each.id)
                self._wheel.insert(each.id, each.due)

    # Questions

    def find(self, id_: int) -> Waiting | None:
        at = self._rows.find(id_)
        return None if at is None else _read(at)

    def first(self, count: int, *, after: Due = FIRST) -> list[Waiting]:
        """The next that come due, in order."""
        return [self._waiting(each.key) for each in self._wheel.first(count, after=after)]

    def places_between(self, begin: int, end: int) -> list[Offset]:
        """Where the records lie of what is due from one moment on and before another; each place once."""
        found = (self._rows.find(id_) for id_ in self._wheel.between(begin, end))
        return list(dict.fromkeys(Offset(chunk.places[row]) for chunk, row in filter(None, found)))

    def placed_before(self, offset: Offset, *, after: int, count_max: int) -> list[Waiting]:
        """Messages whose records lie in control batches before an offset: the next ones behind an id."""
        return list(islice(self._placed_before(offset, after + 1), count_max))

    def _placed_before(self, offset: Offset, first: int) -> Iterator[Waiting]:
        for id_, due, place in self._rows.live_from(first):
            if offset <= place <= id_:
                return  # it lies where it was parked, and so do those behind it, or further on
            if place < offset:
                yield Waiting(id_, abs(due), due < 0, Offset(place))

    def first_place(self) -> Offset | None:
        """The oldest control batch that is still needed."""
        least: int | None = None
        for id_, _, place in self._rows.live_from(0):
            least = place if least is None else min(least, place)
            if place <= id_:
                break  # it lies where it was parked: nothing behind it lies before it
        return None if least is None else Offset(least)

    def checkpoint(self) -> Iterator[CheckpointPart]:
        """All that wait now, whatever is applied before the last part is asked for."""
        return _parts(self._rows.copies())

    # Within

    def _waiting(self, id_: int) -> Waiting:
        at = self._rows.find(id_)
        assert at is not None, f"message {id_} is on the wheel, and not among those that wait"
        return _read(at)


def _read(at: Place) -> Waiting:
    chunk, row = at
    due = chunk.dues[row]
    return Waiting(chunk.ids[row], abs(due), due < 0, Offset(chunk.places[row]))


def _parts(chunks: list[Chunk]) -> Iterator[CheckpointPart]:
    """At least one, also of nothing."""
    starts = range(0, max(1, len(chunks)), CHUNKS_PER_PART)
    for part, start in enumerate(starts):
        ids, dues, places = array("q"), array("q"), array("q")
        for chunk in chunks[start : start + CHUNKS_PER_PART]:
            for column, more in zip((ids, dues, places), chunk.columns(), strict=True):
                column += more
        yield CheckpointPart(part, len(starts), ids, dues, places)
