"""Kafka's C client, librdkafka, as kcat and as confluent-kafka: batches on the way in, batches on the way out.

Invariant: a run counts only if all its messages are there: produced ones by the end of the partition, read ones by
count.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.broker.driving import MESSAGE
from bench.broker.peers.cache import kcat
from bench.broker.processes import ServerProcess
from bench.broker.systems import Run, timed_run

KCAT = "kcat"
CONFLUENT = "confluent-kafka"
_RUN_SECONDS_MAX = 120.0
_CHUNK = 10_000
_PRODUCER: dict[str, str | int | float | bool] = {
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
_CONSUMER: dict[str, str | int | float | bool] = {"queued.min.messages": 1_000_000, "check.crcs": False}


def produce_many(port: int, topic: str, count: int, process: ServerProcess, directory: Path) -> list[Run]:
    """`topic` is empty before, and holds the messages of all runs afterwards."""
    ways: dict[str, Callable[[], None]] = {CONFLUENT: lambda: _produce_with_confluent(port, topic, count)}
    runs = []
    with _lines(directory, count) as lines:
        if kcat():
            ways = {
                KCAT: lambda: _kcat(port, "-P", "-t", topic, "-p", "0", "-l", str(lines), settings=_PRODUCER),
                **ways,
            }
        for number, (name, work) in enumerate(ways.items(), start=1):
            runs.append(timed_run(name, count, process, work))
            end = _end_offset(port, topic)
            if end != number * count:
                raise RuntimeError(f"{name} sent {count:,} messages, and the partition ends at {end:,}")
    return runs


def consume_many(port: int, topic: str, count: int, process: ServerProcess) -> list[Run]:
    ways: dict[str, Callable[[], None]] = {CONFLUENT: lambda: _consume_with_confluent(port, topic, count)}
    if kcat():
        arguments = ("-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count))
        ways = {KCAT: lambda: _kcat(port, *arguments, settings=_CONSUMER), **ways}
    return [timed_run(name, count, process, work) for name, work in ways.items()]


def _produce_with_confluent(port: int, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", **_PRODUCER})
    messages = [{"value": MESSAGE}] * _CHUNK
    for first in range(0, count, _CHUNK):
        producer.produce_batch(topic, messages[: count - first], partition=0)
    if left := producer.flush(_RUN_SECONDS_MAX):
        raise TimeoutError(f"{left:,} messages were not acknowledged")


def _consume_with_confluent(port: int, topic: str, count: int) -> None:
    consumer = _consumer(port)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count
        while left > 0:
            messages = consumer.consume(num_messages=min(left, _CHUNK), timeout=_RUN_SECONDS_MAX)
            if not messages or messages[0].error() is not None:
                raise RuntimeError(f"{left:,} of {count:,} messages did not come")
            left -= len(messages)
    finally:
        consumer.close()


def _end_offset(port: int, topic: str) -> int:
    consumer = _consumer(port)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_RUN_SECONDS_MAX)
        return int(end)
    finally:
        consumer.close()


def _consumer(port: int) -> Consumer:
    return Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench", "enable.auto.commit": False, **_CONSUMER}
    )


def _kcat(port: int, *arguments: str, settings: dict[str, str | int | float | bool]) -> None:
    options = [option for name, value in settings.items() for option in ("-X", f"{name}={str(value).lower()}")]
    done = subprocess.run(
        [kcat() or KCAT, "-b", f"127.0.0.1:{port}", *arguments, *options],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_RUN_SECONDS_MAX,
    )
    if done.returncode:
        raise RuntimeError(f"kcat failed: {done.stderr[-500:]}")


@contextmanager
def _lines(directory: Path, count: int) -> Iterator[Path]:
    """A file of messages for kcat."""
    path = directory / "lines"
    path.write_bytes((MESSAGE + b"\n") * count)
    try:
        yield path
    finally:
        path.unlink()
