"""Our client beside three others: how many messages a second, and how many in a second of the client's processor time.

Each figure is a ratio of runs in turns, each run a process of its own, on one broker that takes every batch to disk
before it answers. Driven by bench/__main__.py.
"""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from bench.broker.figures import Durability
from bench.broker.millpond import RunningMillpond
from bench.broker.processes import OthersLoad
from bench.client.works import KAFKA_PYTHON, MILLPOND, PEERS, SEND_MANY, WORKS
from bench.measuring import Measurement, Row, Target
from bench.tables import print_tables, progress
from bench.workspace import Workspace

PER_S, PER_CPU_S = "messages/s", "messages per CPU second"
SLOW: Final = (KAFKA_PYTHON,)
"""Fewer messages say as much of these: what it takes to start is little beside them even so."""
SEND_MANY_MIN: Final = 1_000_000
READ_TOPIC: Final = "to-read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    messages: int
    messages_of_slow: int
    rounds: int


FULL = Scale(name="full", messages=300_000, messages_of_slow=100_000, rounds=3)
QUICK = Scale(name="quick", messages=2_000, messages_of_slow=2_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Speed:
    per_s: float
    per_cpu_s: float


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    load = OthersLoad()
    rows: list[Row] = []
    with place.directory() as directory:
        server = RunningMillpond(directory)
        try:
            server.process.wait_for(lambda: server.make_queue(READ_TOPIC, Durability.SYNCED))
            _run(SEND_MANY, MILLPOND, server, READ_TOPIC, scale.messages)
            measurements = [Measurement(work, lambda work=work: _beside(work, server, scale)) for work in WORKS]  # type: ignore[misc]
            with progress(console, measurements) as each:
                for measurement in each:
                    rows += measurement.run()
        finally:
            server.stop()
    print_tables(console, rows)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {"scale": scale.name, "others_cores": others_cores, "rows": [row.document() for row in rows]}


def _beside(work: str, server: RunningMillpond, scale: Scale) -> list[Row]:
    speeds: dict[str, list[Speed]] = {client: [] for client in (MILLPOND, *PEERS)}
    is_sending = work.startswith("send")
    for number in range(scale.rounds):
        for client, measured in speeds.items():
            topic = f"{work}-{client}-{number}".replace(" ", "-") if is_sending else READ_TOPIC
            if is_sending:
                server.make_queue(topic, Durability.SYNCED)
            count = scale.messages_of_slow if client in SLOW else scale.messages
            measured.append(_run(work, client, server, topic, count))
    rows = []
    for peer in PEERS:
        pairs = list(zip(speeds[MILLPOND], speeds[peer], strict=True))
        rows.append(_row(work, peer, PER_S, [(ours.per_s, theirs.per_s) for ours, theirs in pairs]))
    for peer in PEERS:
        pairs = list(zip(speeds[MILLPOND], speeds[peer], strict=True))
        rows.append(_row(work, peer, PER_CPU_S, [(ours.per_cpu_s, theirs.per_cpu_s) for ours, theirs in pairs]))
    return rows


def _row(work: str, peer: str, unit: str, pairs: list[tuple[float, float]]) -> Row:
    return Row(
        section=work,
        name=f"{unit}, beside {peer}",
        value=statistics.median(ours for ours, _ in pairs),
        unit="",
        raw=statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(ours / theirs for ours, theirs in pairs),
        compared_with=peer,
        target=Target("value", least=SEND_MANY_MIN) if (work, unit) == (SEND_MANY, PER_CPU_S) else None,
    )


def _run(work: str, client: str, server: RunningMillpond, topic: str, count: int) -> Speed:
    command = [sys.executable, "-m", "bench.client.worker", work, client, f"127.0.0.1:{server.port}", topic, str(count)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{client} could not {work}: {done.stderr[-1_000:]}")
    took = json.loads(done.stdout.splitlines()[-1])
    return Speed(count / took["seconds"], count / max(took["cpu_seconds"], 1e-9))
