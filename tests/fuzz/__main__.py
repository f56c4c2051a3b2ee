"""`python -m tests.fuzz --seed 7 --frames 200000`: a longer fuzz of a broker of its own, on a port of its own.

A finding is printed with its session and bytes. `--sessions 4711` (or 4000-4711) replays those sessions on a new
broker, `--replay HEX` sends those bytes, and prints what comes.
"""

import argparse
import random
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.run import BROKER_CONFIGS, Report, fuzz
from tests.interop.broker_process import BrokerProcess, running_broker

console = Console(highlight=False)
MIB = 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--frames", type=int, default=50_000, help="that reach the broker (default 50000)")
    parser.add_argument("--sessions", help="only these, such as 17 or 0-17")
    parser.add_argument("--replay", metavar="HEX", help="send these bytes, as a finding printed them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millpond-fuzz-") as directory:
        try:
            with running_broker(Path(directory) / "data", BROKER_CONFIGS) as broker:
                if arguments.replay:
                    replay(broker, bytes.fromhex(arguments.replay))
                    findings = 0
                else:
                    findings = run(broker, arguments.seed, arguments.frames, arguments.sessions)
            with running_broker(Path(directory) / "data", BROKER_CONFIGS):
                console.print("the data directory opens again")
        except Exception as error:
            console.print("".join(traceback.format_exception(error)), markup=False, soft_wrap=True)
            findings = 1
        if findings:
            again = f"python -m tests.fuzz --seed {arguments.seed} --frames {arguments.frames}"
            console.print(f"[red]seed {arguments.seed} failed[/]; run it again with: {again}")
    return 1 if findings else 0


def run(broker: BrokerProcess, seed: int, frames: int, sessions: str | None) -> int:
    columns = TextColumn(f"seed {seed}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    numbers = None
    if sessions is not None:
        first, _, last = sessions.partition("-")
        numbers = range(int(first), int(last or first) + 1)
    began = time.monotonic()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("frames", total=frames)

        def show(report: Report) -> None:
            progress.update(bar, completed=report.frames)

        report = fuzz(broker, seed=seed, frames=frames, sessions=numbers, on_progress=show)
    seconds = time.monotonic() - began
    console.print(
        f"{report.frames} frames in {report.sessions} sessions, {report.frames / seconds:.0f} "
        f"a second; the neighbour went {report.rounds} rounds, the longest {report.neighbour_seconds_max * 1000:.0f} ms"
    )
    console.print("memory: " + ", ".join(f"{size / MIB:.0f} MiB after {at}" for at, size in report.memory))
    for kind, finding in report.findings.items():
        console.print(f"\n[red]found[/] {report.counts[kind]} times: {finding}", soft_wrap=True)
        console.print("\n".join(finding.__notes__), markup=False, soft_wrap=True)
    return len(report.findings)


def replay(broker: BrokerProcess, stream: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as peer:
        peer.sendall(stream)
        try:
            while received := peer.recv(1 << 20):
                console.print(f"received {received.hex()}", markup=False)
            console.print("the connection ended")
        except TimeoutError:
            console.print("the connection is open")


if __name__ == "__main__":
    sys.exit(main())
