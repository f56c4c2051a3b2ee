"""Clients that go on through whatever happens to a cluster, and what they saw: the history that is checked at the end.

A `Stream` is an idempotent producer in a thread, acks=all, numbered values to every partition in turn. A `Reader` is a
group's one member in a thread, that commits what it has read.

What must hold, whatever happened:
  every acknowledged value is in the log, at the offset that was acknowledged, once; in the order they were produced
  nothing is in the log that was not produced
  at one offset everybody reads the same value, always
  nobody is given again what it had committed

The number says the partition and the place in it, so a history is a few arrays: eight bytes for a message and for each
who saw it, and one walk over them to check it.
"""

import logging
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

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
UNSEEN = -1
LINES_MAX = 5_000


class Numbers:
    """A number for each place from 0 on, where one is known."""

    def __init__(self) -> None:
        self.known = array("q")

    def set(self, place: int, number: int) -> int:
        """What was there before."""
        if place >= len(self.known):
            self.known.extend([UNSEEN] * (place + 1 - len(self.known)))
        before, self.known[place] = self.known[place], number
        return before


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
        self.topic = topic
        self._partitions = partitions
        self._burst = burst
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._sent = 0
        self.offsets = [Numbers() for _ in range(partitions)]
        """Those that were acknowledged, by partition, in the order in which values were sent."""
        self.count = 0
        self.errors: list[KafkaError] = []
        self.violations: list[str] = []
        self.acknowledged_at = time.monotonic()
        self.gap_seconds = 0.0
        """The longest time between two acknowledgements."""
        self._thread = threading.Thread(target=self._send, name="stream", daemon=True)
        self._thread.start()

    @property
    def sent(self) -> dict[int, range]:
        """The numbers, by partition."""
        return {partition: range(partition, self._sent, self._partitions) for partition in range(self._partitions)}

    def _send(self) -> None:
        while not self._stopping.is_set():
            try:
                for _ in range(self._burst):
                    number = self._sent
                    partition = number % self._partitions
                    self._producer.produce(
                        self.topic, b"%-100d" % number, partition=partition, on_delivery=self._on_delivery
                    )
                    self._sent += 1
            except BufferError:
                self._producer.poll(POLL_SECONDS)
                continue
            self._producer.poll(self._pause_seconds)
        self._producer.flush(PATIENCE_SECONDS)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        number, offset = int(message.value() or b""), message.offset()
        assert offset is not None
        before = self.offsets[number % self._partitions].set(number // self._partitions, offset)
        if before != UNSEEN:
            self.violations.append(f"{number} was acknowledged twice, at {before} and at {offset}")
        now = time.monotonic()
        self.gap_seconds = max(self.gap_seconds, now - self.acknowledged_at)
        self.acknowledged_at = now
        self.count += 1

    def wait_more(self, count: int) -> None:
        """That many more than are acknowledged now."""
        wanted = self.count + count
        for _ in until(lambda: self.count >= wanted, what=f"{wanted} acknowledged", seconds_max=PATIENCE_SECONDS):
            assert self.errors == []
            threading.Event().wait(0.01)

    def finish(self) -> None:
        """Everything that was sent is acknowledged when this returns."""
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS + CLOSE_SECONDS_MAX)
        assert not self._thread.is_alive()
        assert self.errors == []
        assert self.violations == []
        assert self.count == self._sent, f"{self.count} of {self._sent} were acknowledged in time"

    def abandon(self) -> None:
        """Where something else went wrong: what is not acknowledged yet is given up."""
        self._stopping.set()
        if self._thread.is_alive():
            self._producer.purge()
            self._thread.join(CLOSE_SECONDS_MAX)


class Reader:
    def __init__(self, cluster: ClusterProcesses, topic: str, protocol: str, *, partitions: int) -> None:
        self.group = new_name("group")
        self.protocol = protocol
        self.lines = Lines(self.group)
        said = {"logger": self.lines.logger, "debug": "cgrp,consumer", "log_level": 7}
        self._consumer = new_consumer(cluster, group_id=self.group, **PROTOCOLS[protocol], **said)
        self._consumer.subscribe([topic])
        self.seen = [Numbers() for _ in range(partitions)]
        """By partition and offset."""
        self.count = 0
        self.committed: dict[int, int] = {}
        self.violations: list[str] = []
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
        partition, offset, number = message.partition(), message.offset(), int(message.value() or b"")
        assert partition is not None
        assert offset is not None
        before = self.seen[partition].set(offset, number)
        if before == UNSEEN:
            self.count += 1
        elif before != number:
            self.violations.append(f"{partition}@{offset} was {before} and is {number}")
        if offset < self.committed.get(partition, 0):
            self.violations.append(f"{partition}@{offset} came again, {self.committed[partition]} was committed")

    def _commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False) or []:
                if each.error is None:
                    self.committed[each.partition] = max(self.committed.get(each.partition, 0), each.offset)
        except KafkaException as error:
            # Its coordinator is elsewhere, or comes back: what was not committed may come again.
            self.lines.logger.warning("not committed: %s", error)

    def wait_all(self, stream: Stream) -> None:
        def is_all() -> bool:
            return self.count >= stream.count

        try:
            for _ in until(is_all, what=f"{stream.topic}, {self.protocol}: all read", seconds_max=PATIENCE_SECONDS):
                threading.Event().wait(0.2)
        except AssertionError as error:
            read = {partition: len(numbers.known) for partition, numbers in enumerate(self.seen)}
            sent = {partition: len(numbers) for partition, numbers in stream.sent.items()}
            error.add_note(f"it has read {self.count} messages, up to {read} of {sent}, and committed {self.committed}")
            raise

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.group} still waits for an answer after {CLOSE_SECONDS_MAX} s"
        self._consumer.close()


def read_all(cluster: ClusterProcesses, topic: str, ends: Sequence[int]) -> list[Numbers]:
    """Every partition, by offset, from its start to its end."""
    consumer = new_consumer(cluster)
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


def _ends(cluster: ClusterProcesses, topic: str, partitions: int) -> list[int]:
    consumer: Consumer = new_consumer(cluster)
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)[1]
            for partition in range(partitions)
        ]
    finally:
        consumer.close()


def check_log(cluster: ClusterProcesses, stream: Stream) -> None:
    """When everything has been acknowledged."""
    logs = read_all(cluster, stream.topic, _ends(cluster, stream.topic, len(stream.sent)))
    for partition, sent in stream.sent.items():
        where, found = f"{stream.topic}-{partition}", logs[partition].known
        assert found == array("q", sent), f"{where}: {_difference(found, sent)}"
        # Each place holds its own number now, so that an acknowledged offset is right where it is the place.
        told = stream.offsets[partition].known
        moved = [(place, offset) for place, offset in enumerate(told) if place != offset]
        assert not moved, f"{where}: not where it was acknowledged (place, offset): {moved[:10]} ({len(moved)})"


def check_reader(reader: Reader, stream: Stream) -> None:
    """When it has read everything, and the log holds what was sent."""
    where = f"{stream.topic}, {reader.protocol}"
    assert reader.violations == [], f"{where}: {reader.violations[:10]} ({len(reader.violations)})"
    for partition, sent in stream.sent.items():
        found = reader.seen[partition].known
        assert found == array("q", sent), f"{where}-{partition}: {_difference(found, sent)}"


def _difference(found: Sequence[int], wanted: Sequence[int]) -> str:
    counts = Counter(found)
    lost = sorted(set(wanted) - counts.keys())
    strange = sorted(counts.keys() - set(wanted))
    twice = sorted(number for number, count in counts.items() if count > 1)
    return f"{len(found)} of {len(wanted)}; " + ", ".join(
        f"{what} {numbers[:10]} ({len(numbers)})"
        for what, numbers in (("lost", lost), ("twice", twice), ("never sent", strange))
        if numbers
    )
