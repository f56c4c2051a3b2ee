"""Mixed faults on three real brokers, chosen by a seed, under clients that never rest; then the history is checked.

    python -m tests.interop.chaos --seconds 60 --seed 7        (make chaos SECONDS=60 SEED=7)

The seed settles what is done to whom and for how long, not how the machine's timing meets it: a run that fails is
told by its seed and its story, and may need a few runs to fail again. At most one broker is down at a time, so that
there is always a majority, but for the times when all are killed together.

Invariant: a run ends by itself, a while after its seconds; the exit code is 0 only if nothing was lost, nothing came
twice, and no broker reported a bug of its own.
"""

import argparse
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from tests.interop.cluster_processes import ClusterBroker, ClusterProcesses, running_cluster
from tests.interop.confluent import new_admin
from tests.interop.traffic import PROTOCOLS, Reader, Stream, check_history

TOPIC = "chaos"
PARTITIONS = 4
CALM_SECONDS_MAX = 2.0
DOWN_SECONDS_MAX = 5.0
"""Longer than a session, or not."""

Tell = Callable[[str], None]


class Chaos:
    def __init__(self, cluster: ClusterProcesses, rng: random.Random, tell: Tell) -> None:
        self._cluster = cluster
        self._rng = rng
        self._tell = tell
        self._faults: dict[Callable[[ClusterBroker, float], None], int] = {
            self._kill: 4,
            self._pause: 3,
            self._restart: 2,
            self._kill_twice: 1,
            self._kill_all: 1,
        }

    def run(self, seconds: float) -> int:
        """The number of faults."""
        ends = time.monotonic() + seconds
        count = 0
        while time.monotonic() < ends:
            self._wait(self._rng.uniform(0, CALM_SECONDS_MAX))
            (fault,) = self._rng.choices(list(self._faults), list(self._faults.values()))
            role, broker = self._victim()
            down_seconds = self._rng.uniform(0, DOWN_SECONDS_MAX)
            self._tell(f"{fault.__name__.strip('_')} broker {broker.node_id} ({role}), for {down_seconds:.1f} s")
            fault(broker, down_seconds)
            count += 1
        return count

    def _victim(self) -> tuple[str, ClusterBroker]:
        role = self._rng.choice(["leader", "controller", "any"])
        number, partition = self._rng.choice(list(self._cluster.brokers)), self._rng.randrange(PARTITIONS)
        if role == "leader":
            return f"leads {TOPIC}-{partition}", self._cluster.leader_of(TOPIC, partition)
        if role == "controller":
            return "controller", self._cluster.controller()
        return "any", self._cluster.brokers[number]

    def _kill(self, broker: ClusterBroker, seconds: float) -> None:
        broker.kill()
        self._wait(seconds)
        broker.start()

    def _pause(self, broker: ClusterBroker, seconds: float) -> None:
        broker.pause()
        self._wait(seconds)
        broker.resume()

    def _restart(self, broker: ClusterBroker, seconds: float) -> None:
        broker.stop()
        self._wait(seconds)
        broker.start()

    def _kill_twice(self, broker: ClusterBroker, seconds: float) -> None:
        """Once more while it recovers."""
        broker.kill()
        broker.launch()
        self._wait(min(seconds, 1.0))
        broker.kill()
        broker.start()

    def _kill_all(self, broker: ClusterBroker, seconds: float) -> None:
        for each in self._cluster.brokers.values():
            each.kill()
        self._wait(min(seconds, 1.0))
        self._cluster.launch()

    def _wait(self, seconds: float) -> None:
        """Time is what the fault is made of here; nothing is asserted about it."""
        threading.Event().wait(seconds)


def run(directory: Path, *, seed: int, seconds: float, tell: Tell) -> None:
    """Raises AssertionError where the history is wrong."""
    with running_cluster(directory) as cluster:
        admin = new_admin(cluster)
        made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})])
        made[TOPIC].result(30)
        stream = Stream(cluster, TOPIC, partitions=PARTITIONS)
        readers = [Reader(cluster, TOPIC, protocol) for protocol in PROTOCOLS]
        try:
            stream.wait_more(100)
            faults = Chaos(cluster, random.Random(seed), tell).run(seconds)
            tell(f"{faults} faults are over; waiting for everybody to be in sync")
            cluster.wait_healthy()
            stream.wait_more(100)
            stream.finish()
            for reader in readers:
                reader.wait_all(stream)
        finally:
            stream.abandon()
            for reader in readers:
                reader.close()
        check_history(cluster, TOPIC, stream, *readers)
        assert not cluster.bugs, cluster.bugs
        tell(
            f"{stream.count} messages acknowledged, all there once and in order; longest time without an "
            f"acknowledgement {stream.gap_seconds:.1f} s; read by {len(readers)} groups, none of it again"
        )


class Storyteller:
    """Says what happens, and when."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.chaos", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults go on; a run takes some more")
    parser.add_argument("--seed", type=int, default=None, help="drawn, and shown, otherwise")
    chosen = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    tell = Storyteller()
    tell(f"chaos for {chosen.seconds:.0f} s with seed {seed}")
    with tempfile.TemporaryDirectory(prefix="millpond-chaos-") as directory:
        try:
            run(Path(directory), seed=seed, seconds=chosen.seconds, tell=tell)
        except AssertionError as error:
            tell(f"FAILED with seed {seed}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
