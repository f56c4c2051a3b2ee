"""A Spark session that is set up for Python data sources: `session("local[2]")`.

    setting                                      what it brings
    session time zone UTC                        times in Arrow are what they are in the log
    Unix sockets between JVM and workers         without them every task waits 30 to 60 ms for an acknowledgement
    workers forked from a loaded process         a worker's first task takes a quarter of the time
    filter push-down to Python sources           conditions on partition, offset and time spare reading
    shuffle partitions = cores                   200 small ones, Spark's default, make a stateful batch 13 times slower
    the plain file manager, checkpoints on disk  the default one forks a process for each file; not for object stores

A cluster (`spark://`, `k8s://`, `yarn`) gets this package sent to its executors; a Spark Connect server (`sc://`) has
to have it, and these settings (`server_settings`), itself.

Invariant: whatever is set here can be set otherwise by whoever asks, by name.
Driven by programs, notebooks and tests.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from millpond.model.errors import InvalidSetting
from millpond.pipeline import shipping
from millpond.pipeline.java import use_java

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "millpond.pipeline.daemon",
    "spark.ui.showConsoleProgress": "false",
}
CHECKPOINT_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
CONNECT: Final = "sc://"
LOCAL_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(
    master: str = "local[*]", *, name: str = "millpond", configs: Mapping[str, str] | None = None
) -> SparkSession:
    """The session there is, or a new one. `configs` are Spark's own, and count before all that is set here."""
    if master.startswith(CONNECT):
        return _connected(master, name, configs or {})
    use_java()
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or Spark takes whichever is in PATH, without Millpond
    settings = server_settings(master) | ({} if is_local(master) else shipping.SETTINGS) | dict(configs or {})
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not is_local(master):
        spark.sparkContext.addPyFile(str(shipping.packed()))
    return spark


def server_settings(master: str) -> dict[str, str]:
    """What a driver has to be started with; a Spark Connect server as well, which a client cannot change."""
    if not is_local(master):
        return dict(SETTINGS)
    return SETTINGS | {CHECKPOINT_MANAGER: LOCAL_MANAGER, "spark.sql.shuffle.partitions": str(_cores(master))}


def is_connected(spark: SparkSession) -> bool:
    """Through Spark Connect: the driver is elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _connected(address: str, name: str, configs: Mapping[str, str]) -> SparkSession:
    """To a Spark Connect server. What only a server can be started with is its own to set."""
    try:
        spark = SparkSession.builder.remote(address).appName(name).getOrCreate()
    except ImportError as error:
        raise InvalidSetting(f"{address}: {error}; pip install 'millpond[spark,connect]'") from None
    for key, value in ({"spark.sql.session.timeZone": "UTC"} | dict(configs)).items():
        spark.conf.set(key, value)
    return spark


def _cores(master: str) -> int:
    """Of a local master."""
    inside = master.removeprefix("local[").removesuffix("]").split(",")[0] if master.startswith("local[") else "1"
    if inside.isdecimal():
        return int(inside)
    return os.cpu_count() or 1
