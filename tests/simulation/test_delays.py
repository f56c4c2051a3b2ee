"""Delayed messages in a cluster on bad days; and planted bugs, to show that these tests would see one."""

import pytest

from tests.simulation.delay_world import Outcome, run_mixed_seed, run_seed
from tests.simulation.planted import Planted, planted_in

SEEDS, SEEDS_PER_TEST = 6, 6


@pytest.mark.parametrize("seed", [100, 101])
def test_half_a_bad_minute_ends_well(seed: int) -> None:
    assert run_seed(seed, seconds=30).delivered > 20


@pytest.mark.parametrize("seed", [200, 201])
def test_batches_for_now_and_for_later_end_as_well(seed: int) -> None:
    assert run_mixed_seed(seed, seconds=30).delivered > 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_delayed_messages_are_never_early_never_lost_and_never_twice(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert total(outcomes, "delivered") > 100 * SEEDS_PER_TEST
    assert total(outcomes, "cancelled") > 10 * SEEDS_PER_TEST
    assert total(outcomes, "postponed") > 5 * SEEDS_PER_TEST
    assert total(outcomes, "lives") > 5 * SEEDS_PER_TEST
    assert total(outcomes, "carried") > SEEDS_PER_TEST
    assert sum(len(each.epochs) for each in outcomes) > 3 * SEEDS_PER_TEST


def total(outcomes: list[Outcome], name: str) -> int:
    return sum(getattr(outcome, name) for outcome in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("delays"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
