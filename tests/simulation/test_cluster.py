"""Brokers and their metadata on bad days; and planted bugs, to show that these tests would see one."""

import pytest

from tests.simulation.cluster_world import run_seed
from tests.simulation.planted import Planted, planted_in


@pytest.mark.parametrize("seed", [3001, 3002])
def test_a_bad_minute_ends_well(seed: int) -> None:
    outcome = run_seed(seed, seconds=45)
    assert outcome.lives > 3
    assert outcome.topics > 10


@pytest.mark.slow
@pytest.mark.parametrize(("first", "size"), [(0, 3), (3, 5)])
def test_whatever_befalls_brokers_their_metadata_has_one_history(first: int, size: int) -> None:
    outcomes = [run_seed(seed, size=size) for seed in range(first, first + 3)]
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert sum(each.power_cuts for each in outcomes) > 6
    assert sum(each.fenced for each in outcomes) > 3
    assert sum(each.snapshots_installed for each in outcomes) > 3
    assert sum(len(each.controllers) for each in outcomes) > 12


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("metadata"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
