"""Which offsets are read by whom: ranges cut into Spark partitions or joined in one, and micro-batches within limits.

Invariants: the spans of a plan cover each range exactly once, whoever reads them; a limited end lies between start and
end, and gets on wherever there is something to read.
Pure. Driven by source.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from millpond.model.ids import TopicPartition
from millpond.pipeline.positions import Offsets


@dataclass(frozen=True, slots=True)
class Span:
    """From offset `start` on, before `end`."""

    at: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def spans_of(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    size_max: int,
    count_min: int | None = None,
) -> list[Span]:
    """One for each partition with something to read, and more where a range is large or too few would come of it."""
    whole = [Span(at, starts[at], ends[at]) for at in sorted(ends) if at in starts and ends[at] > starts[at]]
    total = sum(each.size for each in whole)
    pieces: list[Span] = []
    for span in whole:
        count = -(-span.size // size_max)
        if count_min is not None and count_min > len(whole):
            count = max(count, round(count_min * span.size / total))
        pieces += _cut(span, min(max(count, 1), span.size))
    return pieces


def _cut(span: Span, count: int) -> list[Span]:
    bounds = [span.start + span.size * number // count for number in range(count + 1)]
    return [Span(span.at, first, last) for first, last in pairwise(bounds)]


def joined(spans: Sequence[Span], *, size_min: int, count_min: int | None = None) -> list[tuple[Span, ...]]:
    """For one task each: neighbours together until they have so many offsets, unless too few tasks would come of it."""
    tasks: list[tuple[Span, ...]] = []
    task: tuple[Span, ...] = ()
    for span in spans:
        task = (*task, span)
        if sum(each.size for each in task) >= size_min:
            tasks.append(task)
            task = ()
    if task:
        tasks.append(task)
    return tasks if count_min is None or len(tasks) >= count_min else [(span,) for span in spans]


def limited(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, offsets_max: int) -> Offsets:
    """Ends so that at most `offsets_max` lie between, shared out by how much is waiting in each partition.

    What rounding leaves over goes to the first partitions that have more.
    """
    waiting = {at: max(0, end - starts.get(at, 0)) for at, end in ends.items()}
    total = sum(waiting.values())
    if total <= offsets_max:
        return dict(ends)
    shares = {at: size * offsets_max // total for at, size in waiting.items()}
    left = offsets_max - sum(shares.values())
    for at in sorted(ends):
        if left and shares[at] < waiting[at]:
            shares[at] += 1
            left -= 1
    return {at: starts.get(at, 0) + shares[at] for at in ends}


def limited_by_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    bytes_max: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Offsets:
    """Ends so that about `bytes_max` lie between, all partitions cut by the same part; at least one offset of each."""
    waiting = {at: max(0, end - starts.get(at, 0)) for at, end in ends.items()}
    total = sum(size * bytes_per_offset.get(at, 0.0) for at, size in waiting.items())
    if total <= bytes_max:
        return dict(ends)
    part = bytes_max / total
    return {at: starts.get(at, 0) + min(size, max(1, int(size * part))) for at, size in waiting.items()}
