"""The HTTP door on one core: requests a second beside bare endpoints of a framework, and messages a second in arrays.

Each figure is a ratio of runs in turns. The server has one core and whoever asks another, where there are two. Requests
per CPU second are what one core of the server's own time does: that holds on a machine that others use too.
Driven by bench/__main__.py.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from rich.console import Console

from bench.broker.processes import OthersLoad, ServerProcess, free_port
from bench.measuring import Measurement, Row, Target
from bench.tables import print_tables, progress
from bench.workspace import Workspace

STARLETTE, ASGI = "starlette", "asgi"
NAMES: Final = {STARLETTE: "Starlette on uvicorn, bare", ASGI: "uvicorn alone, bare"}
CONNECTIONS: Final = 256
"""So many that the disk is not what is waited for: they share its syncs."""
ARRAY_CONNECTIONS: Final = 4
ARRAY_MESSAGES: Final = 1_000
VALUE: Final = "x" * 100
RATIO_MIN: Final = 0.5
ARRAY_MESSAGES_MIN: Final = 150_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    seconds: float
    rounds: int


FULL = Scale(name="full", seconds=4.0, rounds=5)
QUICK = Scale(name="quick", seconds=1.0, rounds=1)


@dataclass(frozen=True, slots=True)
class Speed:
    per_s: float
    per_cpu_s: float


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: ServerProcess


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    load = OthersLoad()
    rows: list[Row] = []
    with place.directory() as directory, _millpond(directory) as ours:
        measurements = [
            Measurement("one message a request", lambda: _one_by_one(ours, directory, scale)),
            Measurement("arrays", lambda: _arrays(ours, scale)),
        ]
        with progress(console, measurements) as each:
            for measurement in each:
                rows += measurement.run()
    print_tables(console, rows)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {"scale": scale.name, "others_cores": others_cores, "rows": [row.document() for row in rows]}


def _one_by_one(ours: Server, directory: Path, scale: Scale) -> list[Row]:
    request = _request({"topic": "bench", "key": None, "value": VALUE})
    speeds: dict[str, list[Speed]] = {"ours": [], STARLETTE: [], ASGI: []}
    with _bare(STARLETTE, directory) as starlette, _bare(ASGI, directory) as asgi:
        servers = {"ours": ours, STARLETTE: starlette, ASGI: asgi}
        for _ in range(scale.rounds):
            for name, server in servers.items():
                speeds[name].append(_ask(server, request, CONNECTIONS, scale.seconds))
    rows = []
    for peer in (STARLETTE, ASGI):
        pairs = list(zip(speeds["ours"], speeds[peer], strict=True))
        target = Target("ratio", least=RATIO_MIN) if peer == STARLETTE else None
        for unit, both in (
            ("requests/s", [(mine.per_s, theirs.per_s) for mine, theirs in pairs]),
            ("requests per CPU second", [(mine.per_cpu_s, theirs.per_cpu_s) for mine, theirs in pairs]),
        ):
            rows.append(
                Row(
                    section="POST /produce, one message of 100 B a request",
                    name=f"{unit}, beside {NAMES[peer]}",
                    value=statistics.median(mine for mine, _ in both),
                    unit="",
                    raw=statistics.median(theirs for _, theirs in both),
                    ratio=statistics.median(mine / theirs for mine, theirs in both),
                    compared_with=NAMES[peer],
                    target=target,
                )
            )
    return rows


def _arrays(ours: Server, scale: Scale) -> list[Row]:
    send = _request([{"topic": "bench", "value": VALUE}] * ARRAY_MESSAGES)
    read = _head("GET", f"/consume?topic=bench&partition=0&offset=0&count={ARRAY_MESSAGES}", b"")
    rows = []
    for verb, request, target in (("produce", send, ARRAY_MESSAGES_MIN), ("consume", read, None)):
        speeds = [_ask(ours, request, ARRAY_CONNECTIONS, scale.seconds) for _ in range(scale.rounds)]
        for unit, values in (
            ("messages/s", [each.per_s for each in speeds]),
            ("messages per CPU second", [each.per_cpu_s for each in speeds]),
        ):
            rows.append(
                Row(
                    section=f"Messages of 100 B, {ARRAY_MESSAGES:,} a request",
                    name=f"{verb}, {unit}",
                    value=statistics.median(values) * ARRAY_MESSAGES,
                    unit="",
                    target=None if target is None else Target("value", least=target),
                )
            )
    return rows


# Servers


@contextmanager
def _millpond(directory: Path) -> Iterator[Server]:
    kafka, port = free_port(), free_port()
    command = [sys.executable, "-m", "millpond.cli", "up", "--log-format", "json", "--data-dir", "data"]
    with _running([*command, "--kafka", f"127.0.0.1:{kafka}", "--http", f"127.0.0.1:{port}"], directory, port) as ours:
        ours.process.wait_for(lambda: _get(f"http://127.0.0.1:{port}/health"))
        _ask(ours, _request({"topic": "bench", "value": VALUE}), 1, 0.1)  # makes the topic
        yield ours


@contextmanager
def _bare(kind: str, directory: Path) -> Iterator[Server]:
    port = free_port()
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "bench.http.bare", kind, str(port)]
    with _running(command, directory, port, environ={"PYTHONPATH": str(root)}) as server:
        request = _request({"topic": "bench", "value": VALUE})
        server.process.wait_for(lambda: _check(_ask(server, request, 1, 0.05)))
        yield server


@contextmanager
def _running(command: list[str], directory: Path, port: int, environ: dict[str, str] | None = None) -> Iterator[Server]:
    process = ServerProcess(command, directory, environ)
    try:
        if _cores() > 1:
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        yield Server(port, process)
    finally:
        process.stop()


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _get(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


def _check(speed: Speed) -> Speed:
    if not speed.per_s:
        raise ConnectionRefusedError("it does not answer yet")
    return speed


# Asking


def _request(body: object) -> bytes:
    return _head("POST", "/produce", json.dumps(body).encode())


def _head(method: str, path: str, content: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def _ask(server: Server, request: bytes, connections: int, seconds: float) -> Speed:
    arguments = [str(server.port), str(connections), str(seconds)]
    command = [sys.executable, "-m", "bench.http.worker", *arguments]
    spent = server.process.cpu_seconds()
    done = subprocess.run(command, check=False, input=request, capture_output=True, timeout=120, preexec_fn=_elsewhere)
    spent = server.process.cpu_seconds() - spent
    if done.returncode:
        if b"ConnectionRefusedError" in done.stderr:
            raise ConnectionRefusedError("nobody listens yet")
        raise RuntimeError(done.stderr.decode(errors="replace")[-1_000:])
    took = json.loads(done.stdout)
    return Speed(took["answered"] / took["seconds"], took["answered"] / max(spent, 1e-9))


def _elsewhere() -> None:
    """On the cores that the server does not have."""
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        os.sched_setaffinity(0, mine - {min(mine)})
