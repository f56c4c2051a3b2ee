"""How fast three brokers take messages, each kept by two before it is acknowledged; and how soon, at a rate.

Invariant: a run counts only if every message was acknowledged.
"""

import math
import statistics
import subprocess
import time
from functools import partial
from itertools import chain
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.driving import MESSAGE
from bench.broker.librdkafka import CONFLUENT, KCAT
from bench.broker.peers.cache import kcat
from bench.cluster.cluster import BROKERS, RunningCluster
from bench.measuring import Row, Target, percentile

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
_WANTED_MESSAGES_PER_S, _WANTED_P99_MS = 250_000, 10.0


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
    cluster: RunningCluster, *, messages_per_s: int, seconds: float, partitions: int, linger_ms: int
) -> list[Row]:
    """How long each message takes from `produce` to its acknowledgement, as librdkafka counts it.

    Those of the first second, in which files and connections are made, are told apart from the others. The second in
    the middle, of all by their p99, is told as well: a machine that stands still for a moment spoils one or two.
    """
    topic = f"at-a-rate-{partitions}-{linger_ms}"
    cluster.make_topic(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": linger_ms})
    by_second: list[list[float]] = [[] for _ in range(1 + math.ceil(seconds))]
    errors: list[KafkaError] = []

    def note(times: list[float], error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            times.append(message.latency() or 0.0)

    notes = [partial(note, times) for times in by_second]
    begin = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - begin) < 1 + seconds:
        while sent < elapsed * messages_per_s:
            producer.produce(topic, MESSAGE, partition=sent % partitions, on_delivery=notes[int(elapsed)])
            sent += 1
        producer.poll(_TICK_SECONDS)
    producer.flush(_SECONDS_MAX)
    if errors or sum(map(len, by_second)) != sent:
        raise RuntimeError(f"of {sent:,} messages some were not acknowledged: {errors[:1]}")
    what = f"{partitions} partition{'s' if partitions > 1 else ''}, linger {linger_ms} ms"
    return _rows_of_times(f"produce, {messages_per_s:,} messages/s", what, by_second)


def _rows_of_times(section: str, what: str, by_second: list[list[float]]) -> list[Row]:
    first, *others = [sorted(times) for times in by_second]
    later = sorted(chain.from_iterable(others))
    seconds = {
        "p50": percentile(later, 0.5),
        "p99": percentile(later, 0.99),
        "p99.9": percentile(later, 0.999),
        "p99 of the second in the middle": statistics.median(percentile(times, 0.99) for times in others),
        "p99 of the first second": percentile(first, 0.99),
    }
    wanted = Target("value", most=_WANTED_P99_MS)
    return [
        Row(
            section=section,
            name=f"{what}, {name}",
            value=value * 1000,
            unit="ms",
            target=wanted if name == "p99" else None,
        )
        for name, value in seconds.items()
    ]
