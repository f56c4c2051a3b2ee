"""`df.write.format("millpond")` and `df.writeStream.format("millpond")`: Arrow in, record batches out.

    value      binary or string   null is a tombstone
    key        binary or string   optional
    topic      string             optional where the option topic is given; a row that has one goes there
    partition  int                optional; null leaves it to the key
    headers    array of {key: string, value: binary}   optional

At least once: a task that failed and is tried again sends its rows again. Within one try nothing is sent twice and
nothing leaves its order, however often a broker has to be asked: a task is an idempotent producer.

Invariant: when `write` returns, everything it was given is acknowledged by all in-sync replicas.
Driven by Spark, in its tasks.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millpond.client.batches import BATCH_BYTES_EXTRA, Batch
from millpond.client.delivery import finished
from millpond.client.outbox import Outbox
from millpond.client.sender import Sender
from millpond.client.settings import ProducerSettings
from millpond.model.errors import InvalidRecord, InvalidSetting, UnknownTopicOrPartition
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.model.limits import MIB
from millpond.pipeline.complaints import plainly
from millpond.pipeline.encode import check_headers, cut_by_size, encode_rows, lengths_of
from millpond.pipeline.link import Link
from millpond.pipeline.options import WriteOptions
from millpond.pipeline.partitioning import by_key
from millpond.pipeline.varints import Numbers

BUFFER_BYTES: Final = 32 * MIB
_TAKEN: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    rows: int
    batches: int


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_all(self._options, iterator)


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_all(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: what tasks wrote is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What tasks wrote stays: at least once."""


def check_schema(schema: StructType, options: WriteOptions) -> None:
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in columns:
        raise InvalidSetting(
            f"there is no column value among {', '.join(columns) or 'none'}; what is to be sent is in it, as binary or "
            'string: df.select(to_json(struct("*")).alias("value")) sends rows as JSON'
        )
    for name, kind in columns.items():
        if name not in _TAKEN:
            raise InvalidSetting(f"column {name} means nothing to a topic; drop it. There are: {', '.join(_TAKEN)}")
        if kind not in _TAKEN[name]:
            raise InvalidSetting(f"column {name} is {kind}; it is {' or '.join(_TAKEN[name])}. Cast it")
    if "topic" not in columns and options.topic is None:
        raise InvalidSetting("no topic is named; set the option topic, or add a column topic")


@plainly
def write_all(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    context = TaskContext.get()
    turn = 0 if context is None else context.partitionId()
    with Link(options.connection) as link:
        writer = link.run(_Writer.made(link, options, turn))
        rows = 0
        try:
            for batch in batches:
                for topic, part in by_topic(batch, options.topic):
                    link.run(writer.send(topic, part))
                    rows += part.num_rows
            return RowsWritten(rows, link.run(writer.settle(0)))
        finally:
            link.run(writer.close())


def by_topic(batch: pa.RecordBatch, default: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if "topic" not in batch.schema.names:
        assert default is not None, "check_schema saw to it"
        yield default, batch
        return
    topics = batch.column("topic")
    if topics.null_count:
        if default is None:
            raise InvalidRecord("a row has no topic; give it one, or set the option topic for those without")
        topics = topics.fill_null(default)
    for name in pc.unique(topics).to_pylist():
        yield name, batch.filter(pc.equal(topics, name))


class _Writer:
    """One task's rows on their way. Lives in the link's loop."""

    def __init__(self, link: Link, options: WriteOptions, turn: int) -> None:
        self._cluster = link.cluster
        self._codec = options.codec
        self._batch_bytes = options.batch_bytes
        self._turn = turn
        settings = ProducerSettings(batch_bytes=options.batch_bytes)
        self._settings = settings
        self._outbox = Outbox(settings, backoff=self._cluster.settings.backoff, rng=self._cluster.settings.rng)
        self._sender = Sender(self._cluster, self._outbox, settings, on_progress=lambda: None)
        self._loop = asyncio.get_running_loop()
        self._sent: list[Batch] = []
        self._done = 0

    @classmethod
    async def made(cls, link: Link, options: WriteOptions, turn: int) -> "_Writer":
        return cls(link, options, turn)

    async def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Returns when all are on their way, and no more than the buffer holds is not acknowledged."""
        partitions = len((await self._cluster.topic(topic, create=True)).partitions)
        keys, values, headers = _columns(rows)
        chosen = self._places(topic, rows, keys, partitions)
        order = np.argsort(chosen, kind="stable")
        bounds = np.searchsorted(chosen[order], np.arange(partitions + 1))
        for number in range(partitions):
            mine = order[bounds[number] : bounds[number + 1]]
            if len(mine):
                parts = [None if each is None else each.take(pa.array(mine)) for each in (keys, values, headers)]
                await self._send_to(TopicPartition(topic, number), *parts)
        self._turn += 1

    def _places(self, topic: str, rows: pa.RecordBatch, keys: pa.Array, partitions: int) -> Numbers:
        chosen = by_key(keys, partitions=partitions, without_key=self._turn % partitions)
        if "partition" in rows.schema.names:
            told = rows.column("partition")
            chosen = np.where(told.is_null(), chosen, told.fill_null(0)).astype(np.int64)
            wrong = chosen[(chosen < 0) | (chosen >= partitions)]
            if len(wrong):
                raise UnknownTopicOrPartition(
                    f"a row says partition {wrong[0]} of topic {topic}, which has 0 to {partitions - 1}"
                )
        return chosen

    async def _send_to(self, at: TopicPartition, keys: pa.Array, values: pa.Array, headers: pa.Array | None) -> None:
        sizes = np.maximum(lengths_of(keys), 0) + np.maximum(lengths_of(values), 0) + _header_sizes(headers, len(keys))
        for part in cut_by_size(sizes, bytes_max=self._batch_bytes):
            encoded = encode_rows(
                keys[part.start : part.stop],
                values[part.start : part.stop],
                None if headers is None else headers[part.start : part.stop],
                timestamp=TimestampMs(self._cluster.settings.wall_ms()),
                codec=self._codec,
            )
            now = self._loop.time()
            batch = Batch(at, now=now, expires=now + self._settings.delivery_seconds_max)
            batch.encoded, batch.count, batch.is_sealed = encoded, part.stop - part.start, True
            batch.size = len(encoded) + BATCH_BYTES_EXTRA
            self._outbox.add_batch(batch)
            self._sender.wake()
            self._sent.append(batch)
            await asyncio.sleep(0)
            await self.settle(BUFFER_BYTES)

    async def settle(self, bytes_max: int) -> int:
        """Waits until no more than this is not acknowledged; raises what could not be sent. Batches done so far."""
        while self._sent and (self._outbox.buffered_bytes > bytes_max or self._sent[0].outcome is not None):
            batch = self._sent.pop(0)
            await finished(batch)
            assert batch.outcome is not None
            if batch.outcome.error is not None:
                raise batch.outcome.error
            self._done += 1
        return self._done

    async def close(self) -> None:
        await self._sender.close()


def _columns(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    names = rows.schema.names
    values = _as_binary(rows.column("value"))
    keys = _as_binary(rows.column("key")) if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    return keys, values, check_headers(rows.column("headers")) if "headers" in names else None


def _as_binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _header_sizes(headers: pa.Array | None, count: int) -> Any:  # noqa: ANN401 - numbers, or one
    """A little more than they take."""
    if headers is None:
        return np.zeros(count, np.int64)
    pairs = headers.flatten()
    sizes = np.maximum(lengths_of(pairs.field("key").cast(pa.binary())), 0)
    sizes = sizes + np.maximum(lengths_of(pairs.field("value")), 0) + 10
    rows = headers.value_parent_indices().to_numpy(zero_copy_only=False)
    return np.bincount(rows, weights=sizes, minlength=count).astype(np.int64)
