"""How fast a broker that was away copies what it missed, beside a plain copy of the same bytes that is synced.

Invariant: the time counts from when the broker is live again until every replica has everything.
"""

import os
import shutil
import time
from pathlib import Path

from confluent_kafka import Producer

from bench.cluster.cluster import BROKERS, RunningCluster
from bench.measuring import Row

TOPIC = "missed"
_VALUE = os.urandom(10_000)
_SECONDS_MAX = 120.0


def catching_up(cluster: RunningCluster, directory: Path, *, megabytes: int) -> list[Row]:
    cluster.make_topic(TOPIC, partitions=len(BROKERS))
    away = BROKERS[-1]
    cluster.stop_one(away)
    _produce(cluster, megabytes)
    cluster.start(away)
    cluster.wait_live()
    begin = time.perf_counter()
    cluster.wait_in_sync()
    ours_s = time.perf_counter() - begin
    size = sum(log.stat().st_size for log in cluster.logs_of(away, TOPIC))
    raw_s = _copy(cluster.logs_of(away, TOPIC), directory)
    return [
        Row(
            section="catching up",
            name=f"{megabytes} MB that a broker missed",
            value=size / ours_s / 1e6,
            unit="MB/s",
            raw=size / raw_s / 1e6,
            ratio=raw_s / ours_s,
            compared_with="a copy of the same files, synced",
        )
    ]


def _produce(cluster: RunningCluster, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(megabytes * 100):
        while True:
            try:
                producer.produce(TOPIC, _VALUE, partition=number % len(BROKERS))
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_SECONDS_MAX):
        raise TimeoutError(f"{left:,} messages were not acknowledged")


def _copy(files: list[Path], directory: Path) -> float:
    begin = time.perf_counter()
    for number, file in enumerate(files):
        target = directory / f"copy-{number}"
        shutil.copyfile(file, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
    return time.perf_counter() - begin
