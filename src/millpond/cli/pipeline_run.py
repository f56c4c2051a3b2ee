"""The metrics pipeline, run from the command line: from the first micro-batch to an end in order.

Invariant: whoever stops it with a signal stops it between two micro-batches; whatever ends it, the next run goes on.
Driven by pipeline.py and pipeline_demo.py.
"""

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millpond.app.clock import SystemClock
from millpond.app.refusals import CannotStart
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millpond.pipeline.metrics_job import BatchDone, MetricsJob
    from millpond.pipeline.table import Table

LOOK_SECONDS: Final = 0.2
TOPIC: Final = "metrics.inbound"
_OURS: Final = re.compile(r"millpond\.model\.errors\.\w+: (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    folder: str | Path
    checkpoint: Path | None = None
    master: str
    every_seconds: float | None
    """None to deal with what is there, and end."""
    close_windows: bool
    lateness_seconds: int
    offsets_max: int
    metrics_port: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


def run_metrics(bootstrap: str, plan: RunPlan, configs: Mapping[str, str]) -> None:
    check_topic(bootstrap, TOPIC)
    with log_folder(plan.folder) as logs, quiet_session(plan.master, logs, configs) as spark:
        watch = Watcher(plan.metrics_port)
        try:
            run_in(spark, bootstrap, plan, watch)
        finally:
            watch.close()


def check_topic(bootstrap: str, topic: str) -> None:
    """Before Spark takes its time to start, and before anything is written."""
    try:
        from millpond.pipeline.link import Link  # noqa: PLC0415
        from millpond.pipeline.options import Connection  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(_missing(error)) from None
    with Link(Connection(bootstrap)) as link:
        link.partitions((topic,))


def _missing(error: ImportError) -> str:
    return f"{error.name} is missing; install it with: pip install 'millpond[spark]'"


def run_in(spark: "SparkSession", bootstrap: str, plan: RunPlan, watch: "Watcher") -> "MetricsJob":
    from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings  # noqa: PLC0415

    settings = MetricsSettings(
        bootstrap=bootstrap,
        folder=plan.folder,
        checkpoint=plan.checkpoint,
        topic=TOPIC,
        lateness_seconds=plan.lateness_seconds,
        offsets_per_trigger_max=plan.offsets_max,
        fields=plan.fields,
    )
    job = MetricsJob(spark, settings, on_batch=watch)
    stopped = threading.Event()
    with _signals(stopped.set):
        query = job.start(trigger_seconds=plan.every_seconds)
        _wait(query, stopped)
    if plan.close_windows and not stopped.is_set():
        job.close_windows()
    return job


def _wait(query: "StreamingQuery", stopped: threading.Event) -> None:
    """Until it ends, or is told to, and has ended what it was doing."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    try:
        while not query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type] # a float will do
            if stopped.is_set():
                while query.status["isTriggerActive"] and not query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type]
                    pass
                query.stop()
                return
    except StreamingQueryException as error:
        raise CannotStart(plain(str(error))) from None


@contextmanager
def said_plainly(log: Path) -> Iterator[None]:
    """What ends a run as a sentence, and not as the page that Spark makes of it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except PySparkException as error:
        raise CannotStart(f"{plain(str(error))}; {log} says more") from None
    except (Py4JError, ConnectionError):
        raise CannotStart(
            f"Spark's Java process has ended: it was killed, or had too little memory; {log} may say more. Start "
            "again, and it goes on where it was"
        ) from None


def plain(text: str) -> str:
    """What our own code said, out of a page of Spark's; else that page's first line."""
    found = _OURS.findall(text)
    return str(found[-1]) if found else f"the pipeline failed: {text.splitlines()[0]}"


@contextmanager
def _signals(stop: Callable[[], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quiet_session(master: str, folder: Path, configs: Mapping[str, str] | None = None) -> "Iterator[SparkSession]":
    """A session that is ended. What Spark and its workers have to say goes to a file: errors come as errors anyway."""
    try:
        from millpond.pipeline.session import session  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(_missing(error)) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log = folder / "spark.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with errors_to(log):
            spark = session(
                master, name="millpond-metrics", configs={"spark.ui.enabled": "false"} | dict(configs or {})
            )
    except OSError as error:
        raise CannotStart(f"{folder} cannot be written to: {error.strerror}; name another with --folder") from None
    except InvalidSetting:
        raise
    except Exception as error:
        raise CannotStart(f"Spark did not start ({str(error).splitlines()[0]}); {log} says more") from None
    with said_plainly(log):
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """What is started meanwhile keeps the file for what it says."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


class Watcher:
    """A line for each micro-batch, and the same for Prometheus where it is asked for."""

    def __init__(self, metrics_port: int | None = None, *, is_silent: bool = False) -> None:
        self._is_silent = is_silent
        self._clock = SystemClock()
        self._before_ms = self._clock.monotonic_ms()
        self._ingested = 0
        self._gauges: dict[str, Any] = {}
        self._server: tuple[Any, threading.Thread] | None = None
        if metrics_port is not None:
            from prometheus_client import Gauge, start_http_server  # noqa: PLC0415

            names = ("ingested", "dead", "duplicates", "facts", "late", "lag_messages", "lag_seconds", "batch_seconds")
            self._gauges = {
                name: Gauge(f"millpond_pipeline_{name}", f"The metrics pipeline: {name.replace('_', ' ')}")
                for name in names
            }
            self._server = start_http_server(metrics_port, addr="127.0.0.1")

    def close(self) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()

    def __call__(self, done: "BatchDone") -> None:
        now_ms, progress = self._clock.monotonic_ms(), done.progress
        rows = progress.ingested - self._ingested
        a_second = rows * 1000 / max(1, now_ms - self._before_ms)
        self._before_ms, self._ingested = now_ms, progress.ingested
        for name, gauge in self._gauges.items():
            figures = {
                "lag_messages": done.lag_messages,
                "lag_seconds": done.lag_seconds,
                "batch_seconds": done.seconds,
            }
            gauge.set(figures[name] if name in figures else getattr(progress, name))
        if not self._is_silent:
            sys.stderr.write(
                f"batch {done.number}: {rows} messages in {done.seconds:.1f} s ({a_second:,.0f}/s), "
                f"{done.rollups} windows closed; {done.lag_messages} messages, {done.lag_seconds:.0f} s behind\n"
            )


@contextmanager
def log_folder(place: str | Path) -> Iterator[Path]:
    """Where Spark may say what it has to say: beside the tables, unless those are elsewhere."""
    if "://" not in str(place):
        yield Path(place).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="millpond-spark-") as made:
        yield Path(made)


# What is there


def summary(folder: str | Path) -> dict[str, Any]:
    """Of all tables, from their logs."""
    found = tables(folder)
    note = found[0].state.note
    counts = {name: note.get(name, 0) for name in ("ingested", "dead", "facts", "late")}
    counts["duplicates"] = counts["ingested"] - counts["dead"] - counts["facts"]
    return {
        "messages": counts,
        "tables": [
            {
                "table": str(table.storage),
                "rows": sum(each.rows for each in table.state.files.values()),
                "files": len(table.state.files),
                "bytes": sum(each.size for each in table.state.files.values()),
                "commits": table.state.version + 1,
            }
            for table in found
        ],
    }


def compact_tables(folder: str, master: str, configs: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """By table, how many files there were and are."""
    found = tables(folder)
    with log_folder(folder) as logs, quiet_session(master, logs, configs) as spark:
        done = []
        for table in found:
            before = len(table.state.files)
            table.compact(spark)
            done.append((table.storage.name, before, len(table.state.files)))
        return done


def tables(folder: str | Path) -> "list[Table]":
    """Those of the pipeline, which has to have run."""
    try:
        from millpond.pipeline import metrics  # noqa: PLC0415
        from millpond.pipeline.storage import below, is_object_store  # noqa: PLC0415
        from millpond.pipeline.table import Table  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(_missing(error)) from None
    found = []
    for name, schema, column in (("facts", metrics.FACT, "date"), ("rollups", metrics.ROLLUP, "resolution")):
        place = below(folder, name)
        is_there = is_object_store(place) or (Path(place) / "_delta_log").is_dir()
        table = Table(place, schema, partitioned_by=column) if is_there else None
        if table is None or (name == "facts" and table.state.version < 0):
            raise InvalidSetting(f"there is no table in {place}; millpond pipeline run metrics makes one")
        found.append(table)
    return found
