"""Counters under names that peers choose, so that there can be no end of names.

Invariant: at most `names_max` names have a count of their own; what comes after them is counted together, under OTHER.
Pure. Filled by drivers, read by exposition.py.
"""

from collections.abc import Iterator

OTHER = "other"


class BoundedCounts:
    __slots__ = ("_counts", "_label_count", "_names_max")

    def __init__(self, *, label_count: int, names_max: int) -> None:
        self._label_count = label_count
        self._names_max = names_max
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str) -> None:
        if labels not in self._counts and len(self._counts) >= self._names_max:
            labels = (OTHER,) * self._label_count
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], int]]:
        return iter(self._counts.items())

    def __getitem__(self, labels: tuple[str, ...]) -> int:
        return self._counts.get(labels, 0)
