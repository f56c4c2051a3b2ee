"""A Spark cluster on this machine: a master and two workers, as pip brings them, and a driver that uses them.

`python -m tests.pipeline.standalone MASTER BOOTSTRAP FOLDER` is the driver: it does what the metrics pipeline does,
compares what comes of it with the truth, and prints where its tasks ran and which code they had.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import millpond
from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings
from millpond.pipeline.session import session
from tests.pipeline.metrics_model import compare
from tests.pipeline.one_batch import take_in

WORKERS = 2
CLASSES = "org.apache.spark.deploy"
STOP_SECONDS_MAX = 20
DRIVER_SECONDS_MAX = 400


class Standalone:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._drains: list[threading.Thread] = []
        self._environment = os.environ | {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.master = ""

    def __enter__(self) -> Self:
        try:
            here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            said = self._start("master.Master", *here, until=r"Starting Spark master at (spark://\S+)")
            self.master = said
            for number in range(WORKERS):
                work = ("--cores", "1", "--memory", "600m", "--work-dir", str(self._folder / f"worker-{number}"))
                until = r"(Successfully registered with master)"
                self._start("worker.Worker", *here, *work, self.master, until=until)
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, name: str, *arguments: str, until: str) -> str:
        """Until it says what is waited for."""
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        process = subprocess.Popen(
            [program, f"{CLASSES}.{name}", *arguments],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(until, line):
                self._drains.append(threading.Thread(target=process.stderr.read, daemon=True))
                self._drains[-1].start()
                return found[1]
        raise AssertionError("".join(lines))

    def drive(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.pipeline.standalone", self.master, *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=DRIVER_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-5000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for drain in self._drains:
            drain.join()
        for process in self._processes:
            assert process.stderr is not None
            process.stderr.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def settings_of(bootstrap: str, folder: Path) -> MetricsSettings:
    names = [f"{folder.name}.{name}" for name in ("inbound", "dead", "rollup")]
    return MetricsSettings(
        bootstrap=bootstrap,
        folder=folder,
        group=folder.name,
        topic=names[0],
        dead_letters=names[1],
        rollups=names[2],
    )


def where_tasks_run(spark: SparkSession) -> list[tuple[str, str]]:
    """Their folders, and the code they have."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"folder": [str(Path.cwd())], "code": [str(millpond.__file__)]})

    tasks = 4 * WORKERS
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(look, "folder string, code string").distinct().collect()
    return [(row.folder, row.code) for row in rows]


def main(master: str, bootstrap: str, folder: str) -> None:
    configs = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    spark = session(master, configs=configs)
    try:
        settings = settings_of(bootstrap, Path(folder))
        job = MetricsJob(spark, settings)
        take_in(spark, job)
        job.close_windows()
        truth = compare(settings)
        found = {"tasks": where_tasks_run(spark), "ingested": truth.ingested, "facts": len(truth.facts)}
        sys.stdout.write(json.dumps(found) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
