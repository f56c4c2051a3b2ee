"""The model keeps its promises whatever chance does to it, and would notice if they were broken."""

import pytest

from tests.core.replication.chance import run
from tests.core.replication.mutants import MUTANTS, RARE, Mutant
from tests.core.replication.promises import Broken

SEEDS = 100
SEEDS_TO_FIND_MAX = 600
SEEDS_TO_FIND_RARE_MAX = 5_000


def test_the_promises_hold_whatever_happens() -> None:
    for seed in range(SEEDS):
        run(seed)


def test_with_unclean_elections_there_is_always_a_leader_and_copies_are_equal_in_the_end() -> None:
    for seed in range(SEEDS):
        world = run(seed, unclean=True)
        assert world.partition.isr, "somebody leads, whatever was lost"


@pytest.mark.slow
def test_the_promises_hold_over_many_lives() -> None:
    for seed in range(SEEDS, 300):
        run(seed)


def test_the_same_seed_tells_the_same_story() -> None:
    assert run(7).story == run(7).story


def test_something_comes_of_it() -> None:
    worlds = [run(seed) for seed in range(20)]
    assert sum(world.values for world in worlds) > 20 * 5
    assert sum(world.partition.leader_epoch for world in worlds) > 20 * 2


def broken_within(seeds: int, *, first: int = 0) -> bool:
    for seed in (first, *range(seeds)):
        try:
            run(seed)
        except Broken:
            return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert broken_within(SEEDS_TO_FIND_MAX)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "found_at"), RARE, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_that_rarely_shows_is_found(
    mutant: Mutant, found_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First where it was found when it was planted; what a seed does shifts with each change of the model."""
    mutant(monkeypatch)
    assert broken_within(SEEDS_TO_FIND_RARE_MAX, first=found_at)
