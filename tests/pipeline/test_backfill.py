"""A back-fill puts what the log says in the place of what a table says of a range, and touches nothing else."""

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from millpond.model.errors import InvalidSetting, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.pipeline import metrics
from millpond.pipeline.backfill import _check_kept, backfill
from millpond.pipeline.generating import Load
from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings
from millpond.pipeline.storage import File
from millpond.pipeline.table import Table
from millpond.pipeline.time_range import STEP_MS, TimeRange
from millpond.testing.broker import InProcessBroker
from tests.pipeline.one_batch import take_in
from tests.pipeline.test_metrics import send, settings

__all__ = ["settings"]

HOUR_MS = 3_600_000
MIDDLE_MS = 1_700_002_800_000
START_MS = MIDDLE_MS - 20_000
FIRST = TimeRange(MIDDLE_MS - HOUR_MS, MIDDLE_MS)
SECOND = TimeRange(MIDDLE_MS, MIDDLE_MS + HOUR_MS)
"""There are facts in both."""
ALL = TimeRange(MIDDLE_MS - 2 * HOUR_MS, MIDDLE_MS + HOUR_MS)
Rows = list[tuple[int, str]]


def rows(table: Table, wanted: TimeRange = ALL) -> Rows:
    """Their times, and all of them as text; read without Spark."""
    found: Rows = []
    for each in table.state.files.values():
        for row in pq.read_table(table.storage.parquet(each.path), partitioning=None).to_pylist():
            found.append((round(row["time"].timestamp() * 1000), str(row)))
    return sorted(row for row in found if wanted.start_ms <= row[0] < wanted.end_ms)


def parquet_files(job: MetricsJob) -> set[tuple[str, str]]:
    return {(table.storage.name, each.path) for table in (job.facts, job.rollups) for each in table.storage.listed()}


def lose(job: MetricsJob, files: list[File]) -> None:
    """As if they had never been written."""
    lost = sum(each.rows for each in files)
    late = job.facts.count_true("late", files)
    job.facts.commit(
        "loss", 0, added=[], removed=files,
        note=lambda note: note | {"facts": note["facts"] - lost, "late": note["late"] - late},
    )  # fmt: skip


def no_disk(_: DataFrame) -> list[File]:
    raise OSError("the disk is full")


@pytest.mark.slow
def test_a_range_becomes_what_the_log_says_and_the_rest_stays(
    spark: SparkSession, broker: InProcessBroker, settings: MetricsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, settings.topic, Load(messages=400, start_ms=START_MS, per_second=10, clients=2))
    job = MetricsJob(spark, settings)
    take_in(spark, job)
    job.close_windows()
    whole, counted = (rows(job.facts), rows(job.rollups)), job.progress()
    assert rows(job.facts, FIRST)
    assert rows(job.facts, SECOND)

    lose(job, list(job.facts.state.files.values()))
    before = parquet_files(job)
    with monkeypatch.context() as broken:
        broken.setattr(job.rollups, "write", no_disk)
        with pytest.raises(OSError, match="disk is full"):
            backfill(spark, job, SECOND)
    assert (rows(job.facts), parquet_files(job)) == ([], before)

    facts, rollups = backfill(spark, job, SECOND)
    assert (facts.before, facts.after) == (0, len(rows(job.facts)))
    assert rollups.before == rollups.after > 0
    assert rows(job.facts) == [row for row in whole[0] if row[0] >= MIDDLE_MS]
    assert rows(job.rollups) == whole[1]

    job = MetricsJob(spark, settings)
    again = backfill(spark, job, ALL)
    assert (again[0].after, again[1].before) == (len(whole[0]), again[1].after)
    assert (rows(job.facts), rows(job.rollups)) == whole
    assert job.progress() == counted


def test_a_range_is_of_whole_hours() -> None:
    assert max(metrics.RESOLUTIONS_MS.values()) == STEP_MS
    with pytest.raises(InvalidSetting, match="begins at 2023-11-14T22:13:20Z; it goes from one whole hour"):
        TimeRange(1_700_000_000_000, SECOND.end_ms)
    with pytest.raises(InvalidSetting, match="it must end later"):
        TimeRange(SECOND.end_ms, SECOND.start_ms)


def test_what_retention_has_removed_is_not_replaced_by_nothing() -> None:
    at = TopicPartition("metrics.inbound", 0)
    _check_kept(at, 0, 0, FIRST)
    _check_kept(at, 500, 501, FIRST)
    with pytest.raises(OffsetOutOfRange, match="retention has removed it"):
        _check_kept(at, 500, 500, FIRST)
