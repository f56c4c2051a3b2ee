"""`python -m bench [suite|all]`: tables here, and JSON in bench/results."""

import argparse
import json
import signal
import sys
from pathlib import Path

from bench import delays
from bench.broker import suite as broker
from bench.broker.peers import PEERS
from bench.client import suite as client
from bench.cluster import suite as cluster
from bench.grpc import suite as grpc
from bench.http import suite as http
from bench.pipeline import suite as pipeline
from bench.queues import suite as queues
from bench.storage import suite as storage
from bench.tables import make_console, print_head
from bench.workspace import machine_facts, workspace

SUITES = ("storage", "broker", "cluster", "client", "http", "grpc", "queues", "delays", "pipeline")
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="The storage engine beside plain system calls, the broker beside its peers, a cluster of three, "
        "the client beside others, the HTTP door beside a bare framework, what Spark reads and writes beside its own.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=(*SUITES, "all"),
        default="all",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds; its figures mean nothing")
    parser.add_argument("--dir", help="a directory on the disk to measure; the usual temporary one otherwise")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the directory to write the figures into, as JSON")
    parser.add_argument(
        "--peers",
        default=",".join(PEERS),
        help="brokers to stand beside, with commas between, or `none`; those that are here of %(default)s otherwise",
    )
    parser.add_argument(
        "--works",
        default="",
        metavar="TEXT",
        help="of the pipeline: only works with this in their name, as `7 columns`",
    )
    chosen = parser.parse_args()
    peers = [name for name in chosen.peers.split(",") if name and name != "none"]
    if unknown := set(peers) - set(PEERS):
        parser.error(f"--peers names {', '.join(sorted(unknown))}; allowed are {', '.join(PEERS)} and none")
    # A bench that is told to stop ends its servers as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    console = make_console()
    with workspace(chosen.dir) as place:
        for name in SUITES if chosen.what == "all" else (chosen.what,):
            machine = machine_facts(place)
            print_head(console, machine)
            if name == "storage":
                figures = storage.measure(console, place, quick=chosen.quick)
            elif name == "cluster":
                figures = cluster.measure(console, place, quick=chosen.quick)
            elif name == "client":
                figures = client.measure(console, place, quick=chosen.quick)
            elif name == "http":
                figures = http.measure(console, place, quick=chosen.quick)
            elif name == "grpc":
                figures = grpc.measure(console, place, quick=chosen.quick)
            elif name == "pipeline":
                figures = pipeline.measure(console, place, quick=chosen.quick, works_named=chosen.works)
            elif name == "queues":
                figures = queues.measure(console, place, quick=chosen.quick, peers=peers)
            elif name == "delays":
                figures = delays.measure(console, place, quick=chosen.quick)
            else:
                figures = broker.measure(console, place, quick=chosen.quick, peers=peers)
            chosen.out.mkdir(parents=True, exist_ok=True)
            path = chosen.out / f"{name}.json"
            path.write_text(json.dumps({"machine": machine, **figures}, indent=1) + "\n")
            console.print(f"written to {path}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
