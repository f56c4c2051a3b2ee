"""confluent-kafka's clients that go on through whatever happens to a cluster, and tell their histories.

A `Stream` is an idempotent producer in a thread, acks=all, numbered values to every partition in turn. A `Reader` is a
group's one member in a thread, that commits what it has read. What must hold of what they saw is in histories.py.
"""

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.cluster_processes import ClusterProcesses
from tests.interop.confluent import Reachable, new_consumer, new_producer
from tests.interop.facts import new_name, until
from tests.interop.histories import PATIENCE_SECONDS, Numbers, Read, Sent, value_of

POLL_SECONDS = 0.1
CLOSE_SECONDS_MAX = 30.0
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 6_000},
    "consumer": {"group_protocol": "consumer"},
}
LINES_MAX = 5_000


class Lines(logging.Handler):
    """What a client says of itself: its first lines and its last ones."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.logger = logging.getLogger(name)
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        self.logger.addHandler(self)
        self.first: list[str] = []
        self.last: deque[str] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{datetime.fromtimestamp(record.created, UTC).time()} {record.getMessage()}"
        if len(self.first) < LINES_MAX:
            self.first.append(line)
        else:
            self.last.append(line)


class Stream:
    def __init__(
        self, cluster: ClusterProcesses, topic: str, *, partitions: int, burst: int = 1, pause_seconds: float = 0.002
    ) -> None:
        """Sends `burst` values at a time, and at most a thousand times as many wait to be acknowledged."""
        waiting_max = 1_000 * burst
        self._producer = new_producer(
            cluster, enable_idempotence=True, acks="all", queue_buffering_max_messages=waiting_max, linger_ms=2
        )
        self.history = Sent(topic, partitions=partitions)
        self._burst = burst
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name="stream", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        try:
            self._send_until_stopped()
        except KafkaException as error:  # as an idempotent producer raises it, where what it sent before is gone
            self.history.errors.append(error)

    def _send_until_stopped(self) -> None:
        history = self.history
        while not self._stopping.is_set():
            try:
                for _ in range(self._burst):
                    number = history.total
                    partition = number % history.partitions
                    self._producer.produce(
                        history.topic, value_of(number), partition=partition, on_delivery=self._on_delivery
                    )
                    history.total += 1
            except BufferError:
                self._producer.poll(POLL_SECONDS)
                continue
            self._producer.poll(self._pause_seconds)
        self._producer.flush(PATIENCE_SECONDS)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.history.errors.append(error)
            return
        self.history.acknowledged(int(message.value() or b""), offset=message.offset())

    def finish(self) -> None:
        """Everything that was sent is acknowledged when this returns."""
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS + CLOSE_SECONDS_MAX)
        assert not self._thread.is_alive()
        self.history.check_all_acknowledged()

    def abandon(self) -> None:
        """Where something else went wrong: what is not acknowledged yet is given up."""
        self._stopping.set()
        if self._thread.is_alive():
            self._producer.purge()
            self._thread.join(CLOSE_SECONDS_MAX)


class Reader:
    def __init__(
        self, cluster: ClusterProcesses, topic: str, protocol: str, *, partitions: int, beside: "Reader | None" = None
    ) -> None:
        """Alone in a group of its own, or in that of another."""
        self.protocol = protocol
        self.history: Read = beside.history if beside else Read(new_name(f"{protocol}-group"), partitions=partitions)
        group = self.history.group
        self.lines = Lines(group)
        said = {"logger": self.lines.logger, "debug": "cgrp,consumer", "log_level": 7}
        self._consumer = new_consumer(cluster, group_id=group, **PROTOCOLS[protocol], **said)
        self._consumer.subscribe([topic])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(1_000, POLL_SECONDS)
            for message in messages:
                if (error := message.error()) is None:
                    self._note(message)
                else:
                    self.lines.logger.warning("%s", error)
            if any(message.error() is None for message in messages):
                self._commit()

    def _note(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.history.note(int(message.value() or b""), partition=partition, offset=offset)

    def _commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False) or []:
                if each.error is None:
                    self.history.commits(each.partition, offset=each.offset)
        except KafkaException as error:
            # Its coordinator is elsewhere, or comes back: what was not committed may come again.
            self.lines.logger.warning("not committed: %s", error)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS_MAX)
        if self._thread.is_alive():
            self._consumer.poll(0)  # what it has to say of the time since then is only told to who polls
        assert not self._thread.is_alive(), (
            f"{self.history.group} still waits for an answer after {CLOSE_SECONDS_MAX} s"
        )
        self._consumer.close()


def read_all(broker: Reachable, topic: str, ends: Sequence[int]) -> list[Numbers]:
    """Every partition, by offset, from its start to its end."""
    consumer = new_consumer(broker)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(ends))])
    found = [Numbers() for _ in ends]

    def is_all() -> bool:
        return all(len(each.known) >= end for each, end in zip(found, ends, strict=True))

    try:
        for _ in until(is_all, what=f"{sum(ends)} values", seconds_max=PATIENCE_SECONDS):
            for message in consumer.consume(1_000, POLL_SECONDS):
                if message.error() is None:
                    found[message.partition() or 0].set(message.offset() or 0, int(message.value() or b""))
        return found
    finally:
        consumer.close()


def _ends(broker: Reachable, topic: str, partitions: int) -> list[int]:
    consumer: Consumer = new_consumer(broker)
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)[1]
            for partition in range(partitions)
        ]
    finally:
        consumer.close()


def check_log(broker: Reachable, sent: Sent) -> None:
    """When everything has been acknowledged."""
    sent.check_log(read_all(broker, sent.topic, _ends(broker, sent.topic, sent.partitions)))
