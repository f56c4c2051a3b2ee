"""Delayed messages in a cluster on bad days; and planted bugs, to show that these tests would see one."""

import pytest

from millpond.model.errors import OffsetOutOfRange
from tests.simulation import delay_mutants as planted
from tests.simulation.delay_mutants import Mutant
from tests.simulation.delay_world import Outcome, run_seed
from tests.simulation.history import Violation

SEEDS, SEEDS_PER_TEST = 12, 6
SEEDS_FOR_A_MUTANT = 40


@pytest.mark.parametrize("seed", [100, 101])
def test_half_a_bad_minute_ends_well(seed: int) -> None:
    assert run_seed(seed, seconds=30).delivered > 20


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
@pytest.mark.parametrize(("mutant", "found_at"), planted.MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(mutant: Mutant, found_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """First where it was found when it was planted."""
    mutant(monkeypatch)
    with pytest.raises((Violation, AssertionError, OffsetOutOfRange)):
        run_from(found_at)


def run_from(first: int) -> None:
    for seed in (first, *range(SEEDS_FOR_A_MUTANT)):
        run_seed(seed)
