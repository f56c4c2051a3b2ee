"""Thousands of simulated power cuts; and planted bugs, to show that these tests would see one."""

import os
import subprocess
import sys

import pytest

from millpond.storage.settings import Flush
from tests.simulation.planted import Planted, planted_in
from tests.simulation.power_cuts import CYCLES_PER_SEED, run_seed

SEEDS = 50


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_power_cut_loses_what_was_acknowledged(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = run_seed(seed)
        assert outcome.cycles == CYCLES_PER_SEED
        assert outcome.batches_kept > 0


@pytest.mark.parametrize("seed", range(1000, 1004))
def test_a_few_lives_end_well(seed: int) -> None:
    assert run_seed(seed, cycles=8).cycles == 8


@pytest.mark.slow
@pytest.mark.parametrize("flush", [Flush.INTERVAL, Flush.NONE])
@pytest.mark.parametrize("seed", range(2000, 2006))
def test_without_a_sync_per_append_a_power_cut_still_leaves_whole_batches_only(flush: Flush, seed: int) -> None:
    run_seed(seed, flush=flush)


def test_one_seed_gives_one_trace_in_two_processes() -> None:
    program = "from tests.simulation.power_cuts import run_seed; print(run_seed(5, cycles=6).trace_hash)"
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
@pytest.mark.parametrize("mutant", planted_in("disk"), ids=str)
def test_a_planted_bug_is_found(mutant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(mutant.caught_by, match=mutant.named):
        mutant.run()
