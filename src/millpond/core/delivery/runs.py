"""Runs of offsets that are alike: as small as a queue is regular, however many messages it holds.

Invariant: runs are in order, do not overlap, and neighbours that touch differ in their value.
Pure; the ledger is made of these.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")


class Run(NamedTuple, Generic[Value]):
    first: int
    last: int
    """Included."""
    value: Value

    def __len__(self) -> int:
        return self.last - self.first + 1


class Runs(Generic[Value]):
    __slots__ = ("_firsts", "_lasts", "_values", "size")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[Value] = []
        self.size = 0
        """Offsets in all runs."""

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run[Value]]:
        return map(Run, self._firsts, self._lasts, self._values)

    def __repr__(self) -> str:
        return f"Runs({', '.join(f'{first}-{last}: {value}' for first, last, value in self)})"

    @property
    def lowest(self) -> int | None:
        """The first offset of all."""
        return self._firsts[0] if self._firsts else None

    def first(self) -> tuple[int, int]:
        """Where the first run begins and ends, of those that there are."""
        return self._firsts[0], self._lasts[0]

    def first_from(self, offset: int) -> int | None:
        """The first offset of all from there on."""
        index = bisect_left(self._lasts, offset)
        return None if index == len(self._lasts) else max(offset, self._firsts[index])

    def at(self, offset: int) -> Value | None:
        index = bisect_right(self._firsts, offset) - 1
        return self._values[index] if index >= 0 and self._lasts[index] >= offset else None

    def overlapping(self, first: int, last: int) -> list[Run[Value]]:
        """What lies within, cut at both ends."""
        firsts, lasts = self._firsts, self._lasts
        begin = bisect_left(lasts, first)
        end = bisect_right(firsts, last, begin)
        if end - begin == 1:  # as mostly
            return [Run(max(first, firsts[begin]), min(last, lasts[begin]), self._values[begin])]
        found = [*map(Run, firsts[begin:end], lasts[begin:end], self._values[begin:end])]
        if found and found[0].first < first:
            found[0] = Run(first, found[0].last, found[0].value)
        if found and found[-1].last > last:
            found[-1] = Run(found[-1].first, last, found[-1].value)
        return found

    def set(self, first: int, last: int, value: Value) -> None:
        """Whatever was there before."""
        if not self._lasts or self._lasts[-1] < first:  # behind all others, as messages come
            self._append(first, last, value)
            return
        self.clear(first, last)
        index = bisect_left(self._firsts, first)
        joins_left = index > 0 and self._lasts[index - 1] == first - 1 and self._values[index - 1] == value
        joins_right = index < len(self._firsts) and self._firsts[index] == last + 1 and self._values[index] == value
        self.size += last - first + 1
        if joins_left and joins_right:
            self._lasts[index - 1] = self._lasts[index]
            self._remove(index, index + 1)
        elif joins_left:
            self._lasts[index - 1] = last
        elif joins_right:
            self._firsts[index] = first
        else:
            self._firsts.insert(index, first)
            self._lasts.insert(index, last)
            self._values.insert(index, value)

    def _append(self, first: int, last: int, value: Value) -> None:
        self.size += last - first + 1
        if self._lasts and self._lasts[-1] == first - 1 and self._values[-1] == value:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
            self._values.append(value)

    def clear(self, first: int, last: int) -> None:
        firsts, lasts, values = self._firsts, self._lasts, self._values
        begin = bisect_left(lasts, first)
        end = bisect_right(firsts, last, begin)
        if begin == end:
            return
        low, high = firsts[begin], lasts[end - 1]
        self.size -= (
            high - low + 1 if end - begin == 1 else sum(lasts[begin:end]) - sum(firsts[begin:end]) + end - begin
        )
        if high > last:  # the tail of the last one stays
            end -= 1
            if low < first and begin == end:  # and its head, too: it becomes two
                firsts.insert(begin, low)
                lasts.insert(begin, high)
                values.insert(begin, values[begin])
                end += 1
            firsts[end] = last + 1
            self.size += high - last
        if low < first:  # the head of the first one stays
            lasts[begin] = first - 1
            begin += 1
            self.size += first - low
        if begin < end:
            self._remove(begin, end)

    def _remove(self, begin: int, end: int) -> None:
        del self._firsts[begin:end], self._lasts[begin:end], self._values[begin:end]
