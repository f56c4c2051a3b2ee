"""`make sim` and `make sim-night`: simulated bad days, as many as asked for, or until an invariant is broken; then the
seed, the story, and the one command that shows it again."""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.simulation import delay_world, queue_world, replicated_world
from tests.simulation.power_cuts import CYCLES_PER_SEED, Outcome, run_seed
from tests.simulation.seeds import look

console = Console(highlight=False)
LINE_SECONDS = 10.0
"""Between two lines of progress, in the night."""
WORLDS: dict[str, Callable[[int], replicated_world.Outcome | delay_world.Outcome]] = {
    "cluster": replicated_world.run_seed,
    "queue": queue_world.run_seed,
    "delays": delay_world.run_seed,
}
TOLD: Final = {
    "lives": "lives ended",
    "power_cuts": "by power cuts",
    "elections": "leader epochs",
    "Acknowledged": "batches",
    "CommitEnded": "commits",
    "Heard": "verdicts on messages answered",
    "sent": "delayed messages sent",
    "delivered": "delivered",
    "cancelled": "cancelled",
}
"""Of what is counted in a world, what is worth a word."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--world", choices=("disk", *WORLDS), default="disk", help="one log, or brokers and clients")
    parser.add_argument("--seed", type=int, help="run this seed only, and print its trace hash; default: many")
    parser.add_argument("--cycles", type=int, default=1000, help="lives of the simulated process (default 1000)")
    parser.add_argument("--seeds", type=int, default=50, help="simulated minutes of a cluster (default 50)")
    parser.add_argument("--hours", type=float, help="clusters, one after another, for this long")
    parser.add_argument(
        "--mutants", nargs="*", metavar="NAME", help="look for seeds that find planted bugs; all, or these"
    )
    parser.add_argument("--fastest", type=int, default=0, help="so many seeds more for each, to find a faster one")
    arguments = parser.parse_args()
    if arguments.mutants is not None:
        return min(1, look(console, arguments.mutants, fastest=arguments.fastest))
    run: Callable[[int], object] = WORLDS.get(arguments.world, run_seed)
    if arguments.seed is not None:
        return replay(arguments.seed, arguments.world, run)
    first = random.SystemRandom().randrange(1_000_000)
    if arguments.hours is not None:
        until = time.monotonic() + arguments.hours * 3600
        return clusters(arguments.world, range(first, first + 1_000_000_000), until=until)
    if arguments.world in WORLDS:
        return clusters(arguments.world, range(first, first + arguments.seeds))
    return power_cuts(range(first, first + max(1, arguments.cycles // CYCLES_PER_SEED)))


def power_cuts(seeds: range) -> int:
    total = Outcome()
    columns = TextColumn("power cuts"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("cycles", total=len(seeds) * CYCLES_PER_SEED)
        for seed in seeds:
            try:
                outcome = run_seed(seed, on_cycle=lambda _: progress.advance(bar))
            except BaseException as error:  # also what a power cut raises
                progress.stop()
                return failed(seed, "disk", error)
            for name in ("cycles", "power_cuts", "kills", "orderly", "batches_kept", "bytes_cut", "unclean_opens"):
                setattr(total, name, getattr(total, name) + getattr(outcome, name))
    console.print(
        f"[green]nothing acknowledged was lost[/]: {total.cycles} lives, {total.power_cuts} power cuts, "
        f"{total.kills} kills, {total.batches_kept} batches acknowledged, {total.bytes_cut} torn bytes cut; "
        f"seeds {seeds[0]} to {seeds[-1]}"
    )
    return 0


def clusters(world: str, seeds: Iterable[int], *, until: float = float("inf")) -> int:
    """One bad minute, or a part of it, for each seed. Stops at the first that fails."""
    total, done, began = Counter[str](), 0, time.monotonic()
    told = began
    for seed in seeds:
        if time.monotonic() >= until:
            break
        try:
            outcome = WORLDS[world](seed)
        except Exception as error:
            return failed(seed, world, error)
        done += 1
        total.update({name: value for name, value in asdict(outcome).items() if isinstance(value, int)})
        total.update(getattr(outcome, "counts", {}))
        if time.monotonic() - told >= LINE_SECONDS:
            told = time.monotonic()
            console.print(f"up to seed {seed}: {summary(total, done, told - began)}")
    console.print(f"[green]every promise was kept[/]: {summary(total, done, time.monotonic() - began)}")
    return 0


def summary(total: Counter[str], seeds: int, seconds: float) -> str:
    told = ", ".join(f"{total[name]} {words}" for name, words in TOLD.items() if total[name])
    return f"{seeds} clusters on bad days, {seeds / max(seconds, 0.001):.2f} seeds/s; {told}"


def replay(seed: int, world: str, run: Callable[[int], object]) -> int:
    try:
        outcome = run(seed)
    except BaseException as error:  # also what a power cut raises
        return failed(seed, world, error)
    console.print(f"seed {seed}: {outcome}")
    return 0


def failed(seed: int, world: str, error: BaseException) -> int:
    console.print("".join(traceback.format_exception(error)), markup=False)
    named = "" if world == "disk" else f"WORLD={world} "
    console.print(f"[red]seed {seed} failed[/]; replay with: make sim {named}SEED={seed}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
