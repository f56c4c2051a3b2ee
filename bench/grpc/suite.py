"""The gRPC door: records a second in raw batches, messages a second in calls and streams.

The server has one core and whoever asks another, where there are two. What is sent is kept: the broker syncs before
it answers. Per CPU second is what one core of the server's own time does, which holds on a machine that others use too.
This process has no grpcio of its own: it starts others, which grpcio does not always survive.
Driven by bench/__main__.py.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.broker.processes import OthersLoad, ServerProcess, free_port
from bench.grpc.names import RAW_FETCH, RAW_PRODUCE, READS, WORKS
from bench.measuring import Measurement, Row, Target
from bench.tables import print_tables, progress
from bench.workspace import Workspace

RECORDS_PER_S_MIN: Final = 1_000_000
TO_READ: Final = "to-read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    records: int
    """In raw batches."""
    messages: int
    """Otherwise; and a tenth of it where each is a request."""
    rounds: int


FULL = Scale(name="full", records=2_000_000, messages=200_000, rounds=3)
QUICK = Scale(name="quick", records=20_000, messages=2_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Speed:
    per_s: float
    per_cpu_s: float


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    process: ServerProcess


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    load = OthersLoad()
    rows: list[Row] = []
    with place.directory() as directory, _millpond(directory) as server:
        _run(RAW_PRODUCE, server, TO_READ, scale.messages)
        measurements = [Measurement(work, lambda work=work: _rows(work, server, scale)) for work in WORKS]  # type: ignore[misc]
        with progress(console, measurements) as each:
            for measurement in each:
                rows += measurement.run()
    print_tables(console, rows)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {"scale": scale.name, "others_cores": others_cores, "rows": [row.document() for row in rows]}


def _rows(work: str, server: Server, scale: Scale) -> list[Row]:
    is_raw = work in (RAW_PRODUCE, RAW_FETCH)
    count = scale.records if is_raw else scale.messages // 10 if ", one a " in work else scale.messages
    speeds = []
    for number in range(scale.rounds):
        topic = TO_READ if work in READS else f"{work}-{number}".replace(" ", "-").replace(",", "")
        speeds.append(_run(work, server, topic, count))
    unit = "records" if is_raw else "messages"
    target = Target("value", least=RECORDS_PER_S_MIN) if is_raw else None
    return [
        Row(
            section=work,
            name=f"{unit}/s",
            value=statistics.median(each.per_s for each in speeds),
            unit="",
            target=target,
        ),
        Row(
            section=work,
            name=f"{unit} per CPU second",
            value=statistics.median(each.per_cpu_s for each in speeds),
            unit="",
        ),
    ]


@contextmanager
def _millpond(directory: Path) -> Iterator[Server]:
    port = free_port()
    kafka, address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "millpond.cli", "up", "--log-format", "json", "--data-dir", "data"]
    process = ServerProcess([*command, "--kafka", kafka, "--http", "off", "--grpc", address], directory, None)
    try:
        cores = os.sched_getaffinity(0)
        if len(cores) > 1:
            os.sched_setaffinity(process.pid, {min(cores)})
        process.wait_for(lambda: socket.create_connection(("127.0.0.1", port), timeout=1).close())
        yield Server(address, process)
    finally:
        process.stop()


def _run(work: str, server: Server, topic: str, count: int) -> Speed:
    command = [sys.executable, "-m", "bench.grpc.worker", work, server.address, topic, str(count)]
    spent = server.process.cpu_seconds()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    spent = server.process.cpu_seconds() - spent
    if done.returncode:
        raise RuntimeError(f"could not do {work}: {done.stderr[-1_000:]}")
    took = json.loads(done.stdout.splitlines()[-1])
    return Speed(took["done"] / took["seconds"], took["done"] / max(spent, 1e-9))
