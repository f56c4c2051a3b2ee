"""Millpond as a broker, then each peer that is here, one after the other. Driven by bench/__main__.py."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console

from bench.broker.figures import SECTIONS, Figure, documents
from bench.broker.librdkafka import KCAT
from bench.broker.millpond import Millpond
from bench.broker.peers import PEERS
from bench.broker.systems import System
from bench.broker.tables import print_figures
from bench.broker.trial import FULL, QUICK, Trial
from bench.tables import progress
from bench.workspace import Workspace


def measure(console: Console, place: Workspace, *, quick: bool, peers: Sequence[str]) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    systems: list[System] = [Millpond(), *(system for name in peers for system in PEERS[name]())]
    missing = {system.name: why for system in systems if (why := system.why_not_here())}
    if not shutil.which(KCAT):
        missing[KCAT] = "not installed; confluent-kafka is the same library"
    trials = [Trial(system, place, scale) for system in systems if system.name not in missing]
    figures: list[Figure] = []
    with ExitStack() as stack:
        for trial in trials:
            stack.callback(trial.close)
        with progress(console, [each for trial in trials for each in trial.measurements()]) as each:
            for measurement in each:
                figures += measurement.run()
    missing |= {trial.system.name: trial.failure for trial in trials if trial.failure}
    order = [section.name for section in SECTIONS]
    figures.sort(key=lambda figure: order.index(figure.section))
    print_figures(console, figures, missing)
    return {"scale": scale.name, "figures": documents(figures), "not_here": missing}
