"""`make demo`: from nothing to tables in one command, with all that came out of it counted against what went in.

Invariant: what it started is ended, whatever happens; it fails unless every message is accounted for.
Driven by pipeline.py.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millpond.app.clock import SystemClock
from millpond.app.refusals import CannotStart
from millpond.cli.options import Output
from millpond.cli.pipeline_generate import GeneratePlan, generate_metrics
from millpond.cli.pipeline_run import RunPlan, Watcher, quiet_session, run_in
from millpond.cli.showing import Section, note, show, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.pipeline.metrics_job import MetricsJob

STOP_SECONDS_MAX: Final = 20
BATCHES: Final = 3
PLOT: Final = Path("millpond-demo.png")


def run_demo(messages: int, folder: Path | None) -> None:
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with _folder(folder) as place, _broker(place / "broker") as bootstrap:
        note(f"a broker listens on {bootstrap}; sending {messages} metrics: some twice, some late, some malformed")
        generate_metrics(
            bootstrap,
            GeneratePlan(
                messages=messages, rate=None, clients=50, faults=(0.05, 0.02, 0.01), seed=1, topic="metrics.inbound"
            ),
        )
        note(f"sent after {_seconds(clock, started_ms)} s; starting Spark")
        with quiet_session("local[*]", place) as spark:
            note(f"Spark runs after {_seconds(clock, started_ms)} s; its first micro-batch takes longest")
            plan = RunPlan(
                folder=place / "metrics",
                master="local[*]",
                every_seconds=None,
                close_windows=True,
                lateness_seconds=60,
                offsets_max=-(-messages // BATCHES),
            )
            job = run_in(spark, bootstrap, plan, Watcher())
            note(f"all is read after {_seconds(clock, started_ms)} s; counting what came of it")
            wrong = _shown(spark, job, bootstrap, messages)
            _plotted(job.rollups.read(spark))
    write(f"a plot of one roll-up is in {PLOT}; all of it took {_seconds(clock, started_ms)} s")
    if wrong:
        raise CannotStart(f"counts do not add up: {'; '.join(wrong)}")


def _seconds(clock: SystemClock, since_ms: int) -> int:
    return round((clock.monotonic_ms() - since_ms) / 1000)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="millpond-demo-") as made:
        yield Path(made)


@contextmanager
def _broker(data: Path) -> Iterator[str]:
    options = ("--data-dir", str(data), "--kafka", "127.0.0.1:0", "--http", "off", "--log-format", "json")
    command = [sys.executable, "-m", "millpond.cli", "up", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise CannotStart("the broker did not start")
            yield str(json.loads(line)["address"])
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()


def _shown(spark: "SparkSession", job: "MetricsJob", bootstrap: str, messages: int) -> list[str]:
    """The summary; and what does not add up in it."""

    def topic(name: str) -> "DataFrame":
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "columns": "key,value"}
        return spark.read.format("millpond").options(**options).load()

    progress = job.progress()
    facts, rollups = job.facts.read(spark), job.rollups.read(spark)
    kept = facts.count()
    windows = {
        row.resolution: row for row in rollups.groupBy("resolution").agg({"*": "count", "count": "sum"}).collect()
    }
    dead, published = topic("metrics.inbound.dlq").count(), topic("metrics.rollup").distinct().count()
    stored = sum(row["count(1)"] for row in windows.values())
    rows = [
        _row("sent", messages, "messages generated"),
        _row("ingested", progress.ingested, "read by the pipeline"),
        _row("dead letters", dead, "in topic metrics.inbound.dlq"),
        _row("duplicates", progress.duplicates, "left out"),
        _row("facts", kept, f"in {len(job.facts.state.files)} files, {progress.late} of them late"),
        *(
            _row(f"roll-ups {name}", windows[name]["count(1)"], f"of {windows[name]['sum(count)']} facts")
            for name in ("10s", "1m", "1h")
        ),
        _row("published", published, "in topic metrics.rollup"),
    ]
    show({"summary": rows}, Output.TABLE, Section(rows, ("what", "count", "where"), "what became of them"))
    checks = {
        "ingested is sent": progress.ingested == messages,
        "every message is a fact, a duplicate or a dead letter": progress.dead == dead and progress.facts == kept,
        "every fact is there once": facts.select("id", "time").distinct().count() == kept,
        "every fact that is not late is in one roll-up of each width": all(
            row["sum(count)"] == kept - progress.late for row in windows.values()
        ),
        "every roll-up is published once": published == stored == topic("metrics.rollup").count(),
    }
    for check, holds in checks.items():
        write(f"  {'ok    ' if holds else 'WRONG '} {check}")
    return [check for check, holds in checks.items() if not holds]


def _row(what: str, count: int, where: str) -> dict[str, Any]:
    return {"what": what, "count": count, "where": where}


def _plotted(rollups: "DataFrame") -> None:
    from millpond.cli.plot import draw, save  # noqa: PLC0415

    one = rollups.where("resolution = '10s' and client_id = 'client-0000' and metric = 'cpu.percent'")
    rows = one.orderBy("time").collect()
    save(draw({"avg": [row.avg for row in rows], "p95": [row.p95 for row in rows]}), PLOT)
