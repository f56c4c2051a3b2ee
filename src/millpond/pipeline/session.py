"""A Spark session that is set up for Python data sources: `session("local[2]")`.

    setting                                      what it brings
    session time zone UTC                        times in Arrow are what they are in the log
    Unix sockets between JVM and workers         without them every task waits 30 to 60 ms for an acknowledgement
    workers forked from a loaded process         a worker's first task takes a quarter of the time
    filter push-down to Python sources           conditions on partition, offset and time spare reading
    shuffle partitions = cores                   200 small ones, Spark's default, make a stateful batch 13 times slower
    the plain file manager, checkpoints on disk  the default one forks a process for each file; not for object stores

Invariant: whatever is set here can be set otherwise by whoever asks, by name.
Driven by programs, notebooks and tests.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from millpond.model.errors import InvalidSetting

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "millpond.pipeline.daemon",
    "spark.ui.showConsoleProgress": "false",
}
CHECKPOINT_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(
    master: str = "local[*]", *, name: str = "millpond", configs: Mapping[str, str] | None = None
) -> SparkSession:
    """The session there is, or a new one. `configs` are Spark's own, and count before all that is set here."""
    if master.startswith("local"):
        check_java()
        settings = SETTINGS | {CHECKPOINT_MANAGER: LOCAL_MANAGER}
    else:
        settings = dict(SETTINGS)
    settings |= {"spark.sql.shuffle.partitions": str(_cores(master))} | dict(configs or {})
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_java() -> str:
    """Where Java is; `InvalidSetting` where there is none, before Spark fails with a page of something else."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise InvalidSetting(
                f"JAVA_HOME is {home}, and there is no bin/java in it; correct it, or unset it to use the java in PATH"
            )
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise InvalidSetting(
            "Spark needs Java 17 or newer, and there is none: install one (apt install openjdk-17-jre-headless, "
            "brew install openjdk@17), or set JAVA_HOME to where it is"
        )
    return found


def _cores(master: str) -> int:
    """Of a local master; elsewhere as many as Spark's workers usually have together is anybody's guess."""
    inside = master.removeprefix("local[").removesuffix("]").split(",")[0] if master.startswith("local[") else "1"
    if inside.isdecimal():
        return int(inside)
    return os.cpu_count() or 1
