"""`make sim`: power cuts, as many as asked for, or until an invariant is broken; then the seed and the story."""

import argparse
import random
import sys
import traceback

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.simulation.power_cuts import CYCLES_PER_SEED, Outcome, run_seed

console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only, and print its trace hash; default: many")
    parser.add_argument("--cycles", type=int, default=1000, help="lives of the simulated process (default 1000)")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.seed)
    first = random.SystemRandom().randrange(1_000_000)
    seeds = range(first, first + max(1, arguments.cycles // CYCLES_PER_SEED))
    total = Outcome()
    columns = TextColumn("power cuts"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("cycles", total=len(seeds) * CYCLES_PER_SEED)
        for seed in seeds:
            try:
                outcome = run_seed(seed, on_cycle=lambda _: progress.advance(bar))
            except BaseException as error:  # also what a power cut raises
                progress.stop()
                return failed(seed, error)
            for name in ("cycles", "power_cuts", "kills", "orderly", "batches_kept", "bytes_cut", "unclean_opens"):
                setattr(total, name, getattr(total, name) + getattr(outcome, name))
    console.print(
        f"[green]nothing acknowledged was lost[/]: {total.cycles} lives, {total.power_cuts} power cuts, "
        f"{total.kills} kills, {total.batches_kept} batches acknowledged, {total.bytes_cut} torn bytes cut; "
        f"seeds {seeds[0]} to {seeds[-1]}"
    )
    return 0


def replay(seed: int) -> int:
    try:
        outcome = run_seed(seed)
    except BaseException as error:  # also what a power cut raises
        return failed(seed, error)
    console.print(f"seed {seed}: {outcome}")
    return 0


def failed(seed: int, error: BaseException) -> int:
    console.print("".join(traceback.format_exception(error)), markup=False)
    console.print(f"[red]seed {seed} failed[/]; replay with: make sim SEED={seed}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
