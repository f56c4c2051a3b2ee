"""The query that turns `metrics.inbound` into tables: dead letters, facts, roll-ups, each of them exactly once.

Every micro-batch is four steps, and each is done once however often the batch is done:

    1. what is no metric goes to the topic of dead letters      a write with a name and a number (tokens.py)
    2. new facts, and all that is counted, go to their table    one commit of that number (table.py)
    3. windows that are over are rolled up from the facts       one commit of that number
    4. and what the third brought goes to the topic of roll-ups, read back from its files: as in 1

A window is over when every partition of the topic has been read past its end, and the allowed lateness: by the times of
messages, of which only the log's order is believed. A partition that has nothing more to read holds nobody up.

Invariant: totals in the last commit of facts say of all messages up to it what became of them:
ingested = dead + duplicates + facts.
Driven by Spark, on the driver; by `millpond pipeline`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from millpond.client.offsets import EARLIEST, LATEST
from millpond.client.settings import machine_wall_ms
from millpond.model.errors import InvalidSetting
from millpond.pipeline import metrics
from millpond.pipeline.link import Link
from millpond.pipeline.options import Connection, write_options
from millpond.pipeline.session import is_connected
from millpond.pipeline.sink import write_once
from millpond.pipeline.storage import below, is_object_store
from millpond.pipeline.table import Table
from millpond.pipeline.tokens import Commit

WIDTHS: Final = metrics.RESOLUTIONS_MS
MS_PER_SECOND: Final = 1000
NOTHING_CLOSED: Final = -(1 << 60)
CHECKPOINT: Final = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    bootstrap: str
    folder: str | Path
    """Of tables: a folder, or an address in an object store, such as s3://bucket/metrics."""
    checkpoint: Path | None = None
    """A folder, on the driver's machine or shared; one beside the tables, where those are in a folder."""
    topic: str = "metrics.inbound"
    dead_letters: str = "metrics.inbound.dlq"
    rollups: str = "metrics.rollup"
    group: str = "metrics-pipeline"
    """Under which lag tools see the job."""
    lateness_seconds: int = 60
    offsets_per_trigger_max: int = 500_000
    fields: Mapping[str, str] = field(default_factory=dict)
    """What metrics have besides, with its type: columns of facts from now on. Those the table has already stay."""

    @property
    def checkpoint_folder(self) -> Path:
        if self.checkpoint is not None:
            return self.checkpoint
        if is_object_store(self.folder):
            raise InvalidSetting(
                f"{self.folder} is an object store, and a checkpoint has to be in a folder that stays; name one of "
                "the driver's machine, or a shared one: --checkpoint DIR"
            )
        return Path(self.folder) / CHECKPOINT


@dataclass(slots=True)
class Progress:
    """What the job knows of its messages so far; kept in the commits of facts."""

    query: str = ""
    ingested: int = 0
    dead: int = 0
    facts: int = 0
    late: int = 0
    read_ms: dict[str, int] = field(default_factory=dict)
    """By partition, the newest time of a message that was read."""
    positions: dict[str, int] = field(default_factory=dict)
    """By partition, the offset after it."""
    newest_ms: int = NOTHING_CLOSED
    """Of facts."""
    closed_ms: int = NOTHING_CLOSED
    """No fact before it is to come, but late ones."""

    @property
    def duplicates(self) -> int:
        return self.ingested - self.dead - self.facts


@dataclass(frozen=True, slots=True)
class BatchDone:
    number: int
    progress: Progress
    rollups: int
    """Windows that this batch closed."""
    seconds: float
    lag_messages: int
    lag_seconds: float
    """How old the newest message is that was read of the partition that is furthest behind; 0 where none is."""


class MetricsJob:
    def __init__(
        self,
        spark: SparkSession,
        settings: MetricsSettings,
        *,
        on_batch: Callable[[BatchDone], None] | None = None,
        wall_ms: Callable[[], int] = machine_wall_ms,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._on_batch = on_batch
        self._wall_ms = wall_ms
        self._lag = (0, 0.0)
        spark.conf.set(
            "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
        )  # or files would not tell their times
        self.facts = Table(below(settings.folder, "facts"), metrics.fact_schema(settings.fields), partitioned_by="date")
        self.fields = metrics.fields_of(self.facts.schema)
        self.rollups = Table(below(settings.folder, "rollups"), metrics.ROLLUP, partitioned_by="resolution")

    @property
    def settings(self) -> MetricsSettings:
        return self._settings

    def start(self, *, trigger_seconds: float | None = None) -> StreamingQuery:
        """Without a time between micro-batches it reads what is there, and ends."""
        settings = self._settings
        if is_connected(self._spark):
            raise InvalidSetting(
                "the metrics pipeline commits its tables in Spark's driver, and through Spark Connect that is the "
                "server: run it on the server's machine, or with --master local[*], spark://... or k8s://..."
            )
        options = {
            "kafka.bootstrap.servers": settings.bootstrap,
            "kafka.group.id": settings.group,
            "kafka.client.id": "millpond-metrics-pipeline",
            "subscribe": settings.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(settings.offsets_per_trigger_max),
            "columns": metrics.COLUMNS,
            "value.format": "json",
            "value.schema": metrics.value_schema(self.fields),
        }
        source = self._spark.readStream.format("millpond").options(**options).load()
        writer = (
            source.writeStream.foreachBatch(self.do_batch)
            .option("checkpointLocation", str(settings.checkpoint_folder))
            .queryName("metrics")
        )
        if trigger_seconds is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds").start()

    def do_batch(self, messages: DataFrame, number: int) -> None:
        started = self._wall_ms()
        app = self._app()
        self.facts.refresh()
        self.rollups.refresh()
        closed = 0
        if not self.facts.is_done(app, number):
            self._take_in(messages, app, number)
        progress = self.progress()
        self._roll_up(app, number, {name: progress.closed_ms // width * width for name, width in WIDTHS.items()})
        if self.rollups.state.numbers.get(app) == number:
            closed = self._publish(app, number)
        if self._on_batch is not None:
            self._on_batch(BatchDone(number, progress, closed, (self._wall_ms() - started) / MS_PER_SECOND, *self._lag))

    def progress(self) -> Progress:
        """What the last commit of facts says."""
        return Progress(**self.facts.state.note)

    def _app(self) -> str:
        """Who this is to the tables: the query whose checkpoint it is. A new checkpoint is somebody new."""
        path = self._settings.checkpoint_folder / "metadata"
        try:
            return str(json.loads(path.read_text())["id"])
        except (OSError, ValueError, KeyError):
            raise InvalidSetting(
                f"{path} cannot be read; the job has not run yet, or its checkpoint is damaged"
            ) from None

    # Messages to facts

    def _take_in(self, messages: DataFrame, app: str, number: int) -> None:
        before = self.progress()
        if (
            before.query != app
        ):  # a new checkpoint reads from the start again; what is known already is a duplicate then
            before = replace(before, query=app, read_ms={}, positions={})
        rows = metrics.judged(messages).persist()
        try:
            counted = rows.groupBy("partition").agg(
                sql.count("*").alias("rows"),
                sql.count("reason").alias("dead"),
                sql.max(sql.unix_millis("timestamp")).alias("read_ms"),
                (sql.max("offset") + 1).alias("position"),
                sql.min(sql.when(sql.col("reason").isNull(), sql.unix_millis("value.timestamp"))).alias("first_ms"),
                sql.max(sql.when(sql.col("reason").isNull(), sql.unix_millis("value.timestamp"))).alias("last_ms"),
            )
            parts = [row.asDict() for row in counted.collect()]
            if any(part["dead"] for part in parts):
                self._send(metrics.dead_letters(rows), self._settings.dead_letters, f"{app}/dead letters", number)
            firsts = [part["first_ms"] for part in parts if part["first_ms"] is not None]
            lasts = [part["last_ms"] for part in parts if part["last_ms"] is not None]
            added = []
            if firsts:
                closed = max([before.closed_ms, *self.rollups.state.note.values()])
                found = metrics.facts(
                    rows,
                    lateness_seconds=self._settings.lateness_seconds,
                    closed_until_ms=closed,
                    fields=self.fields,
                )
                near = [each for each in self.facts.state.files.values() if each.overlaps(min(firsts), max(lasts) + 1)]
                if near:
                    found = metrics.without(found, self.facts.read(self._spark, near))
                added = self.facts.write(found)
            late = self.facts.count_true("late", added)
            after = self._after(before, parts, facts=sum(each.rows for each in added), late=late, lasts=lasts)
            self.facts.commit(app, number, added=added, note=partial(_noted, before, after))
        finally:
            rows.unpersist()

    def _after(
        self, before: Progress, parts: list[dict[str, Any]], *, facts: int, late: int, lasts: list[int]
    ) -> Progress:
        read_ms, positions = dict(before.read_ms), dict(before.positions)
        for part in parts:
            at = str(part["partition"])
            read_ms[at] = max(read_ms.get(at, NOTHING_CLOSED), part["read_ms"])
            positions[at] = part["position"]
        return Progress(
            query=before.query,
            ingested=before.ingested + sum(part["rows"] for part in parts),
            dead=before.dead + sum(part["dead"] for part in parts),
            facts=before.facts + facts,
            late=before.late + late,
            read_ms=read_ms,
            positions=positions,
            newest_ms=max([before.newest_ms, *lasts]),
            closed_ms=max(before.closed_ms, self._closed(read_ms, positions)),
        )

    def _closed(self, read_ms: dict[str, int], positions: dict[str, int]) -> int:
        """The time before which all has come, but what is late."""
        if not read_ms:
            return NOTHING_CLOSED
        with Link(Connection(self._settings.bootstrap)) as link:
            places = link.partitions((self._settings.topic,))
            starts = link.offsets(dict.fromkeys(places, EARLIEST))
            ends = link.offsets(dict.fromkeys(places, LATEST))
        newest = max(read_ms.values())
        behind = {at: ends[at] - positions.get(str(at.partition), starts[at]) for at in places}
        waiting = [read_ms.get(str(at.partition), NOTHING_CLOSED) for at, count in behind.items() if count > 0]
        oldest = min([newest, *waiting])
        self._lag = sum(behind.values()), max(0, self._wall_ms() - oldest) / MS_PER_SECOND if waiting else 0.0
        return max(NOTHING_CLOSED, oldest - MS_PER_SECOND * self._settings.lateness_seconds)

    # Facts to roll-ups

    def _roll_up(self, app: str, number: int, ends: dict[str, int]) -> None:
        """Windows of each width up to these times that are not there yet."""
        if self.rollups.is_done(app, number):
            return
        before = self.rollups.state.note
        after = {name: max(end, before.get(name, NOTHING_CLOSED)) for name, end in ends.items()}
        if after == before or max(after.values()) <= NOTHING_CLOSED:
            return
        parts = []
        for resolution, end in after.items():
            start = before.get(resolution, NOTHING_CLOSED)
            near = [each for each in self.facts.state.files.values() if each.overlaps(start, end)]
            if end > start and near:
                moment = sql.unix_millis("time")
                found = self.facts.read(self._spark, near).where("not late").where((moment >= start) & (moment < end))
                parts.append(metrics.rollups(found, resolution))
        added = self.rollups.write(reduce(DataFrame.unionAll, parts).repartition(1)) if parts else []
        self.rollups.commit(app, number, added=added, note=after)

    def _publish(self, app: str, number: int) -> int:
        """What the commit of this number brought, from its files: the same on every try."""
        added = self.rollups.state.last_added[app]
        if added:
            found = self.rollups.read(self._spark, added)
            self._send(metrics.rollup_messages(found), self._settings.rollups, f"{app}/roll-ups", number)
        return sum(each.rows for each in added)

    def close_windows(self) -> int:
        """Rolls up what is there as if no more were to come, and publishes it; what comes for it later is late."""
        app = f"{self._app()}/closing"
        self.facts.refresh()
        self.rollups.refresh()
        progress = self.progress()
        if progress.newest_ms <= NOTHING_CLOSED:
            return 0
        number = self.facts.state.numbers.get(app, -1) + 1
        ends = {name: (progress.newest_ms // width + 1) * width for name, width in WIDTHS.items()}
        self._roll_up(app, number, ends)
        closed = self._publish(app, number) if self.rollups.is_done(app, number) else 0
        # Last, so that whoever is stopped on the way does all of it again, under the same number.
        after = replace(progress, closed_ms=max(ends.values()))
        self.facts.commit(app, number, added=[], note=partial(_noted, progress, after))
        return closed

    def _send(self, rows: DataFrame, topic: str, name: str, number: int) -> None:
        options = {"kafka.bootstrap.servers": self._settings.bootstrap, "topic": topic}
        write_once(rows, write_options(options, is_stream=False), Commit(name, number))


def _noted(before: Progress, after: Progress, now: dict[str, Any]) -> dict[str, Any]:
    """What came of `before`, where a back-fill has changed the facts that are counted there meanwhile."""
    found = Progress(**now)
    facts, late = found.facts - before.facts, found.late - before.late
    return asdict(replace(after, facts=after.facts + facts, late=after.late + late))
