"""How fast three brokers take messages, each kept by two before it is acknowledged; and how soon, at a rate.

Invariant: a run counts only if every message was acknowledged.
"""

import subprocess
import time
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.driving import MESSAGE
from bench.broker.librdkafka import CONFLUENT, KCAT
from bench.broker.peers.cache import kcat
from bench.cluster.cluster import BROKERS, RunningCluster
from bench.measuring import Row, percentile

PARTITIONS = len(BROKERS)
_CHUNK = 10_000
_SECONDS_MAX = 120.0
_BATCHED: dict[str, str | int | float | bool] = {
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
_TICK_SECONDS = 0.001
_FIRST_SECONDS = 1.0


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
            Row(section="produce, batched", name=name, value=messages / seconds, unit="messages/s"),
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
    cluster: RunningCluster, *, messages_per_s: int, seconds: float, partitions: int, linger_ms: int
) -> list[Row]:
    """How long each message takes from `produce` to its acknowledgement, as librdkafka counts it.

    Those of the first second, in which files and connections are made, are told apart from the others."""
    topic = f"at-a-rate-{partitions}-{linger_ms}"
    cluster.make_topic(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": linger_ms})
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
            producer.produce(topic, MESSAGE, partition=sent % partitions, on_delivery=on_delivery)
            sent += 1
        producer.poll(_TICK_SECONDS)
    producer.flush(_SECONDS_MAX)
    if errors or len(first) + len(later) != sent:
        raise RuntimeError(f"of {sent:,} messages some were not acknowledged: {errors[:1]}")
    section = f"produce, {messages_per_s:,} messages/s"
    what = f"{partitions} partition{'s' if partitions > 1 else ''}, linger {linger_ms} ms"
    shares = (("p50", later, 0.5), ("p99", later, 0.99), ("p99.9", later, 0.999), ("first second, p99", first, 0.99))
    return [
        Row(section=section, name=f"{what}, {name}", value=percentile(sorted(times), share) * 1000, unit="ms")
        for name, times, share in shares
    ]
