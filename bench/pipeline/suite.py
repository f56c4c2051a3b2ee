"""The data source and sink for Spark beside Spark's own for Kafka, in rows for each second of CPU.

Beside them stand a source that has its Arrow batches ready, which is the ceiling, and the same data as Parquet. All do
the same work in turns, in one session on `local[2]`, and the median of the ratios of neighbours counts. The CPU is that
of Spark's JVM and its Python workers; the broker's is not counted. First rounds are for the compilers. What a work
came to is printed when it ends; one that fails is named, and the others go on. The connector is fetched by Maven, where
that is installed.
Driven by bench/__main__.py.
"""

import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.measuring import Measurement, Row, Target
from bench.pipeline.connector import VERSION, fetched
from bench.pipeline.processes import Used, jvm_of, others_seconds, used
from bench.pipeline.works import (
    COUNT,
    READ,
    READ_HEADERS,
    READ_PACKED,
    READ_READY,
    ROLL_UP,
    ROLL_UP_TAGS,
    SINK,
    SMALL_ROWS,
    STREAM,
    Job,
    Works,
    fill,
)
from bench.tables import number, print_tables, progress
from bench.workspace import Workspace
from millpond.cli.pipeline_run import errors_to
from millpond.pipeline.kernel import KERNEL
from millpond.pipeline.session import session
from tests.cli.broker_process import BrokerProcess

TRIES: Final = 3
MICRO_TURNS: Final = 4
Result = TypeVar("Result")
MICRO_BATCH: Final = f"micro-batch of {SMALL_ROWS} rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    rows: int
    rounds: int
    compiling_rounds: int
    """Before those that count."""
    micro_batches: int
    work_seconds_max: float
    """No round of a work is begun after so long: where others use the machine there are fewer, and one at least."""


FULL = Scale(name="full", rows=1_000_000, rounds=15, compiling_rounds=3, micro_batches=40, work_seconds_max=40)
QUICK = Scale(name="quick", rows=4_000, rounds=1, compiling_rounds=1, micro_batches=2, work_seconds_max=10)


class Run(NamedTuple):
    used: Used
    seconds: float


Runs = dict[tuple[str, str], list[Run]]


def measure(console: Console, place: Workspace, *, quick: bool, works_named: str = "") -> dict[str, Any]:
    """Of works that have `works_named` in their name: all of them, where it is empty."""
    scale = QUICK if quick else FULL
    began = time.monotonic()
    jars = fetched()
    if not jars:
        console.print("Spark's kafka connector is not at hand (install Maven, and run this again): it is left out.")
    others = others_seconds()
    with place.directory() as folder, BrokerProcess(folder / "broker", "--http", "off") as broker:
        sizes = fill(broker.bootstrap, scale.rows, scale.micro_batches * SMALL_ROWS)
        with _spark(jars, folder / "spark.log") as spark:
            works = Works(spark, broker.bootstrap, folder, scale.rows)
            works.prepare()
            bench = _Bench(console, works, scale, has_kafka=bool(jars), works_named=works_named)
            bench.measure_all()
            others_cores = (others_seconds() - others) / (time.monotonic() - began)
    rows = [*_ratios(bench.runs, scale.rows), *_micro_rows(bench.micro)]
    _print_runs(console, bench.runs, scale.rows)
    print_tables(console, rows)
    console.print(
        f"{scale.rows:,} rows of {sizes.key_bytes} + {sizes.value_bytes} B,"
        f" {'with' if KERNEL else 'without'} the compiled kernel; others used {others_cores:.1f} cores meanwhile."
    )
    for what, reason in bench.failed.items():
        console.print(f"FAILED: {what}: {reason}", markup=False)
    return {
        "scale": scale.name,
        "rows_each": scale.rows,
        "has_kernel": KERNEL is not None,
        "connector": VERSION if jars else None,
        "others_cores": round(others_cores, 2),
        "failed": bench.failed,
        "runs": _documents(bench.runs, scale.rows),
        "micro_batch_ms": bench.micro,
        "rows": [row.document() for row in rows],
    }


@contextmanager
def _spark(jars: list[Path], log: Path) -> Iterator[SparkSession]:
    """Whatever Java and its Python processes say besides goes to a file."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    configs = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.log.level": "OFF"}
    if jars:
        configs["spark.jars"] = ",".join(map(str, jars))
    with errors_to(log):
        spark = session("local[2]", configs=configs)
    try:
        yield spark
    finally:
        spark.stop()


class _Bench:
    """Works, one after the other, and what they came to."""

    def __init__(self, console: Console, works: Works, scale: Scale, *, has_kafka: bool, works_named: str) -> None:
        self._console = console
        self._works_named = works_named
        self._works = works
        self._scale = scale
        self._has_kafka = has_kafka
        self._jvm = jvm_of(os.getpid())
        self.runs: Runs = defaultdict(list)
        self.micro: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def measure_all(self) -> None:
        by_work = groupby(self._works.jobs(has_kafka=self._has_kafka), key=lambda job: job.what)
        measurements = [Measurement(what, partial(self._in_turns, list(jobs))) for what, jobs in by_work]
        measurements.append(Measurement(MICRO_BATCH, self._micro_batches))
        measurements = [each for each in measurements if self._works_named in each.title]
        with progress(self._console, measurements) as each:
            for measurement in each:
                for line in measurement.run():
                    self._console.print(f"  {line}", markup=False)

    def _in_turns(self, jobs: Sequence[Job]) -> list[str]:
        """As many rounds of one work as there is time for; an engine that fails is left out from there on.

        Every other round goes backwards, so that nobody always comes after the same one.
        """
        began = time.monotonic()
        left = list(jobs)
        for turn in range(self._scale.compiling_rounds + self._scale.rounds):
            if turn > self._scale.compiling_rounds and time.monotonic() - began > self._scale.work_seconds_max:
                break
            for job in list(reversed(left) if turn % 2 else left):
                took = self._tried(f"{job.what}, {job.engine}", partial(self._timed, job))
                if took is None:
                    left.remove(job)
                    self.runs.pop((job.what, job.engine), None)
                elif turn >= self._scale.compiling_rounds:
                    self.runs[job.what, job.engine].append(took)
        return [self._line(job) for job in left]

    def _timed(self, job: Job) -> Run:
        before, started = used(self._jvm), time.monotonic()
        job.run()
        return Run(used(self._jvm).since(before), time.monotonic() - started)

    def _line(self, job: Job) -> str:
        runs = self.runs[job.what, job.engine]
        each = " ".join(f"{run.used.jvm:.2f}+{run.used.workers:.2f}" for run in runs)
        return f"{job.engine}: {_rate(runs, self._scale.rows):.2f} M rows per CPU second; JVM + Python: {each} s"

    def _micro_batches(self) -> list[str]:
        """The best of a few runs each, in turns: the compilers get on from run to run."""
        for _ in range(MICRO_TURNS):
            for engine in ("millpond", "kafka") if self._has_kafka else ("millpond",):
                took = self._tried(f"{MICRO_BATCH}, {engine}", partial(self._works.micro_batch_ms, engine))
                if took is not None:
                    self.micro[engine] = min(self.micro.get(engine, float("inf")), took)
        return [f"{engine}: {took:.0f} ms" for engine, took in self.micro.items()]

    def _tried(self, what: str, run: Callable[[], Result]) -> Result | None:
        """Spark gives a Python worker ten seconds to start, which is not always enough where others use the machine."""
        reason = ""
        for _ in range(TRIES):
            try:
                return run()
            except (PySparkException, Py4JError, AssertionError) as error:
                reason = str(error).partition("\n")[0]
                self._console.print(f"  {what} failed: {reason}", markup=False)
        self.failed[what] = reason
        return None


# Figures


def _wanted() -> Iterator[tuple[str, str, str, Target | None]]:
    """What is compared, whose it is, with what, and what is wanted of it."""
    ceiling = Target("ratio", least=0.8 if KERNEL else 0.6)
    yield COUNT, "millpond", "kafka", None
    yield READ, "millpond", "kafka", Target("ratio", least=1.2)
    yield READ, "millpond", "parquet", None
    yield READ_READY, "millpond", "ready", ceiling
    yield READ_READY, "pure", "ready", Target("ratio", least=0.6)
    yield READ_PACKED, "millpond", "kafka", Target("ratio", least=1.2)
    yield READ_HEADERS, "millpond", "kafka", Target("ratio", least=1.2)
    yield ROLL_UP, "millpond", "kafka", Target("ratio", least=3.5)
    yield ROLL_UP_TAGS, "millpond", "kafka", Target("ratio", least=3.5)
    yield ROLL_UP_TAGS, "millpond", "parquet", None
    yield STREAM, "millpond", "kafka", None
    yield SINK, "millpond", "kafka", Target("ratio", least=0.95)
    yield SINK, "millpond, exactly once", "kafka", Target("ratio", least=0.95)


def _ratios(runs: Runs, count: int) -> Iterator[Row]:
    for what, mine, other, target in _wanted():
        ours, theirs = runs.get((what, mine)), runs.get((what, other))
        if ours and theirs:
            yield Row(
                section="rows per CPU second",
                name=what if mine == "millpond" else f"{what}, {mine.removeprefix('millpond, ')}",
                value=_rate(ours, count),
                unit="M",
                raw=_rate(theirs, count),
                ratio=statistics.median(
                    their.used.total / our.used.total for our, their in zip(ours, theirs, strict=True)
                ),
                compared_with=other,
                target=target,
            )


def _rate(runs: list[Run], count: int) -> float:
    return count / 1e6 / statistics.median(run.used.total for run in runs)


def _micro_rows(micro: dict[str, float]) -> Iterator[Row]:
    ours, theirs = micro.get("millpond"), micro.get("kafka")
    if ours is None:
        return
    yield Row(
        section="time of a small micro-batch, p50",
        name=MICRO_BATCH,
        value=ours,
        unit="ms",
        raw=theirs,
        ratio=None if theirs is None else ours / theirs,
        compared_with="" if theirs is None else "kafka; the ratio is of times",
        target=None if theirs is None else Target("ratio", most=1.1),
    )


def _documents(runs: Runs, count: int) -> list[dict[str, Any]]:
    return [
        {
            "what": what,
            "engine": engine,
            "rows_per_s": round(count / statistics.median(run.seconds for run in each)),
            "cpu_s_per_million": round(1 / _rate(each, count), 3),
            "jvm_s_per_million": round(statistics.median(run.used.jvm for run in each) / count * 1e6, 3),
            "rounds": [[round(run.used.jvm, 2), round(run.used.workers, 2), round(run.seconds, 2)] for run in each],
        }
        for (what, engine), each in runs.items()
    ]


def _print_runs(console: Console, runs: Runs, count: int) -> None:
    table = Table(title="each by itself, medians", title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("engine")
    for heading in ("rows/s", "CPU-s per million", "of it JVM"):
        table.add_column(heading, justify="right")
    for each in sorted(
        _documents(runs, count), key=lambda each: list(dict.fromkeys(what for what, _ in runs)).index(each["what"])
    ):
        cpu, jvm = each["cpu_s_per_million"], each["jvm_s_per_million"]
        table.add_row(each["what"], each["engine"], number(each["rows_per_s"]), f"{cpu:.2f}", f"{jvm:.2f}")
    console.print(table)
