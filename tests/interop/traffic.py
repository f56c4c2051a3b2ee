"""Clients that go on through whatever happens to a cluster, and what they saw: the history that is checked at the end.

A `Stream` is an idempotent producer in a thread, acks=all, numbered values to every partition in turn. A `Reader` is a
group's one member in a thread, that commits what it has read.

What must hold, whatever happened:
  every acknowledged value is in the log, at the offset that was acknowledged, once; in the order they were produced
  nothing is in the log that was not produced
  at one offset everybody reads the same value, always
  nobody is given again what it had committed
"""

import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.cluster_processes import ClusterProcesses
from tests.interop.confluent import new_consumer, new_producer
from tests.interop.facts import new_name, until

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 90.0
"""For clients to get through what was done to their cluster."""
CLOSE_SECONDS_MAX = 30.0
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 6_000},
    "consumer": {"group_protocol": "consumer"},
}


class Stream:
    def __init__(self, cluster: ClusterProcesses, topic: str, *, partitions: int, pause_seconds: float = 0.002) -> None:
        self._producer = new_producer(
            cluster, enable_idempotence=True, acks="all", queue_buffering_max_messages=500, linger_ms=2
        )
        self._topic = topic
        self._partitions = partitions
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self.sent: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self.acknowledged: dict[int, dict[int, bytes]] = {partition: {} for partition in range(partitions)}
        """By partition, then by offset."""
        self.count = 0
        self.errors: list[KafkaError] = []
        self.acknowledged_at = time.monotonic()
        self.gap_seconds = 0.0
        """The longest time between two acknowledgements."""
        self._thread = threading.Thread(target=self._send, name="stream")
        self._thread.start()

    def _send(self) -> None:
        number = 0
        while not self._stopping.is_set():
            partition, value = number % self._partitions, b"%d" % number
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(POLL_SECONDS)
                continue
            self.sent[partition].append(value)
            number += 1
            self._producer.poll(self._pause_seconds)
        self._producer.flush(PATIENCE_SECONDS)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][offset] = message.value() or b""
        now = time.monotonic()
        self.gap_seconds = max(self.gap_seconds, now - self.acknowledged_at)
        self.acknowledged_at = now
        self.count += 1

    def wait_more(self, count: int) -> None:
        """That many more than are acknowledged now."""
        wanted = self.count + count
        for _ in until(lambda: self.count >= wanted, what=f"{wanted} acknowledged", seconds_max=PATIENCE_SECONDS):
            threading.Event().wait(0.01)

    def finish(self) -> None:
        """Everything that was sent is acknowledged when this returns."""
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS + CLOSE_SECONDS_MAX)
        assert not self._thread.is_alive()
        assert self.errors == []
        assert self.count == sum(map(len, self.sent.values())), "not all were acknowledged in time"

    def abandon(self) -> None:
        """Where something else went wrong: what is not acknowledged yet is given up."""
        self._stopping.set()
        if self._thread.is_alive():
            self._producer.purge()
            self._thread.join(CLOSE_SECONDS_MAX)


class Reader:
    def __init__(self, cluster: ClusterProcesses, topic: str, protocol: str) -> None:
        self.group = new_name("group")
        self.protocol = protocol
        self._settings = {"group_id": self.group, **PROTOCOLS[protocol]}
        self._consumer = new_consumer(cluster, **self._settings)
        self._consumer.subscribe([topic])
        self.seen: dict[tuple[int, int], bytes] = {}
        self.committed: dict[int, int] = {}
        self.violations: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            messages = [each for each in self._consumer.consume(200, POLL_SECONDS) if each.error() is None]
            for message in messages:
                self._note(message)
            if messages:
                self._commit()

    def _note(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value() or b""
        assert partition is not None
        assert offset is not None
        before = self.seen.setdefault((partition, offset), value)
        if before != value:
            self.violations.append(f"{partition}@{offset} was {before!r} and is {value!r}")
        if offset < self.committed.get(partition, 0):
            self.violations.append(f"{partition}@{offset} came again, {self.committed[partition]} was committed")

    def _commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False) or []:
                if each.error is None:
                    self.committed[each.partition] = max(self.committed.get(each.partition, 0), each.offset)
        except KafkaException:
            pass  # its coordinator is elsewhere, or comes back: what was not committed may come again

    def wait_all(self, stream: Stream) -> None:
        def is_all() -> bool:
            return len(self.seen) >= sum(map(len, stream.sent.values()))

        for _ in until(is_all, what=f"{self.protocol}: everything read", seconds_max=PATIENCE_SECONDS):
            threading.Event().wait(0.2)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS_MAX)
        assert not self._thread.is_alive()
        self._consumer.close()


def read_all(cluster: ClusterProcesses, topic: str, ends: Mapping[int, int]) -> dict[int, list[tuple[int, bytes]]]:
    """Offsets and values of every partition, from its start to its end."""
    consumer = new_consumer(cluster)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in ends}
    try:
        wanted = sum(ends.values())
        for _ in until(
            lambda: sum(map(len, found.values())) >= wanted, what=f"{wanted} values", seconds_max=PATIENCE_SECONDS
        ):
            for message in consumer.consume(1_000, POLL_SECONDS):
                if message.error() is None:
                    found[message.partition() or 0].append((message.offset() or 0, message.value() or b""))
        return found
    finally:
        consumer.close()


def _ends(cluster: ClusterProcesses, topic: str, partitions: int) -> dict[int, int]:
    consumer: Consumer = new_consumer(cluster)
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)[1]
            for partition in range(partitions)
        }
    finally:
        consumer.close()


def check_history(cluster: ClusterProcesses, topic: str, stream: Stream, *readers: Reader) -> None:
    """When everything has been acknowledged, and read."""
    logs = read_all(cluster, topic, _ends(cluster, topic, len(stream.sent)))
    for partition, sent in stream.sent.items():
        values = [value for _, value in logs[partition]]
        assert values == sent, f"partition {partition}: {_difference(values, sent)}"
        at = dict(logs[partition])
        moved = {offset: value for offset, value in stream.acknowledged[partition].items() if at.get(offset) != value}
        assert not moved, f"partition {partition}: acknowledged at another offset: {moved}"
    for reader in readers:
        assert reader.violations == []
        for (partition, offset), value in reader.seen.items():
            assert dict(logs[partition][offset : offset + 1]).get(offset) == value, (partition, offset, value)


def _difference(found: list[bytes], wanted: list[bytes]) -> str:
    lost = sorted(set(wanted) - set(found), key=int)
    twice = sorted({value for value in found if found.count(value) > 1}, key=int) if len(found) < 50_000 else []
    return f"{len(found)} of {len(wanted)}; lost {lost[:10]} ({len(lost)}), twice {twice[:10]} ({len(twice)})"
