"""Latencies: every duration is in the one bin that it belongs to."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from millpond.model.latencies import LAST_BIN, Latencies


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_is_below_its_bound_and_not_below_the_one_before(took_ns: int) -> None:
    latencies = Latencies()
    latencies.note(took_ns)
    bounds = latencies.upper_bounds()
    below = [bound for bound, count in bounds if not count]
    above = [bound for bound, count in bounds if count]
    assert (below[-1] if below else 0) * 1e9 <= took_ns < above[0] * 1e9 + 1
    assert above[-1] == inf


def test_bounds_rise_and_counts_add_up() -> None:
    latencies = Latencies()
    for took_ns in (0, 999, 1_000, 5_000_000, 10**15):
        latencies.note(took_ns)
    bounds = latencies.upper_bounds()
    assert [bound for bound, _ in bounds] == sorted({bound for bound, _ in bounds})
    assert [count for _, count in bounds] == sorted(count for _, count in bounds)
    assert bounds[0] == (1e-6, 2)
    assert bounds[-1] == (inf, 5)
    assert (latencies.count, latencies.total_ns) == (5, 10**15 + 5_001_999)
    assert len(bounds) == LAST_BIN + 1
