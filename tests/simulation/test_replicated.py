"""Whole clusters with their clients on bad days; and planted bugs, to show that these tests would see one."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.simulation import replicated_mutants as planted
from tests.simulation import states_world
from tests.simulation.planted import Planted, planted_in
from tests.simulation.replicated_mutants import World
from tests.simulation.replicated_world import Outcome, run_seed

SEEDS = 200
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("seed", [2001, 2008])
def test_a_third_of_a_bad_minute_ends_well(seed: int) -> None:
    outcome = run_seed(seed, seconds=20)
    assert outcome.counts["Acknowledged"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_whatever_befalls_a_cluster_clients_can_rely_on_what_they_were_told(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    began = time.process_time()
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    record_property("seeds", SEEDS_PER_TEST)
    record_property("seeds_cpu_seconds", time.process_time() - began)
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert sum(each.power_cuts for each in outcomes) > 2 * SEEDS_PER_TEST
    assert sum(each.elections for each in outcomes) > 5 * SEEDS_PER_TEST
    assert {each.size for each in outcomes} == {3, 4, 5}
    for name in ("Acknowledged", "AcknowledgedByLeader", "Read", "OffsetRead", "CommitEnded", "Assigned"):
        assert counted(outcomes, name) > SEEDS_PER_TEST


def counted(outcomes: list[Outcome], name: str) -> int:
    return sum(outcome.counts.get(name, 0) for outcome in outcomes)


def test_one_seed_gives_one_trace_in_two_processes() -> None:
    program = "from tests.simulation.replicated_world import run_seed; print(run_seed(5, seconds=10).trace_hash)"
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 64


def test_a_seed_gives_one_trace_whatever_world_was_simulated_before() -> None:
    first = states_world.run_seed(33, seconds=5).trace_hash
    run_seed(3, seconds=1)
    assert states_world.run_seed(33, seconds=5).trace_hash == first


@pytest.mark.slow
@pytest.mark.parametrize("world", [planted.DISKS_FULL, planted.DISKS_LOST, planted.COORDINATORS_PARTED])
def test_worlds_that_provoke_planted_bugs_end_well_without_them(world: World) -> None:
    assert run_seed(0, **world).counts["Acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("cluster"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
