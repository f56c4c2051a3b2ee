"""Millpond as a broker, and each peer that is here. Driven by bench/__main__.py.

Stage by stage and round by round, all systems in turns: those that stand side by side in a table were measured within
seconds of each other. The servers that are not being measured stay up, and idle.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rich.console import Console

from bench.broker.figures import Figure, combined
from bench.broker.librdkafka import KCAT
from bench.broker.millpond import Millpond
from bench.broker.peers import PEERS
from bench.broker.peers.cache import HOW, kcat
from bench.broker.processes import OthersLoad
from bench.broker.systems import System
from bench.broker.tables import print_figures
from bench.broker.trial import FULL, QUICK, Scale, Trial, stages
from bench.measuring import Measurement
from bench.tables import progress
from bench.workspace import Workspace


def measure(console: Console, place: Workspace, *, quick: bool, peers: Sequence[str]) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    systems: list[System] = [Millpond(), *(system for name in peers for system in PEERS[name]())]
    missing = {system.name: why for system in systems if (why := system.why_not_here())}
    if not kcat():
        missing[KCAT] = f"{HOW}; confluent-kafka is the same library"
    trials = [Trial(system, place, scale) for system in systems if system.name not in missing]
    versions = {trial.system.name: trial.system.version() for trial in trials}
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    load = OthersLoad()
    with ExitStack() as stack:
        for trial in trials:
            stack.callback(trial.close)
        rounds = _rounds(console, trials, scale)
    missing |= {trial.system.name: trial.failure for trial in trials if trial.failure}
    figures = combined(rounds)
    print_figures(console, figures, missing)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {
        "scale": scale.name,
        "versions": versions,
        "others_cores": others_cores,
        "figures": [each.document() for each in figures],
        "not_here": missing,
    }


def _rounds(console: Console, trials: Sequence[Trial], scale: Scale) -> list[list[Figure]]:
    """What the systems did side by side, once for each round of each stage."""
    stages_in_rounds = [stage for stage in stages(scale) for _ in range(stage.rounds)]
    turns = [
        (number, Measurement(f"{stage.title}: {trial.system.name}", partial(trial.run, stage)))
        for number, stage in enumerate(stages_in_rounds)
        for trial in trials
    ]
    rounds: list[list[Figure]] = [[] for _ in stages_in_rounds]
    with progress(console, [turn for _, turn in turns]) as running:
        for (round_number, _), turn in zip(turns, running, strict=True):
            rounds[round_number] += turn.run()
    return rounds
