"""Mixed faults on three real brokers, chosen by a seed, under clients that never rest; then the history is checked.

    python -m tests.interop.chaos --seconds 60 --seed 7        (make chaos SECONDS=60 SEED=7)

Each broker has a network namespace and a disk of its own where the machine permits it (chaos_ground.py); what is done
to them is in chaos_faults.py, what clients do in traffic.py. The seed settles what is done to whom and for how long,
not how the machine's timing meets it: a run that fails is told by its seed and its story, and may need a few runs to
fail again. What brokers said and had on disk is kept then.

Invariant: a run ends by itself, a while after its seconds; the exit code is 0 only if nothing was lost, nothing came
twice, and no broker reported a bug of its own.
"""

import argparse
import json
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from tests.interop.chaos_faults import Faults, wait
from tests.interop.chaos_ground import Ground, Tell, prepared
from tests.interop.cluster_processes import ClusterBroker, ClusterProcesses, running_cluster
from tests.interop.confluent import new_admin
from tests.interop.traffic import PROTOCOLS, Reader, Stream, check_log

TRICKLE, FLOOD = "trickle", "flood"
PARTITIONS = 4
FLOOD_BURST = 10
CALM_SECONDS_MAX = 2.0
DOWN_SECONDS_MAX = 5.0
"""Longer than a session, or not."""
PATIENCE = 3.0
"""A run whose messages are not there after so many times its seconds has failed."""
DISK_BYTES, DISK_BYTES_PER_SECOND = 256 << 20, 2 << 20
"""They take no room on this machine until they are used."""


Flows = dict[Stream, list[Reader]]


class Chaos:
    def __init__(
        self, cluster: ClusterProcesses, ground: Ground, rng: random.Random, tell: Tell, *, only: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._faults = Faults(cluster, ground, rng, only=only)
        self._rng = rng
        self._tell = tell
        self.counts = Counter[str]()

    def run(self, seconds: float, streams: list[Stream], *, messages: int) -> None:
        """For that long, and until so many messages are acknowledged."""
        began = time.monotonic()
        for fault in self._faults.deal():
            elapsed = time.monotonic() - began
            count = sum(each.history.count for each in streams)
            if elapsed >= seconds and count >= messages:
                break
            assert elapsed < seconds * PATIENCE, f"{count} messages acknowledged in {elapsed:.0f} s"
            wait(self._rng.uniform(0, CALM_SECONDS_MAX))
            role, broker = self._victim()
            down_seconds = self._rng.uniform(0, DOWN_SECONDS_MAX)
            name = self._faults.name(fault)
            self._tell(f"{count:7} messages; {name}: broker {broker.node_id} ({role}), for {down_seconds:.1f} s")
            fault(broker, down_seconds)
            self.counts[name] += 1
            self._restart_failed()

    def _restart_failed(self) -> None:
        for node_id in self._faults.restart_failed():
            self._tell(f"broker {node_id} said that its disk failed, and was restarted")

    def wait_healthy(self) -> None:
        self._restart_failed()
        self._cluster.wait_healthy()

    def _victim(self) -> tuple[str, ClusterBroker]:
        role = self._rng.choice(["leader", "controller", "any"])
        number, partition = self._rng.choice(list(self._cluster.brokers)), self._rng.randrange(PARTITIONS)
        if role == "leader":
            return f"leads {FLOOD}-{partition}", self._cluster.leader_of(FLOOD, partition)
        if role == "controller":
            return "controller", self._cluster.controller()
        return "any", self._cluster.brokers[number]


@contextmanager
def traffic(cluster: ClusterProcesses, flows: Flows, *, flush: str) -> Iterator[None]:
    """Two topics, and who reads each: one gets a message at a time, the other as many as go into batches."""
    admin = new_admin(cluster)
    config = {"min.insync.replicas": "2", "millpond.flush": flush}
    topics = [NewTopic(topic, PARTITIONS, 3, config=config) for topic in (TRICKLE, FLOOD)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    try:
        for topic, burst in ((TRICKLE, 1), (FLOOD, FLOOD_BURST)):
            readers = flows.setdefault(Stream(cluster, topic, partitions=PARTITIONS, burst=burst), [])
            readers += [Reader(cluster, topic, protocol, partitions=PARTITIONS) for protocol in PROTOCOLS]
        yield
    finally:
        for stream in flows:
            stream.abandon()
        for readers in flows.values():
            for reader in readers:
                reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    seconds: float
    messages: int = 0
    """So many must be acknowledged at least."""
    only: Sequence[str] = ()
    """Names of faults; all of them where none is named."""
    flush: str = "group"
    """Of the topics; with another one a power cut may lose what was acknowledged."""


def run(directory: Path, ground: Ground, plan: Plan, tell: Tell) -> None:
    """Raises AssertionError where the history is wrong."""
    flows: Flows = {}
    with (
        running_cluster(directory, places=ground.places) as cluster,
        _kept_where_wrong(directory / "kept", cluster, ground, flows),
    ):
        chaos = Chaos(cluster, ground, random.Random(plan.seed), tell, only=plan.only)
        with traffic(cluster, flows, flush=plan.flush):
            for stream in flows:
                stream.history.wait_more(100)
            chaos.run(plan.seconds, list(flows), messages=plan.messages)
            tell(f"{chaos.counts.total()} faults are over; waiting for everybody to be in sync")
            chaos.wait_healthy()
            for stream in flows:
                stream.history.wait_more(100)
                stream.finish()
                check_log(cluster, stream.history)
            for stream, readers in flows.items():
                for reader in readers:
                    reader.history.wait_all(stream.history)
        for stream, readers in flows.items():
            for reader in readers:
                reader.history.check(stream.history)
        assert not cluster.bugs, cluster.bugs
        tell("faults: " + ", ".join(f"{count} {name}" for name, count in chaos.counts.most_common()))
        sent = [each.history for each in flows]
        tell(
            f"{sum(each.count for each in sent)} messages acknowledged, all there once and in order; longest time "
            f"without an acknowledgement {max(each.gap_seconds for each in sent):.1f} s; read by "
            f"{sum(map(len, flows.values()))} groups, none of it again"
        )


@contextmanager
def _kept_where_wrong(kept: Path, cluster: ClusterProcesses, ground: Ground, flows: Flows) -> Iterator[None]:
    """What brokers and groups said, and what brokers have on disk, as files."""
    try:
        yield
    except Exception:
        for node_id, broker in cluster.brokers.items():
            broker.end()
            shutil.copytree(ground.places[node_id].directory, kept / f"data-{node_id}")
            lines = "".join(json.dumps(line) + "\n" for line in broker.told)
            (kept / f"broker-{node_id}.jsonl").write_text(lines)
        for stream, readers in flows.items():
            for reader in readers:
                lines = "\n".join([*reader.lines.first, *reader.lines.last])
                (kept / f"reader-{stream.history.topic}-{reader.protocol}.log").write_text(lines)
        raise


class Storyteller:
    """Says what happens, and when."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stdout.flush()


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.chaos", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults go on; a run takes some more")
    parser.add_argument("--messages", type=int, default=0, help="go on until so many are acknowledged")
    parser.add_argument("--seed", type=int, default=None, help="drawn, and shown, otherwise")
    parser.add_argument("--only", action="append", default=[], help="a fault by its name, 'cut power'; may be repeated")
    parser.add_argument("--flush", default="group", help="of the topics: with 'none' a power cut must be seen to lose")
    parser.add_argument("--look", action="store_true", help="only say what this machine leaves out")
    parser.add_argument("--only-loopback", action="store_true", help="no namespaces and no disks of their own")
    parser.add_argument("--keep", type=Path, default=None, help="where to put what is left of a run that failed")
    return parser.parse_args()


def main() -> int:
    chosen = _asked()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    tell = Storyteller()
    tell(f"chaos for {chosen.seconds:.0f} s with seed {seed}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = Plan(seed=seed, seconds=chosen.seconds, messages=chosen.messages, only=chosen.only, flush=chosen.flush)
    disk_bytes = DISK_BYTES + int(chosen.seconds * PATIENCE) * DISK_BYTES_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="millpond-chaos-") as name:
        directory = Path(name)
        try:
            with prepared(directory, disk_bytes=disk_bytes, tell=tell, only_loopback=chosen.only_loopback) as ground:
                if not chosen.look:
                    run(directory, ground, plan, tell)
        except KeyboardInterrupt:
            tell("stopped by hand; nothing was checked")
            return 128 + signal.SIGINT
        except Exception as error:
            tell(f"FAILED with seed {seed}: {'; '.join([str(error), *getattr(error, '__notes__', ())])}")
            if (directory / "kept").exists():
                kept = chosen.keep or Path(tempfile.mkdtemp(prefix="millpond-chaos-failed-"))
                shutil.copytree(directory / "kept", kept, dirs_exist_ok=True)
                tell(f"what brokers said and had on disk is in {kept}")
            if not isinstance(error, AssertionError):
                raise
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
