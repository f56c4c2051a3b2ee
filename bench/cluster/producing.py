"""How fast three brokers take messages, each kept by two before it is acknowledged; and how soon, at a rate.

Invariant: a run counts only if every message was acknowledged.
"""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.driving import MESSAGE
from bench.broker.librdkafka import CONFLUENT, KCAT
from bench.broker.peers.cache import kcat
from bench.cluster.bare import BareChain
from bench.cluster.cluster import BROKERS, RunningCluster
from bench.measuring import Row, Target, percentile

PARTITIONS = len(BROKERS)
_FIRST_SECONDS = 1.0
_CHUNK = 10_000
_SECONDS_MAX = 120.0
_BATCHED: dict[str, str | int | float | bool] = {
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
_TICK_SECONDS = 0.001
_WANTED_MESSAGES_PER_S, _WANTED_P99_MS = 250_000, 10.0


@dataclass(frozen=True, slots=True)
class Way:
    """Of producing at a rate."""

    partitions: int
    linger_ms: int
    """How long the producer gathers messages."""

    def __str__(self) -> str:
        return f"{self.partitions} partition{'s' if self.partitions > 1 else ''}, linger {self.linger_ms} ms"


def batched(cluster: RunningCluster, directory: Path, *, messages: int) -> list[Row]:
    rows = []
    for name, work in ((KCAT, _with_kcat), (CONFLUENT, _with_confluent)):
        if name == KCAT and not kcat():
            continue
        topic = f"batched-{name}"
        cluster.make_topic(topic, partitions=PARTITIONS)
        cpu_s, begin = cluster.cpu_seconds(), time.perf_counter()
        work(cluster, directory, topic, messages)
        seconds = time.perf_counter() - begin
        cpu_us = (cluster.cpu_seconds() - cpu_s) / messages * 1e6
        rows += [
            Row(
                section="produce, batched",
                name=name,
                value=messages / seconds,
                unit="messages/s",
                target=Target("value", least=_WANTED_MESSAGES_PER_S),
            ),
            Row(section="produce, batched", name=f"{name}, CPU of all brokers", value=cpu_us, unit="µs/message"),
        ]
    return rows


def _with_confluent(cluster: RunningCluster, directory: Path, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **_BATCHED})
    messages = [{"value": MESSAGE}] * _CHUNK
    for number, first in enumerate(range(0, count, _CHUNK)):
        producer.produce_batch(topic, messages[: count - first], partition=number % PARTITIONS)
    if left := producer.flush(_SECONDS_MAX):
        raise TimeoutError(f"{left:,} messages were not acknowledged")


def _with_kcat(cluster: RunningCluster, directory: Path, topic: str, count: int) -> None:
    lines = directory / "lines"
    lines.write_bytes((MESSAGE + b"\n") * count)
    options = [option for name, value in _BATCHED.items() for option in ("-X", f"{name}={str(value).lower()}")]
    command = [kcat() or KCAT, "-b", cluster.bootstrap, "-P", "-t", topic, "-l", str(lines), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS_MAX)
    lines.unlink()
    if done.returncode:
        raise RuntimeError(f"kcat failed: {done.stderr[-500:]}")


def at_a_rate(
    cluster: RunningCluster, directory: Path, *, messages_per_s: int, rounds: int, seconds: float, ways: Sequence[Way]
) -> list[Row]:
    """How long each message takes from `produce` to its acknowledgement, as librdkafka counts it.

    In turns with a bare chain of the same hops. A machine that stands still for a moment spoils a round of either, so
    that the quietest of them is told beside all together.
    """
    ours: dict[Way, list[list[float]]] = {way: [] for way in ways}
    bare: dict[Way, list[list[float]]] = {way: [] for way in ways}
    hops = BareChain(directory)
    try:
        for number in range(rounds):
            for way in ways:
                topic = f"at-a-rate-{way.partitions}-{way.linger_ms}"
                if number == 0:
                    cluster.make_topic(topic, partitions=way.partitions)
                ours[way].append(_times(cluster, topic, way, messages_per_s=messages_per_s, seconds=seconds))
                bare[way].append(
                    hops.times(MESSAGE, messages_per_s=messages_per_s, seconds=seconds, linger_ms=way.linger_ms)
                )
    finally:
        hops.close()
    section = f"produce, {messages_per_s:,} messages/s"
    return [row for way in ways for row in _rows_of_times(section, way, ours[way], bare[way])]


def _times(cluster: RunningCluster, topic: str, way: Way, *, messages_per_s: int, seconds: float) -> list[float]:
    """In seconds. Without those of the first second, in which files and connections are made."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": way.linger_ms})
    first: list[float] = []
    later: list[float] = []
    errors: list[KafkaError] = []

    def note(times: list[float], error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            times.append(message.latency() or 0.0)

    note_first, note_later = partial(note, first), partial(note, later)
    begin = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - begin) < _FIRST_SECONDS + seconds:
        on_delivery = note_first if elapsed < _FIRST_SECONDS else note_later
        while sent < elapsed * messages_per_s:
            producer.produce(topic, MESSAGE, partition=sent % way.partitions, on_delivery=on_delivery)
            sent += 1
        producer.poll(_TICK_SECONDS)
    producer.flush(_SECONDS_MAX)
    if errors or len(first) + len(later) != sent:
        raise RuntimeError(f"of {sent:,} messages some were not acknowledged: {errors[:1]}")
    return later


def _rows_of_times(section: str, way: Way, ours: list[list[float]], bare: list[list[float]]) -> list[Row]:
    raw_s = _percentiles(bare)
    return [
        Row(
            section=section,
            name=f"{way}, {name}",
            value=ours_s * 1000,
            unit="ms",
            raw=raw_s[name] * 1000,
            ratio=raw_s[name] / ours_s,
            compared_with="bare sockets, write, sync",
            target=Target("value", most=_WANTED_P99_MS) if name == "p99" else None,
        )
        for name, ours_s in _percentiles(ours).items()
    ]


def _percentiles(rounds: list[list[float]]) -> dict[str, float]:
    together = sorted(chain.from_iterable(rounds))
    return {
        "p50": percentile(together, 0.5),
        "p99": percentile(together, 0.99),
        "p99.9": percentile(together, 0.999),
        "quietest p99": min(percentile(sorted(times), 0.99) for times in rounds),
    }
