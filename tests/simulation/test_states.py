"""Machines that rely on their states, on bad days; and planted bugs, to show that these tests would see one."""

import pytest

from tests.simulation import states_mutants as planted
from tests.simulation.planted import Planted, planted_in
from tests.simulation.states_world import Day, run_seed

SEEDS = 6
SEEDS_PER_TEST = 6


@pytest.mark.parametrize("seed", [1, 3])
def test_a_third_of_a_bad_minute_ends_well(seed: int) -> None:
    outcome = run_seed(seed, seconds=20)
    assert outcome.acknowledged > 20
    assert outcome.loads > 6


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_whatever_befalls_brokers_machines_can_rely_on_what_was_kept(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert sum(each.lives for each in outcomes) > 5 * SEEDS_PER_TEST
    assert sum(each.acknowledged for each in outcomes) > 100 * SEEDS_PER_TEST
    assert sum(each.fenced for each in outcomes) > 10 * SEEDS_PER_TEST
    assert sum(each.unavailable for each in outcomes) > SEEDS_PER_TEST
    assert sum(each.pruned for each in outcomes) > SEEDS_PER_TEST / 2


@pytest.mark.slow
@pytest.mark.parametrize("day", [planted.OFTEN_FULL, planted.PARTED, planted.HALF_CUT, planted.SLOW_WRITERS])
def test_days_that_provoke_planted_bugs_end_well_without_them(day: Day) -> None:
    assert run_seed(0, seconds=40, day=day).acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("states"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
