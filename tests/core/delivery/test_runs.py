"""Runs of offsets against a plain dictionary."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from millpond.core.delivery.runs import Run, Runs

offsets = st.integers(0, 40)
edits = st.lists(st.tuples(offsets, offsets, st.sampled_from(["a", "b", None])), max_size=30)


@given(edits, offsets, offsets)
def test_runs_hold_what_a_dictionary_holds(changes: list[tuple[int, int, str | None]], one: int, other: int) -> None:
    runs: Runs[str] = Runs()
    plain: dict[int, str] = {}
    for begin, end, value in changes:
        first, last = min(begin, end), max(begin, end)
        if value is None:
            runs.clear(first, last)
        else:
            runs.set(first, last, value)
        for offset in range(first, last + 1):
            plain.pop(offset, None)
            if value is not None:
                plain[offset] = value
    assert {offset: run.value for run in runs for offset in range(run.first, run.last + 1)} == plain
    assert runs.size == len(plain)
    assert [runs.at(offset) for offset in range(41)] == [plain.get(offset) for offset in range(41)]
    found = list(runs)
    assert all(left.last < right.first for left, right in itertools.pairwise(found))
    assert all(left.last + 1 < right.first or left.value != right.value for left, right in itertools.pairwise(found)), (
        "neighbours that are alike are one run"
    )
    first, last = min(one, other), max(one, other)
    cut = {offset for run in runs.overlapping(first, last) for offset in range(run.first, run.last + 1)}
    assert cut == {offset for offset in plain if first <= offset <= last}


def test_a_million_messages_in_order_are_one_run() -> None:
    runs: Runs[None] = Runs()
    for first in range(0, 1_000_000, 1000):
        runs.set(first, first + 999, None)
    assert list(runs) == [Run(0, 999_999, None)]
