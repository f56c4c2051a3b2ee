"""Ranges are read once and whole, and limits are kept, whatever the ranges are."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.model.ids import TopicPartition
from millpond.pipeline.planning import joined, limited, limited_by_bytes, spans_of
from millpond.pipeline.positions import from_json, to_json

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
RANGES = st.dictionaries(PLACES, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8)
Ranges = dict[TopicPartition, tuple[int, int]]


def split(ranges: Ranges) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    return {at: start for at, (start, _) in ranges.items()}, {at: start + size for at, (start, size) in ranges.items()}


@given(RANGES, st.integers(1, 2000), st.none() | st.integers(1, 40))
def test_spans_cover_each_range_once(ranges: Ranges, size_max: int, count_min: int | None) -> None:
    starts, ends = split(ranges)
    spans = spans_of(starts, ends, size_max=size_max, count_min=count_min)
    covered = [(each.at, offset) for each in spans for offset in range(each.start, each.end)]
    assert sorted(covered) == sorted((at, offset) for at in ends for offset in range(starts[at], ends[at]))
    assert len(covered) == len(set(covered))
    assert all(0 < each.size <= size_max for each in spans)


def test_a_small_topic_is_split_where_more_partitions_are_wanted() -> None:
    at = TopicPartition("a", 0)
    assert len(spans_of({at: 0}, {at: 100}, size_max=1000, count_min=4)) == 4


@given(RANGES, st.integers(1, 3000), st.none() | st.integers(1, 12))
def test_small_spans_are_joined_in_order_and_none_is_lost(ranges: Ranges, size_min: int, count_min: int | None) -> None:
    spans = spans_of(*split(ranges), size_max=2000)
    tasks = joined(spans, size_min=size_min, count_min=count_min)
    assert [span for task in tasks for span in task] == spans
    assert len(tasks) >= min(len(spans), count_min or 0)
    if len(tasks) < len(spans):
        assert all(sum(span.size for span in task) >= size_min for task in tasks[:-1])
        assert all(sum(span.size for span in task[:-1]) < size_min for task in tasks)


@given(RANGES, st.integers(1, 3000))
def test_a_limit_is_kept_and_used_up(ranges: Ranges, offsets_max: int) -> None:
    starts, ends = split(ranges)
    found = limited(starts, ends, offsets_max=offsets_max)
    assert all(starts[at] <= found[at] <= ends[at] for at in ends)
    total = sum(size for _, size in ranges.values())
    assert sum(found[at] - starts[at] for at in ends) == min(total, offsets_max)


@given(RANGES, st.integers(1, 100_000), st.integers(1, 500))
def test_a_limit_in_bytes_always_gets_on(ranges: Ranges, bytes_max: int, size: int) -> None:
    starts, ends = split(ranges)
    found = limited_by_bytes(starts, ends, bytes_max=bytes_max, bytes_per_offset=dict.fromkeys(ends, float(size)))
    read = {at: found[at] - starts[at] for at in ends}
    assert all(0 <= read[at] <= ends[at] - starts[at] for at in ends)
    assert all(read[at] for at in ends if ends[at] > starts[at])
    assert sum(read.values()) * size <= bytes_max + len(ranges) * size


@given(st.dictionaries(PLACES, st.integers(0, 2**40)))
def test_offsets_survive_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets
