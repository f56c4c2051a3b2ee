"""A back-fill: the messages of a time range read again, and their facts and roll-ups put in the place of what is there.

    log     ──────[ from - 300 s ............ as far as the job has read ]──────▶   whatever may be of that range
    facts   ══════╪═══ replaced: from ≤ time < to ═══╪══════   rows before and after stay as they are
    roll-ups, the same, of windows that are closed; those still open are the job's to close

The range is of times of metrics, in whole hours: no window lies half in it. Lateness is judged by each message's own
time, and by nothing that depended on when it was read; so a back-fill also mends what was late only because a window
had been closed early, and with more lateness allowed it takes in what was late then. Dead letters and messages of
roll-ups are not sent again.

Invariant: each table changes in one commit or not at all, and both are written before the first one counts. Done twice,
it comes to the same. What the log has lost cannot be read again, so then nothing is replaced.
Driven by `millpond pipeline backfill`, and by whoever has a MetricsJob.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from millpond.client.offsets import EARLIEST
from millpond.model.errors import InvalidSetting, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.pipeline import metrics
from millpond.pipeline.link import Link
from millpond.pipeline.metrics_job import NOTHING_CLOSED, MetricsJob, Progress
from millpond.pipeline.options import Connection
from millpond.pipeline.planning import Span
from millpond.pipeline.positions import to_json
from millpond.pipeline.storage import File
from millpond.pipeline.table import Note, Table
from millpond.pipeline.time_range import TimeRange, written

APP: Final = "backfill"
"""As what its commits are numbered in the tables."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Rows of the range, in one table."""

    table: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Written:
    """What is to take the place of what; nothing counts yet."""

    table: Table
    removed: list[File]
    added: list[File]
    replaced: Replaced

    def commit(self, note: Note) -> None:
        number = self.table.state.numbers.get(APP, -1) + 1
        if not self.table.commit(
            APP, number, added=self.added, removed=self.removed, note=note, operation="REPLACE RANGE"
        ):
            raise InvalidSetting(
                f"{self.table.storage}: another back-fill was faster, and this one has changed nothing"
            )


def backfill(spark: SparkSession, job: MetricsJob, wanted: TimeRange) -> list[Replaced]:
    job.facts.refresh()
    job.rollups.refresh()
    progress = job.progress()
    if not progress.positions:
        raise InvalidSetting(
            f"{job.facts.storage}: the job has not read anything yet; millpond pipeline run metrics does"
        )
    spans = _spans(job, progress, wanted)
    found = _facts_again(spark, job, spans, wanted).persist()
    done: list[_Written] = []
    try:
        done.append(_facts_written(spark, job.facts, found, wanted))
        done.append(_rollups_written(spark, job.rollups, found, wanted))
        facts, rollups = done
        late = job.facts.count_true("late", facts.added) - job.facts.count_true("late", facts.removed)
        more = facts.replaced.after - facts.replaced.before

        def recounted(note: dict[str, Any]) -> dict[str, Any]:
            now = Progress(**note)
            return asdict(replace(now, facts=now.facts + more, late=now.late + late))

        facts.commit(recounted)
        done.remove(facts)  # it counts now, whatever happens
        rollups.commit(None)
        done.remove(rollups)
        return [facts.replaced, rollups.replaced]
    finally:
        found.unpersist()
        for each in done:
            each.table.discard(each.added)


# Messages again


def _spans(job: MetricsJob, progress: Progress, wanted: TimeRange) -> list[Span]:
    """By partition, what the job has read of messages that may be of the range."""
    settings = job.settings
    first_ms = wanted.start_ms - metrics.AHEAD_SECONDS_MAX * 1000
    with Link(Connection(settings.bootstrap)) as link:
        places = link.partitions((settings.topic,))
        kept = link.offsets(dict.fromkeys(places, EARLIEST))
        young = link.offsets(dict.fromkeys(places, max(0, first_ms)))
    spans = []
    for at in places:
        end = progress.positions.get(str(at.partition), kept[at])
        _check_kept(at, kept[at], young[at], wanted)
        spans.append(Span(at, min(young[at], end), end))
    return spans


def _check_kept(at: TopicPartition, first: int, young: int, wanted: TimeRange) -> None:
    """What was before the first message that is kept may have been of the range, unless that one is too old for it."""
    if first > 0 and young <= first:
        raise OffsetOutOfRange(
            f"{at} begins at offset {first}, and what was before it may be of the range from "
            f"{written(wanted.start_ms)} on: retention has removed it. Nothing was changed; begin the range later"
        )


def _facts_again(spark: SparkSession, job: MetricsJob, spans: list[Span], wanted: TimeRange) -> DataFrame:
    settings = job.settings
    options = {
        "kafka.bootstrap.servers": settings.bootstrap,
        "kafka.client.id": "millpond-metrics-backfill",
        "subscribe": settings.topic,
        "startingOffsets": _offsets({span.at: span.start for span in spans}),
        "endingOffsets": _offsets({span.at: span.end for span in spans}),
        "columns": metrics.COLUMNS,
        "value.format": "json",
        "value.schema": metrics.value_schema(job.fields),
    }
    messages = spark.read.format("millpond").options(**options).load()
    rows = metrics.judged(messages).where(_inside(wanted, sql.unix_millis("value.timestamp")))
    return metrics.facts(
        rows, lateness_seconds=settings.lateness_seconds, closed_until_ms=NOTHING_CLOSED, fields=job.fields
    )


def _offsets(found: dict[TopicPartition, int]) -> str:
    return json.dumps(to_json(found))


# What takes the place of what


def _facts_written(spark: SparkSession, table: Table, found: DataFrame, wanted: TimeRange) -> _Written:
    near = [each for each in table.state.files.values() if each.overlaps(wanted.start_ms, wanted.end_ms)]
    kept = table.read(spark, near).where(~_inside(wanted, sql.unix_millis("time")))
    return _written_instead(table, near, found, kept)


def _rollups_written(spark: SparkSession, table: Table, found: DataFrame, wanted: TimeRange) -> _Written:
    """Windows that are closed, by the note of the last who closed some."""
    near = [each for each in table.state.files.values() if each.overlaps(wanted.start_ms, wanted.end_ms)]
    moment, on_time = sql.unix_millis("time"), found.where("not late")
    parts, is_of_it = [], sql.lit(False)
    for resolution in metrics.RESOLUTIONS_MS:
        end = min(wanted.end_ms, table.state.note.get(resolution, NOTHING_CLOSED))
        inside = (moment >= wanted.start_ms) & (moment < end)
        parts.append(metrics.rollups(on_time.where(inside), resolution))
        is_of_it |= inside & (sql.col("resolution") == resolution)
    kept = table.read(spark, near).where(~is_of_it)
    return _written_instead(table, near, reduce(DataFrame.unionAll, parts), kept)


def _inside(wanted: TimeRange, moment: Column) -> Column:
    return (moment >= wanted.start_ms) & (moment < wanted.end_ms)


def _written_instead(table: Table, near: list[File], found: DataFrame, kept: DataFrame) -> _Written:
    stays = kept.count()
    rows = found.unionByName(kept) if near else found
    added = table.write(rows.repartition(table.partitioned_by))
    replaced = Replaced(
        table.storage.name,
        before=sum(each.rows for each in near) - stays,
        after=sum(each.rows for each in added) - stays,
    )
    return _Written(table, near, added, replaced)
