"""A queue on one broker and on three, with its publishers and consumers, on bad days; and planted bugs, to show that
these tests would see one."""

import time
from collections.abc import Callable

import pytest

from tests.simulation import queue_mutants as planted
from tests.simulation.planted import Planted, planted_in
from tests.simulation.queue_world import run_seed
from tests.simulation.replicated_world import Outcome

SEEDS = 20
SEEDS_PER_TEST = 10


def test_a_third_of_a_bad_minute_of_a_queue_ends_well() -> None:
    outcome = run_seed(2)
    assert outcome.counts["ACCEPT"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_whatever_befalls_a_queue_its_users_can_rely_on_what_they_were_told(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    began = time.process_time()
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    record_property("seeds", SEEDS_PER_TEST)
    record_property("seeds_cpu_seconds", time.process_time() - began)
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert {each.size for each in outcomes} == {1, 3}
    assert sum(each.lives for each in outcomes) > SEEDS_PER_TEST
    for name in ("ACCEPT", "RELEASE", "REJECT", "RENEW", "Heard", "SessionEnded", "letters"):
        assert counted(outcomes, name) > SEEDS_PER_TEST, name


def counted(outcomes: list[Outcome], name: str) -> int:
    return sum(outcome.counts.get(name, 0) for outcome in outcomes)


def test_one_seed_of_a_queue_gives_one_trace() -> None:
    assert run_seed(5, seconds=8).trace_hash == run_seed(5, seconds=8).trace_hash


@pytest.mark.slow
def test_a_world_that_provokes_a_planted_bug_ends_well_without_it() -> None:
    assert run_seed(0, **planted.LEADERS_PARTED).counts["ACCEPT"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("queue"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
