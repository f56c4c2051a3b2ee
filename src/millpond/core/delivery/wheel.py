"""A hierarchical timer wheel: which of very many keys are due, from milliseconds to centuries.

A moment is a number of milliseconds, read as digits to the base of 64. A key lies on the level of the highest digit
in which its moment differs from the wheel's own, in the slot of that digit. When the wheel comes to a slot, its keys
are due or fall to a lower level; so each is looked at once for each digit, at most, and what is empty costs nothing.
A slot of a high level may hold very many, and whatever is due first is somewhere among them. So slots that come soon
are prepared, a little at a time: keys are sorted into parts, which become the slots of the lower level as they are.

What lies far ahead is two numbers in an array, 16 bytes. A key that is cancelled stays where it is until the wheel
comes by, or until more than half of all that is there is cancelled.

Invariants: nothing is handed out before its moment, whatever the clock does: where it goes back, the wheel does not,
and what comes in behind it waits in a heap. What was inserted and not cancelled is handed out once.
Pure: the caller passes `now`. Driven by delays.py.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

DIGIT_BITS: Final = 6
LEVELS: Final = 10
"""Ten digits, 2**60 milliseconds."""
MOMENT_MAX: Final = (1 << DIGIT_BITS * LEVELS) - 1
STALE_MIN: Final = 1_000
"""Fewer cancelled keys than this are not worth a sweep."""

_DIGIT_MASK: Final = (1 << DIGIT_BITS) - 1


class Due(NamedTuple):
    at: int
    key: int


FIRST: Final = Due(-1, -1)
"""Before all that can be."""


class _Slot:
    __slots__ = ("keys", "moments", "parts")

    def __init__(self) -> None:
        self.moments = array("q")
        self.keys = array("q")
        self.parts: dict[int, _Slot] = {}
        """Those that are prepared, by the digit that they have on the lower level; they are not among the keys."""

    def add(self, key: int, at: int) -> None:
        self.moments.append(at)
        self.keys.append(key)

    def take(self, count: int) -> Iterator[tuple[int, int]]:
        """So many that are not prepared: moments and keys."""
        left = len(self.keys) - count
        moments, keys = self.moments[left:], self.keys[left:]
        del self.moments[left:], self.keys[left:]
        return zip(moments, keys, strict=True)

    def prepare(self, level: int, work_max: int) -> int:
        """Sorts keys into parts, and then those of the first part likewise, which comes as soon as the slot itself."""
        count = min(len(self.keys), work_max)
        shift, parts = DIGIT_BITS * (level - 1), self.parts
        for at, key in self.take(count):
            part = parts.get(digit := at >> shift & _DIGIT_MASK)
            if part is None:
                part = parts[digit] = _Slot()
            part.add(key, at)
        if count < work_max and level > 1 and 0 in parts:
            count += parts[0].prepare(level - 1, work_max - count)
        return count

    def between(self, begin: int, end: int, *, starts: int, level: int) -> Iterator[int]:
        """Keys of moments from `begin` on and before `end`. The slot's own first moment is `starts`."""
        for at, key in zip(self.moments, self.keys, strict=True):
            if begin <= at < end:
                yield key
        if self.parts:
            yield from _between(self.parts, begin, end, starts=starts, level=level - 1)

    def dues(self) -> Iterator[Due]:
        yield from map(Due, self.moments, self.keys)
        for part in self.parts.values():
            yield from part.dues()


def _between(slots: dict[int, _Slot], begin: int, end: int, *, starts: int, level: int) -> Iterator[int]:
    """The same of slots of one level, of which the first would begin at `starts`."""
    shift = DIGIT_BITS * level
    for digit, slot in slots.items():
        at = starts + (digit << shift)
        if at < end and at + (1 << shift) > begin:
            yield from slot.between(begin, end, starts=at, level=level)


class TimerWheel:
    def __init__(self, *, now: int = 0) -> None:
        self._now = now
        """It never goes back. Everything on the wheel is due later than this."""
        self._levels: list[dict[int, _Slot]] = [{} for _ in range(LEVELS)]
        self._masks = [0] * LEVELS
        """Which slots of a level hold anything, a bit for each."""
        self._behind: list[Due] = []
        """A heap of what came in when its moment was not after the wheel's."""
        self._falling = _Slot()
        """What is left of the slot that the wheel stands at."""
        self._cancelled: set[Due] = set()
        self._count = 0
        """Of all that lies here, cancelled or not."""

    def __len__(self) -> int:
        return self._count - len(self._cancelled)

    def insert(self, key: int, at: int) -> None:
        """A pair of key and moment that is here already may not come again, unless it was cancelled."""
        if not 0 <= at <= MOMENT_MAX:
            raise ValueError(f"moment is {at}; allowed is 0 to {MOMENT_MAX}")
        due = Due(at, key)
        if self._cancelled and due in self._cancelled:
            self._cancelled.remove(due)  # it still lies where it was
            return
        self._count += 1
        self._place(key, at)

    def cancel(self, key: int, at: int) -> None:
        """Of something that is here."""
        self._cancelled.add(Due(at, key))
        if len(self._cancelled) > max(STALE_MIN, self._count // 2):
            self._sweep()

    def next_at(self) -> int | None:
        """When to look again: nothing is due before. None where nothing is here."""
        moments = [self._behind[0].at] if self._behind else []
        if self._falling.keys:
            moments.append(self._now)
        elif (ahead := self._next_slot()) is not None:
            moments.append(ahead[0])
        return min(moments, default=None)

    def advance(self, now: int, *, work_max: int = 1 << 62) -> list[Due]:
        """What is due by now, the earliest first. After `work_max` keys the rest waits for the next call, and
        `next_at` still says now or earlier."""
        found: list[Due] = []
        while self._behind and self._behind[0].at <= now and work_max > 0:
            found.append(heapq.heappop(self._behind))
            work_max -= 1
        while now >= self._now and work_max > 0:
            if self._falling.keys:
                work_max -= self._fall(work_max, found)
                continue
            ahead = self._next_slot()
            if ahead is None or ahead[0] > now:
                self._now = now
                break
            self._now, level, digit = ahead
            self._come_to(level, digit)
        self._count -= len(found)
        if self._cancelled:
            stale = self._cancelled.intersection(found)
            self._cancelled -= stale
            found = [each for each in found if each not in stale]
        found.sort()
        return found

    def prepare(self, until: int, *, work_max: int) -> bool:
        """Of the slots that begin by then, the next of each level; so many keys. Whether there is more to do."""
        for level in range(1, LEVELS):
            if not self._masks[level]:
                continue
            begins, digit = self._next_of(level)
            if begins > until:
                return False  # and so do those of higher levels
            work_max -= self._levels[level][digit].prepare(level, work_max)
            if work_max <= 0:
                return True
        return False

    def first(self, count: int, *, after: Due = FIRST) -> list[Due]:
        """The next that come due behind `after`, in order. Looks only into as many slots as it takes."""
        found: list[Due] = []
        for group in self._in_order():
            live = (each for each in group if each > after and each not in self._cancelled)
            found += heapq.nsmallest(count - len(found), live)
            if len(found) >= count:
                break
        return found

    def between(self, begin: int, end: int) -> Iterator[int]:
        """Keys, in no order, of what lies ahead and is due from one moment on and before another; cancelled ones too.
        Looks into no slots but those that hold such moments."""
        for level, slots in enumerate(self._levels):
            above = DIGIT_BITS * (level + 1)
            yield from _between(slots, begin, end, starts=self._now >> above << above, level=level)

    def __iter__(self) -> Iterator[Due]:
        """All that is here and not cancelled, in no order."""
        for due in self._all():
            if due not in self._cancelled:
                yield due

    # Within

    def _place(self, key: int, at: int) -> None:
        if at <= self._now:
            heapq.heappush(self._behind, Due(at, key))
            return
        level = ((at ^ self._now).bit_length() - 1) // DIGIT_BITS
        digit = at >> DIGIT_BITS * level & _DIGIT_MASK
        slot = self._levels[level].get(digit)
        if slot is None:
            slot = self._levels[level][digit] = _Slot()
            self._masks[level] |= 1 << digit
        slot.add(key, at)

    def _next_slot(self) -> tuple[int, int, int] | None:
        """When it comes, its level and its digit. All that is on a lower level comes before what is on a higher."""
        for level, mask in enumerate(self._masks):
            if mask:
                begins, digit = self._next_of(level)
                return begins, level, digit
        return None

    def _next_of(self, level: int) -> tuple[int, int]:
        """When the next slot of a level comes that holds anything, and its digit."""
        mask = self._masks[level]
        digit = (mask & -mask).bit_length() - 1
        above = DIGIT_BITS * (level + 1)
        return self._now >> above << above | digit << DIGIT_BITS * level, digit

    def _come_to(self, level: int, digit: int) -> None:
        """Nothing is on lower levels any more. Parts go there as they are, but for the first: the wheel stands at it,
        and so its own parts go one level further down."""
        slot = self._falling = self._levels[level].pop(digit)
        self._masks[level] &= ~(1 << digit)
        parts, slot.parts = slot.parts, {}
        while parts:
            level -= 1
            first = parts.pop(0, None)
            self._levels[level] = parts
            self._masks[level] = sum(1 << each for each in parts)
            if first is None:
                return
            slot.moments += first.moments
            slot.keys += first.keys
            parts = first.parts

    def _fall(self, work_max: int, found: list[Due]) -> int:
        """Of the slot that the wheel stands at the first moment of. How many keys were looked at."""
        count = min(len(self._falling.keys), work_max)
        for at, key in self._falling.take(count):
            if at <= self._now:
                found.append(Due(at, key))
            else:
                self._place(key, at)
        return count

    def _in_order(self) -> Iterator[Iterable[Due]]:
        """Groups of which each comes before the next."""
        if self._falling.keys:  # among what it has brought to lower levels
            yield self._all()
            return
        yield self._behind
        for level in self._levels:
            for digit in sorted(level):
                yield level[digit].dues()

    def _all(self) -> Iterator[Due]:
        yield from self._behind
        for level in self._levels:
            for slot in level.values():
                yield from slot.dues()
        yield from self._falling.dues()

    def _sweep(self) -> None:
        live = list(self)
        self._levels, self._masks = [{} for _ in range(LEVELS)], [0] * LEVELS
        self._behind, self._falling, self._cancelled, self._count = [], _Slot(), set(), len(live)
        for at, key in live:
            self._place(key, at)
