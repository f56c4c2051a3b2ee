"""Queues of Millpond and of each peer that is here: speed in turns, round by round; then Millpond's memory.

The servers that are not being measured stay up, and idle. Driven by bench/__main__.py.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rich.console import Console

from bench.broker.figures import Durability, Figure, combined
from bench.broker.processes import OthersLoad
from bench.broker.tables import print_figures
from bench.measuring import Measurement, Row, Target
from bench.queues import backlog
from bench.queues.systems import PEERS, ours
from bench.queues.trial import FULL, QUICK, SECTIONS, STAGES, Trial
from bench.tables import print_tables, progress
from bench.workspace import Workspace


def measure(console: Console, place: Workspace, *, quick: bool, peers: Sequence[str]) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    systems = [*ours(), *(each for name in peers if name in PEERS for each in PEERS[name]())]
    missing = {each.system.name: why for each in systems if (why := each.system.why_not_here())}
    trials = [Trial(each, place, scale) for each in systems if each.system.name not in missing]
    versions = {trial.name: trial.measured.system.version() for trial in trials}
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    load = OthersLoad()
    with ExitStack() as stack:
        for trial in trials:
            stack.callback(trial.close)
        rounds = _rounds(console, trials, scale.rounds)
    missing |= {trial.name: trial.failure for trial in trials if trial.failure}
    figures = combined(rounds, SECTIONS)
    print_figures(console, figures, missing, SECTIONS)
    rows = [*_beside_rabbitmq(figures), *backlog.measure(place, messages=scale.backlog)]
    print_tables(console, rows)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {
        "scale": scale.name,
        "versions": versions,
        "others_cores": others_cores,
        "figures": [each.document() for each in figures],
        "rows": [row.document() for row in rows],
        "not_here": missing,
    }


def _beside_rabbitmq(figures: Sequence[Figure]) -> list[Row]:
    """Messages a second, both on disk before they answer."""
    return [
        Row(
            section="as many times the messages of RabbitMQ's quorum queue",
            name=f"{each.section}, {each.workload}",
            value=times,
            unit="times",
            target=Target("value", least=1.0),
        )
        for each in figures
        if each.system == "RabbitMQ" and each.durability is Durability.SYNCED
        for times in [each.times.get("group", {}).get("messages_per_s")]
        if times is not None
    ]


def _rounds(console: Console, trials: Sequence[Trial], count: int) -> list[list[Figure]]:
    stages = [stage for stage in STAGES for _ in range(count)]
    turns = [
        (number, Measurement(f"{stage.title}: {trial.name}", partial(trial.run, stage)))
        for number, stage in enumerate(stages)
        for trial in trials
    ]
    rounds: list[list[Figure]] = [[] for _ in stages]
    with progress(console, [turn for _, turn in turns]) as running:
        for (number, _), turn in zip(turns, running, strict=True):
            rounds[number] += turn.run()
    return rounds
