"""`make pipeline-failover`: the exactly-once sink, while brokers and the query that writes are killed.

Three brokers; a query copies one topic to another. The leader of a partition that is written to is killed with -9, or
the query, or both; who is dead is started again. At the end every row is in the topic once.

Ends by itself: 0 where all is right, 1 where something is wrong, or the time is over.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from millpond.client.blocking import Admin, Producer
from tests.interop.cluster_processes import ClusterProcesses, running_cluster
from tests.pipeline.chaos_processes import DEATH_SECONDS_MAX, Driver, wait_until
from tests.pipeline.topics import everything

SOURCE, TARGET = "copied.from", "copied.to"
PARTITIONS = 3
VICTIMS = ("leader", "leader", "query", "both")
MOMENT_SECONDS_MAX = 3.0
TRIES = 3


class Failover:
    def __init__(self, cluster: ClusterProcesses, folder: Path, rng: random.Random, seconds_max: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._began = time.monotonic()
        self._seconds_max = seconds_max
        self._checkpoint = folder / "checkpoint"
        given = ("--bootstrap", cluster.address, "--source", SOURCE, "--target", TARGET)
        self.query = Driver(
            [sys.executable, "-m", "tests.pipeline.copying", *given, "--checkpoint", str(self._checkpoint)],
            folder / "query.log",
        )
        self.killed = Counter[str]()

    def say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:5.0f} s  {text}\n")
        sys.stdout.flush()

    @property
    def _left(self) -> float:
        left = self._seconds_max - (time.monotonic() - self._began)
        assert left > 0, "its time is over"
        return left

    def _micro_batches(self) -> int:
        return len(list((self._checkpoint / "offsets").glob("[0-9]*")))

    def kill(self, victim: str, numbers: range) -> None:
        """While these rows are copied, in a micro-batch that has just begun, as far as can be told from outside."""
        if self.query.is_dead:
            self.query.start(is_short=True)
        before = self._micro_batches()
        send(self._cluster.address, numbers)
        wait_until(lambda: self._micro_batches() > before or self.query.is_dead, self._left)
        time.sleep(self._rng.choice((0.0, self._rng.uniform(0, MOMENT_SECONDS_MAX))))
        leader = self._cluster.leader_of(TARGET, self._rng.randrange(PARTITIONS))
        if victim != "query":
            leader.kill()
        if victim != "leader":
            self.query.kill("all of it", self._rng)
            self.query.wait(DEATH_SECONDS_MAX)
        self.killed[victim] += 1
        time.sleep(self._rng.uniform(0, MOMENT_SECONDS_MAX))
        if victim != "query":
            leader.start()
            self._cluster.wait_healthy()
        self.say(f"killed: {victim} (broker {leader.node_id} led), in micro-batch {self._micro_batches() - 1}")

    def finish(self) -> None:
        self.query.end()
        for _ in range(TRIES):
            self.query.start("--to-the-end")
            if self.query.wait(self._left) == 0:
                return
        raise AssertionError(f"the query does not come to its end: {self.query.log.read_text()[-2000:]}")


def check(bootstrap: str, rows: int) -> None:
    there = Counter((each.key, each.value) for each in everything(bootstrap, TARGET))
    wanted = {(b"%d" % (number % 97), b"row %d" % number) for number in range(rows)}
    twice = [row for row, count in there.items() if count > 1]
    missing = wanted - there.keys()
    assert not twice, f"{len(twice)} rows are there more than once, such as {twice[:3]}"
    assert not missing, f"{len(missing)} rows are missing, such as {sorted(missing)[:3]}"
    assert there.keys() == wanted, f"rows that nobody wrote: {sorted(there.keys() - wanted)[:3]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millpond-failover-") as made, running_cluster(Path(made)) as cluster:
        proof = Failover(cluster, Path(made), random.Random(given.seed), given.minutes * 60)
        proof.say(f"seed {given.seed}: {given.rows:,} rows, {given.kills} kills")
        try:
            run(proof, cluster.address, given.rows, given.kills, random.Random(given.seed))
        except AssertionError as error:
            proof.say(f"WRONG: {str(error)[:2000]}")
            sys.exit(1)
        finally:
            proof.query.end()


def send(bootstrap: str, numbers: range) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(
            SOURCE, [b"row %d" % each for each in numbers], keys=[b"%d" % (each % 97) for each in numbers]
        )


def run(proof: Failover, bootstrap: str, rows: int, kills: int, rng: random.Random) -> None:
    with Admin(bootstrap) as admin:
        for topic in (SOURCE, TARGET):
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"})
    victims = [rng.choice(VICTIMS) for _ in range(kills)]
    # Kill by kill, so that there is always something to copy, however fast the machine is.
    bounds = [rows * number // (kills + 1) for number in range(kills + 2)]
    for victim, (start, end) in zip(victims, pairwise(bounds), strict=False):
        proof.kill(victim, range(start, end))
    send(bootstrap, range(bounds[-2], rows))
    proof.finish()
    check(bootstrap, rows)
    kinds = ", ".join(f"{name} {count}" for name, count in proof.killed.most_common())
    proof.say(f"all {rows:,} rows are there, each once, after {kills} kills ({kinds}) and {proof.query.starts} starts")


if __name__ == "__main__":
    main()
