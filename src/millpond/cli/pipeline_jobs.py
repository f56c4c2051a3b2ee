"""Batch jobs on Spark, run from the command line: back-fill and archive.

Driven by pipeline.py.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.app.clock import SystemClock
from millpond.app.refusals import CannotStart
from millpond.cli.moments import parse_moment, parse_span
from millpond.cli.pipeline_run import log_folder, plain, quiet_session, tables
from millpond.model.values import dataclass
from millpond.pipeline.time_range import TimeRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Where:
    """Spark runs, and with which settings of its own."""

    master: str
    configs: Mapping[str, str]


def backfilled(bootstrap: str, folder: str, where: Where, *, start: str, end: str, lateness_seconds: int) -> list[Row]:
    now_ms = SystemClock().wall_ms()
    wanted = TimeRange(parse_moment("--from", start, now_ms=now_ms), parse_moment("--to", end, now_ms=now_ms))
    tables(folder)
    with log_folder(folder) as logs, _spark(where, logs) as spark:
        from millpond.pipeline.backfill import backfill  # noqa: PLC0415
        from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings  # noqa: PLC0415

        settings = MetricsSettings(bootstrap=bootstrap, folder=folder, lateness_seconds=lateness_seconds)
        return [asdict(each) for each in backfill(spark, MetricsJob(spark, settings), wanted)]


def archived(
    bootstrap: str, topic: str, folder: str, where: Where, *, until: str | None, per_file: int, allow_gaps: bool
) -> list[Row]:
    until_ms = parse_moment("--until", until, now_ms=SystemClock().wall_ms()) if until is not None else None
    with log_folder(folder) as logs, _spark(where, logs) as spark:
        from millpond.pipeline.archive import Archive, archive  # noqa: PLC0415

        target = Archive(bootstrap, topic, folder)
        found = archive(spark, target, until_ms=until_ms, messages_per_file_max=per_file, allow_gaps=allow_gaps)
        return [asdict(each) for each in found]


def verified(bootstrap: str, topic: str, folder: str, where: Where) -> list[Row]:
    with log_folder(folder) as logs, _spark(where, logs) as spark:
        from millpond.pipeline.archive import Archive  # noqa: PLC0415
        from millpond.pipeline.archive_check import verify  # noqa: PLC0415

        return [asdict(each) for each in verify(spark, Archive(bootstrap, topic, folder))]


def vacuumed(folder: str, keep: str, *, dry_run: bool) -> list[Row]:
    """By table, files and bytes; without a session."""
    keep_ms = parse_span("--keep", keep)
    done: list[Row] = []
    for table in tables(folder):
        gone = table.vacuum(keep_ms=keep_ms, dry_run=dry_run)
        freed = sum(each.size for each in gone)
        done.append({"table": table.storage.name, "files": len(gone), "bytes": freed})
    return done


@contextmanager
def _spark(where: Where, folder: Path) -> "Iterator[SparkSession]":
    """A session; what fails in a task comes as a line."""
    with quiet_session(where.master, folder, where.configs) as spark:
        from pyspark.errors import PySparkException  # noqa: PLC0415

        try:
            yield spark
        except PySparkException as error:
            raise CannotStart(plain(str(error))) from None
