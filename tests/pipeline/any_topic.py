"""A topic with whatever a log may hold, in a real broker, and what a plain consumer reads of it: librdkafka, by
confluent-kafka, which shares no code with the reader under test.

Drawn by hypothesis: batches of every codec or none, headers, nulls, times by the producer or by the log, holes where
compaction has been (of records, of batches), markers of transactions, delayed messages that wait, deleted prefixes.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from hypothesis import strategies as st

from millpond.core.delivery.parked_format import parked_batch
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.records import (
    Codec,
    NewRecord,
    decode_batch,
    encode_batch,
    encode_survivors,
    parse_header,
    stamp_append_time,
)
from millpond.testing.broker import InProcessBroker

TIMES_MS = st.integers(1_000, 1_060)
LONG_AGO_MS = 1
"""Of what no consumer is shown: a broker that is asked for a time would answer with its place."""
"""Near each other, so that many are asked for that are there."""
CONTENTS = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text("abc", max_size=3), CONTENTS), max_size=3).map(tuple)
POLL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Topic:
    name: str
    rows: list[Row] = field(default_factory=list)
    """As a consumer reads them, by partition and offset."""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """By partition."""


@st.composite
def records(draw: st.DrawFn) -> list[NewRecord]:
    if draw(st.booleans()):  # alike, as measurements are
        return [NewRecord(draw(CONTENTS), draw(CONTENTS), TimestampMs(draw(TIMES_MS)))] * draw(st.integers(1, 40))
    one = st.builds(NewRecord, CONTENTS, CONTENTS, TIMES_MS, HEADERS if draw(st.booleans()) else st.just(()))
    return draw(st.lists(one, min_size=1, max_size=12))


def _marker() -> bytes:
    """That a transaction was committed."""
    key, value = (0).to_bytes(2, "big") + (1).to_bytes(2, "big"), bytes(6)
    return encode_batch(
        [NewRecord(value, key, TimestampMs(LONG_AGO_MS))],
        control=True,
        transactional=True,
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(0),
        base_sequence=SequenceNumber(-1),
    )


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    kind = draw(
        st.sampled_from(["plain", "plain", "plain", "holes", "holes", "empty", "by the log", "marker", "parked"])
    )
    if kind == "marker":
        return _marker()
    batch = encode_batch(draw(records()), codec=draw(st.sampled_from(Codec)))
    if kind == "parked":
        return parked_batch(batch, [10**15] * parse_header(batch).record_count, now=LONG_AGO_MS)
    if kind in ("holes", "empty"):  # a log covers every offset: where all of a batch are gone, its header stays
        survivors = [each for each in decode_batch(batch) if kind == "holes" and draw(st.booleans())]
        return encode_survivors(survivors, of=parse_header(batch))
    if kind == "by the log":
        changed = bytearray(batch)
        stamp_append_time(changed, timestamp=TimestampMs(draw(TIMES_MS)))
        return bytes(changed)
    return batch


def logs() -> st.SearchStrategy[list[list[bytes]]]:
    """By partition."""
    return st.lists(st.lists(batches(), max_size=6), min_size=1, max_size=3)


class Ground:
    """A broker, and the consumer that everything is compared with."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self._made: set[str] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "the-reference",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
                "fetch.error.backoff.ms": 5,
                "fetch.queue.backoff.ms": 5,
                "topic.metadata.refresh.fast.interval.ms": 5,
                "isolation.level": "read_uncommitted",
                "log_level": 2,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def topic(self, partitions: list[list[bytes]]) -> Topic:
        """One name always, since librdkafka takes most of a second to find a new one: what was there is deleted."""
        made = Topic(f"any-of-{len(partitions)}")
        if made.name not in self._made:
            self._made.add(made.name)
            self.broker.create_topic(made.name, partitions=len(partitions), configs={"retention.ms": "-1"})
        for number in range(len(partitions)):
            self.broker.run(partial(self._delete, made.name, number, None))
        self.append(made, partitions)
        return made

    def append(self, topic: Topic, partitions: list[list[bytes]]) -> None:
        for number, some in enumerate(partitions):
            self.broker.run(partial(self._append, topic.name, number, some))
        self.look(topic)

    async def _append(self, topic: str, number: int, some: list[bytes]) -> None:
        partition = self.broker.broker.node.partitions.named(topic, number)
        assert partition is not None
        for batch in some:
            partition.append(bytearray(batch), is_own=True)
        await partition.log.flush()

    def delete_before(self, topic: Topic, number: int, offset: int) -> None:
        self.broker.run(partial(self._delete, topic.name, number, offset))
        self.look(topic)

    async def _delete(self, topic: str, number: int, before: int | None) -> None:
        partition = self.broker.broker.node.partitions.named(topic, number)
        assert partition is not None
        await partition.log.delete_before(Offset(partition.log.next_offset if before is None else before))

    def look(self, topic: Topic) -> None:
        """What is there now, by a plain consumer."""
        logs = [self.broker.broker.node.partitions.named(topic.name, number) for number in range(8)]
        there = [each for each in logs if each is not None]
        topic.starts = [each.log.start_offset for each in there]
        topic.ends = [each.high_watermark for each in there]
        assert topic.ends == [each.log.next_offset for each in there]
        topic.rows = self._consumed(topic)

    def _consumed(self, topic: Topic) -> list[Row]:
        partitions = len(topic.starts)
        self._consumer.assign([TopicPartition(topic.name, *each) for each in enumerate(topic.starts)])
        found: list[Row] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = self._consumer.poll(POLL_SECONDS)
            assert message is not None, "the plain consumer reads nothing"
            error = message.error()
            if error is None:
                found.append(_row(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:  # it calls an answer of nothing but batches without records too large, and goes on
                assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE or error.retriable(), error
        return sorted(found, key=lambda row: (row.partition, row.offset))


def _row(message: Any) -> Row:  # noqa: ANN401 - confluent's message has no types
    kind, moment = message.timestamp()
    return Row(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        moment,
        kind - 1,
        tuple(message.headers() or ()),
    )
