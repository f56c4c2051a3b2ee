"""`df.write.format("millpond")` and `df.writeStream.format("millpond")`: Arrow in, record batches out.

    value      binary or string   null is a tombstone
    key        binary or string   optional
    topic      string             optional where the option topic is given; a row that has one goes there
    partition  int                optional; null leaves it to the key
    headers    array of {key: string, value: binary}   optional

A stream writes exactly once: each of its tasks writes as part of a commit (tokens.py), which is known again when it is
done again. Where that is not wanted, and in a write that has no number, it is at least once: a task that failed and is
tried again sends its rows again. Within one try nothing is sent twice and nothing leaves its order, however often a
broker has to be asked: a task is an idempotent producer then.

Invariant: when `write` returns, everything it was given is acknowledged by all in-sync replicas.
Driven by Spark, in its tasks.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millpond.client.batches import BATCH_BYTES_EXTRA, Batch
from millpond.client.cluster import Cluster
from millpond.client.delivery import finished
from millpond.client.outbox import Outbox
from millpond.client.sender import Sender
from millpond.client.settings import ProducerSettings
from millpond.model.errors import InvalidRecord, InvalidSetting, UnknownTopicOrPartition
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.model.limits import MIB
from millpond.pipeline.committing import CommitWriter, Rows
from millpond.pipeline.complaints import plainly
from millpond.pipeline.encode import check_headers, cut_by_size, encode_rows, row_sizes
from millpond.pipeline.link import Link, task_link
from millpond.pipeline.options import WriteOptions
from millpond.pipeline.partitioning import by_key
from millpond.pipeline.tokens import Commit
from millpond.pipeline.varints import Numbers
from millpond.protocol.compression import Codec

BUFFER_BYTES: Final = 32 * MIB
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
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
        return write_all(self._options, self._options.commit, iterator)


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        commit = commit_of_task() if self._options.exactly_once else None
        return write_all(self._options, commit, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: what tasks wrote is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What tasks wrote stays, and is known again when the micro-batch is done again."""


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
def write_all(options: WriteOptions, commit: Commit | None, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    with task_link(options.connection) as link:
        writer = link.run(_Writer.made(link, options, commit, task))
        rows = 0
        try:
            for batch in batches:
                for topic, part in by_topic(batch, options.topic):
                    link.run(writer.send(topic, part))
                    rows += part.num_rows
            return RowsWritten(rows, link.run(writer.finish()))
        finally:
            link.run(writer.close())


def write_once(rows: DataFrame, options: WriteOptions, commit: Commit) -> int:
    """The same as a batch write of that name and number; without the four processes that Spark starts for one."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = write_all(options, commit, iter(batches))
        yield pa.record_batch([pa.array([written.rows], pa.int64())], names=["rows"])

    check_schema(rows.schema, options)
    return sum(row.rows for row in rows.mapInArrow(task, "rows bigint").collect())


def commit_of_task() -> Commit:
    """Of the micro-batch that this task belongs to: Spark tells its tasks so, though not its data sources."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
    batch = None if context is None else context.getLocalProperty(BATCH_PROPERTY)
    if query is None or batch is None:
        raise InvalidSetting(
            "this Spark does not tell a task which query and micro-batch it belongs to, so rows cannot be known again; "
            "set delivery to at-least-once"
        )
    return Commit(query, int(batch))


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

    def __init__(self, link: Link, options: WriteOptions, commit: Commit | None, task: int) -> None:
        self._cluster = link.cluster
        self._is_numbered = commit is not None
        self._turn = task
        codec, batch_bytes = options.codec, options.batch_bytes
        self._lanes: CommitWriter | PlainWriter = (
            PlainWriter(link.cluster, codec=codec, batch_bytes=batch_bytes)
            if commit is None
            else CommitWriter(link.cluster, commit, task=task, codec=codec, batch_bytes=batch_bytes)
        )

    @classmethod
    async def made(cls, link: Link, options: WriteOptions, commit: Commit | None, task: int) -> "_Writer":
        return cls(link, options, commit, task)

    async def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Returns when all are on their way, and not too many of them are not acknowledged."""
        partitions = len((await self._cluster.topic(topic, create=True)).partitions)
        keys, values, headers = _columns(rows)
        chosen = self._places(topic, rows, keys, partitions)
        order = np.argsort(chosen, kind="stable")
        bounds = np.searchsorted(chosen[order], np.arange(partitions + 1))
        for number in range(partitions):
            mine = order[bounds[number] : bounds[number + 1]]
            if len(mine):
                taken = [None if each is None else each.take(pa.array(mine)) for each in (keys, values, headers)]
                await self._lanes.add(TopicPartition(topic, number), Rows(*taken))
        if not self._is_numbered:  # or where a row goes would depend on how the rows were handed over
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

    async def finish(self) -> int:
        return await self._lanes.finish()

    async def close(self) -> None:
        await self._lanes.close()


class PlainWriter:
    """Rows of one task, without a number."""

    def __init__(self, cluster: Cluster, *, codec: Codec, batch_bytes: int) -> None:
        self._cluster = cluster
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._settings = settings = ProducerSettings(batch_bytes=batch_bytes)
        self._outbox = Outbox(settings, backoff=cluster.settings.backoff, rng=cluster.settings.rng)
        self._sender = Sender(cluster, self._outbox, settings, on_progress=lambda: None)
        self._loop = asyncio.get_running_loop()
        self._sent: list[Batch] = []
        self._done = 0

    async def add(self, at: TopicPartition, rows: Rows) -> None:
        for which in cut_by_size(row_sizes(rows.keys, rows.values, rows.headers), bytes_max=self._batch_bytes):
            part = rows.part(which)
            encoded = encode_rows(
                part.keys,
                part.values,
                part.headers,
                timestamp=TimestampMs(self._cluster.settings.wall_ms()),
                codec=self._codec,
            )
            now = self._loop.time()
            batch = Batch(at, now=now, expires=now + self._settings.delivery_seconds_max)
            batch.encoded, batch.count, batch.is_sealed = encoded, len(part), True
            batch.size = len(encoded) + BATCH_BYTES_EXTRA
            self._outbox.add_batch(batch)
            self._sender.wake()
            self._sent.append(batch)
            await asyncio.sleep(0)
            await self._settle(BUFFER_BYTES)

    async def finish(self) -> int:
        return await self._settle(0)

    async def _settle(self, bytes_max: int) -> int:
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
