"""`spark.read.format("millpond")` and `spark.readStream.format("millpond")`, and their way to the sink.

PySpark finds `MillpondSource` by itself, through the module `pyspark_millpond`.

Invariants: a batch read sees the log as it was when the query was planned; a stream's offsets go forward only, and its
checkpoint is the truth: what is committed to a group is there to be looked at, and never read back.
Driven by Spark: planners on the driver, `read` in its tasks.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millpond.model.errors import OffsetOutOfRange, UnknownTopicOrPartition
from millpond.model.ids import TopicPartition
from millpond.pipeline.columns import DDL
from millpond.pipeline.complaints import plainly, plainly_each
from millpond.pipeline.filters import Conditions
from millpond.pipeline.link import Link, task_link
from millpond.pipeline.options import Kind, ReadOptions, read_options, write_options
from millpond.pipeline.planning import Span, joined, limited, limited_by_bytes, spans_of
from millpond.pipeline.positions import (
    EARLIEST,
    LATEST,
    Offsets,
    OffsetsJson,
    Position,
    from_json,
    ids_in,
    made_anew,
    to_json,
)
from millpond.pipeline.reading import bytes_per_offset, read_span
from millpond.pipeline.sink import BatchSink, StreamSink
from millpond.pipeline.values import MALFORMED, REASON, JsonValues, check_readable


class MillpondSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "millpond"

    @plainly
    def schema(self) -> str:
        """Of a reader: of a stream too, whose other options are checked when it starts."""
        where: Kind = "batch" if any(name.startswith("ending") for name in self.options) else "stream"
        options = read_options(self.options, where)
        types = {name: DDL[name] for name in options.columns}
        if options.value_schema is not None:
            types |= {"value": f"struct<{options.value_schema}>", MALFORMED: "binary", REASON: "string"}
        return ", ".join(f"{name} {kind}" for name, kind in types.items())

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, "batch")
        return BatchReader(options, _json_of(options, schema))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options, "stream")
        return StreamReader(options, _json_of(options, schema))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchSink(write_options(self.options, is_stream=False), schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return StreamSink(write_options(self.options, is_stream=True), schema)


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """What one task reads, one after the other."""

    spans: tuple[Span, ...]


def _json_of(options: ReadOptions, schema: StructType) -> pa.StructType | None:
    """The type of a typed value column, as Arrow has it; None where values stay bytes."""
    if options.value_schema is None:
        return None
    kind = to_arrow_schema(schema, timezone="UTC").field("value").type
    check_readable(kind)
    return kind


@plainly_each
def _read(options: ReadOptions, json: pa.StructType | None, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """In a task. Spark asks with an empty partition where there is nothing to read."""
    if isinstance(partition, SpanPartition):
        with task_link(options.connection) as link:
            for span in partition.spans:
                batches = read_span(
                    link,
                    span,
                    columns=options.columns,
                    fetch_bytes=options.fetch_bytes,
                    fail_on_data_loss=options.fail_on_data_loss,
                )
                yield from batches if json is None else map(JsonValues(json).typed, batches)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, json: pa.StructType | None) -> None:
        self._options = options
        self._json = json
        self._conditions = Conditions()
        self.pushFilters = _Offer(self._conditions)  # type: ignore[method-assign]

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        options, conditions = self._options, self._conditions
        with Link(options.connection) as link:
            known = subscribed(link, options)
            check_named(options.starting, known, options)
            check_named(options.ending, known, options)
            places = [at for at in known if conditions.wants(at)]
            starts = conditions.starts(placed(link, options.starting, places, options))
            ends = conditions.ends(placed(link, options.ending, places, options, is_end=True))
            if conditions.time_min_ms is not None:
                young = link.offsets(dict.fromkeys(places, conditions.time_min_ms))
                starts = {at: max(start, young[at]) for at, start in starts.items()}
        spans = spans_of(starts, ends, size_max=options.records_per_partition_max, count_min=options.partitions_min)
        return [SpanPartition((span,)) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._json, partition)


class _Offer:
    """`pushFilters` of a reader that takes filters where they are offered, and does without where they are not.

    A reader that overrides the method is refused by a session that does not push filters, which is Spark's default; so
    this stands in its place, and says of itself that it is the method that is not overridden.
    """

    __func__ = DataSourceReader.pushFilters

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._conditions.take(filters)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, json: pa.StructType | None) -> None:
        self._options = options
        self._json = json
        self._link: Link | None = None
        self._target: Offsets | None = None
        """Where an AvailableNow query ends."""
        self._committed: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; the connection stays with the driver."""
        return self.__dict__ | {"_link": None, "_target": None, "_committed": {}}

    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._options.connection)
        return self._link

    # Offsets

    @plainly
    def initialOffset(self) -> OffsetsJson:  # noqa: N802 - Spark's name
        link, options = self._connected(), self._options
        known = subscribed(link, options)
        check_named(options.starting, known, options)
        return to_json(placed(link, options.starting, known, options), link.ids())

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit at a time; with whichever it comes, both are kept."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    @plainly
    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:  # noqa: N802
        """Everything before `start` has been dealt with: Spark asks for the next batch when the last one is done."""
        starts = from_json(start)
        committed = self._begin_commit(starts)
        ends = self._ends() if self._target is None else dict(self._target)
        ids = self._connected().ids()
        starts = self._without_old(starts, made_anew(start, ids))
        ends = self._whole(starts, ends)
        starts = self._with_new(starts, ends)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends)
        if committed is not None:
            committed.result()
        return to_json(ends, ids)

    @plainly
    def reportLatestOffset(self) -> OffsetsJson:  # noqa: N802
        return to_json(self._ends(), self._connected().ids())

    def _ends(self) -> Offsets:
        link = self._connected()
        return dict(link.offsets(dict.fromkeys(subscribed(link, self._options), LATEST)))

    def _whole(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Ends that go back on nothing: a partition that is gone, or shorter than what was read, has lost something."""
        for at, start in starts.items():
            if ends.get(at, -1) < start:
                if self._options.fail_on_data_loss:
                    now = f"ends at {ends[at]}" if at in ends else "is not there any more"
                    raise OffsetOutOfRange(
                        f"{at} was read up to offset {start}, and now {now}: the topic was deleted or made anew. Start "
                        "with a new checkpoint, or set failOnDataLoss to false to go on with what is there"
                    )
                ends[at] = start
        return ends

    def _without_old(self, starts: Offsets, anew: set[str]) -> Offsets:
        """Offsets of a topic that was deleted mean nothing in the one that has its name now."""
        for topic in sorted(anew):
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"topic {topic} was deleted and made anew since it was read: it is another one, with offsets of "
                    "its own. Start with a new checkpoint, or set failOnDataLoss to false to read it from its start"
                )
        return {at: offset for at, offset in starts.items() if at.topic not in anew}

    def _with_new(self, starts: Offsets, ends: Offsets) -> Offsets:
        """A partition that is new since the query began is read from its first message on."""
        new = [at for at in ends if at not in starts]
        return starts | self._connected().offsets(dict.fromkeys(new, EARLIEST)) if new else starts

    def _limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        options = self._options
        if options.offsets_per_trigger_max is not None:
            ends = limited(starts, ends, offsets_max=options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            waiting = {at: starts[at] for at, end in ends.items() if end > starts[at]}
            sizes = bytes_per_offset(self._connected(), waiting)
            ends = limited_by_bytes(starts, ends, bytes_max=options.bytes_per_trigger_max, bytes_per_offset=sizes)
        return ends

    # Reading

    @plainly
    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        ends = from_json(end)
        starts = self._without_old(from_json(start), made_anew(start, ids_in(end)))
        starts = self._with_new(starts, ends)
        options = self._options
        spans = spans_of(starts, ends, size_max=options.records_per_partition_max, count_min=options.partitions_min)
        tasks = joined(spans, size_min=options.records_per_partition_min, count_min=options.partitions_min)
        return [SpanPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._json, partition)

    # Progress

    def commit(self, end: OffsetsJson) -> None:
        """Comes a batch late, and after `latestOffset` has said the same."""

    def _begin_commit(self, offsets: Offsets) -> "Future[object] | None":
        """Goes on while the next batch is planned."""
        if self._options.group is None or not offsets or offsets == self._committed:
            return None
        self._committed = dict(offsets)
        return self._connected().begin_commit(self._options.group, offsets)

    def stop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


# What is read, and from where to where


def subscribed(link: Link, options: ReadOptions) -> list[TopicPartition]:
    if options.pattern is not None:
        return link.partitions_matching(options.pattern)
    if not options.assigned:
        return link.partitions(options.topics)
    there = set(link.partitions(tuple({at.topic for at in options.assigned})))
    for at in options.assigned:
        if at not in there:
            raise UnknownTopicOrPartition(f"assign names {at}, and there is no such partition; correct it")
    return list(options.assigned)


def check_named(position: Position, known: Sequence[TopicPartition], options: ReadOptions) -> None:
    for at, _ in position.named:
        if at not in known and options.pattern is None:
            raise UnknownTopicOrPartition(f"a position is given for {at}, which is not among what is read; correct it")


def placed(
    link: Link, position: Position, places: Sequence[TopicPartition], options: ReadOptions, *, is_end: bool = False
) -> Offsets:
    """The position in each partition, as an offset; the start or the end, where nothing is said of it."""
    wanted: dict[TopicPartition, int] = {}
    for at in places:
        said = position.of(at)
        wanted[at] = (LATEST if is_end else EARLIEST) if said is None else said
    asked = {at: found for at, found in wanted.items() if found < 0 or position.is_time}
    explicit = {at: found for at, found in wanted.items() if at not in asked}
    offsets = _within(link, explicit, options) | link.offsets(asked)
    if position.is_time and options.must_have_young and not is_end:
        for at, end in link.offsets(dict.fromkeys(places, LATEST)).items():
            if offsets[at] >= end:
                raise OffsetOutOfRange(
                    f"{at} has no message as young as the starting time; leave startingOffsetsByTimestampStrategy at "
                    "latest to begin at its end"
                )
    return offsets


def _within(link: Link, explicit: Offsets, options: ReadOptions) -> Offsets:
    """Offsets that somebody wrote down: they must be there, unless losing some is allowed."""
    firsts = link.offsets(dict.fromkeys(explicit, EARLIEST))
    ends = link.offsets(dict.fromkeys(explicit, LATEST))
    for at, offset in explicit.items():
        if options.fail_on_data_loss and not firsts[at] <= offset <= ends[at]:
            raise OffsetOutOfRange(
                f"{at} has no offset {offset}; it has {firsts[at]} to {ends[at] - 1}. Correct the position, or set "
                "failOnDataLoss to false to take the nearest"
            )
    return {at: min(max(offset, firsts[at]), ends[at]) for at, offset in explicit.items()}
