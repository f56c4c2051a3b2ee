"""A Spark Connect server on this machine, as pip brings it, and a client of it.

`python -m tests.pipeline.connect REMOTE BOOTSTRAP FOLDER` is the client: it reads, writes and archives topics and does
what the metrics pipeline does in a micro-batch, and prints what came of it.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from millpond.model.errors import InvalidSetting
from millpond.pipeline.archive import Archive, archive
from millpond.pipeline.archive_check import verify
from millpond.pipeline.metrics_job import MetricsJob
from millpond.pipeline.session import server_settings, session
from tests.interop.free_ports import free_ports
from tests.pipeline.metrics_model import compare
from tests.pipeline.one_batch import take_in
from tests.pipeline.standalone import settings_of

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = "Spark Connect server started"
STOP_SECONDS_MAX = 20
CLIENT_SECONDS_MAX = 300
QUICK_TO_START = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
}


@contextmanager
def connect_server() -> Iterator[str]:
    """Its address."""
    (port,) = free_ports(1)
    binding = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    settings = server_settings("local[2]") | binding | QUICK_TO_START
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    home = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [home / "bin" / "spark-submit", "--class", SERVER, "--master", "local[2]", *given, "spark-internal"],
        env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if STARTED in line:
            break
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    try:
        assert STARTED in lines[-1], "".join(lines)[-3000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        drain.join()
        process.stderr.close()


def drive(remote: str, bootstrap: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.pipeline.connect", remote, bootstrap, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def copied(spark: SparkSession, bootstrap: str, folder: Path, topic: str) -> int:
    """A stream from a topic to another, which is read again."""
    where, target = {"kafka.bootstrap.servers": bootstrap}, f"{topic}.copy"
    source = spark.readStream.format("millpond").options(**where, subscribe=topic, startingOffsets="earliest")
    writer = source.option("columns", "key,value").load().writeStream.format("millpond").options(**where, topic=target)
    query = writer.option("checkpointLocation", str(folder / "copying")).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.read.format("millpond").options(**where, subscribe=target).load().count()


def main(remote: str, bootstrap: str, folder: str) -> None:
    spark = session(remote)
    try:
        settings = settings_of(bootstrap, Path(folder))
        job = MetricsJob(spark, settings)
        try:
            job.start()
            refused = ""
        except InvalidSetting as error:
            refused = str(error)
        take_in(spark, job)
        job.close_windows()
        archived = Archive(bootstrap, settings.topic, f"{folder}/archive")
        found = {
            "refused": refused,
            "ingested": compare(settings).ingested,
            "copied": copied(spark, bootstrap, Path(folder), settings.topic),
            "archived": sum(each.messages for each in archive(spark, archived)),
            "states": sorted({each.state for each in verify(spark, archived)}),
        }
        sys.stdout.write(json.dumps(found) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
