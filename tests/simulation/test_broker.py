"""A whole broker and its clients in the simulator: power cuts, kills, pauses, partitions; and planted bugs, to show
that these tests would see one."""

import os
import subprocess
import sys

import pytest

from tests.simulation.broker_world import LIVES_PER_SEED, run_seed
from tests.simulation.planted import Planted, planted_in

SEEDS = 20
QUICK_SEEDS = (1002, 1005, 1009)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_whatever_happens_to_the_broker_clients_can_rely_on_what_they_were_told(first: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(first, first + 5):
        outcome = run_seed(seed)
        assert outcome.lives == LIVES_PER_SEED
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert min(counts[name] for name in ("Acknowledged", "Read", "CommitEnded", "Assigned", "ProducerNamed")) > 10


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_few_lives_end_well(seed: int) -> None:
    outcome = run_seed(seed, lives=3)
    assert outcome.lives == 3
    assert outcome.steps > 1000


def test_one_seed_gives_one_trace_in_two_processes() -> None:
    program = "from tests.simulation.broker_world import run_seed; print(run_seed(5, lives=3).trace_hash)"
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


@pytest.mark.slow
@pytest.mark.parametrize("mutant", planted_in("broker"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
