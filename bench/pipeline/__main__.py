"""`python -m bench.pipeline [--rows 1000000]`: rows for each second of CPU, in Spark's JVM and its Python workers.

Not part of `make bench`: it fetches Spark's kafka connector, and takes some minutes. The broker's CPU is not counted.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench.pipeline.connector import fetched
from bench.pipeline.ready import ReadySource
from bench.tables import make_console, print_head
from bench.workspace import machine_facts, workspace
from millpond.client.blocking import Admin, Producer
from millpond.pipeline.generating import Load, arrivals
from millpond.pipeline.metrics import VALUE_SCHEMA
from millpond.pipeline.session import session
from tests.cli.broker_process import BrokerProcess
from tests.pipeline.chaos import children

TOPIC = "metrics"
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Of a process and all below it, the ended ones too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        below = children(pid)
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK + sum(map(cpu_seconds, below))


def jvm_of(parent: int) -> int:
    for each in children(parent):
        if "java" in Path(f"/proc/{each}/cmdline").read_text():
            return each
    raise AssertionError("no JVM")


class Works:
    def __init__(self, spark: SparkSession, bootstrap: str, rows: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._rows = rows
        self._number = 0
        spark.dataSource.register(ReadySource)

    def _topic(self, engine: str, **options: str) -> DataFrame:
        reader = self._spark.read.format(engine).option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("subscribe", TOPIC).options(**options).load()

    def raw(self, engine: str) -> DataFrame:
        if engine == "ready":
            return self._spark.read.format("ready").options(rows=str(self._rows), size="170").load()
        return self._topic(engine)

    def json(self, engine: str) -> DataFrame:
        if engine == "millpond":
            typed = self._topic(engine, columns="value", **{"value.format": "json", "value.schema": VALUE_SCHEMA})
            moment = sql.col("value.timestamp")
        else:
            schema = VALUE_SCHEMA.replace("timestamp timestamp", "timestamp bigint")
            typed = self._topic(engine).select(sql.from_json(sql.col("value").cast("string"), schema).alias("value"))
            moment = sql.timestamp_millis("value.timestamp")
        window = sql.window(moment, "1 minute")
        keys = ("value.client_id", "value.metric")
        return typed.groupBy(window, *keys).agg(sql.count("*"), sql.sum("value.value"), sql.max("value.value"))

    def write(self, engine: str, source: DataFrame, *, once: bool = False) -> None:
        self._number += 1
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": "copies"}
        if once:
            options |= {"commit.name": "bench", "commit.number": str(self._number)}
        source.write.format(engine).options(**options).mode("append").save()


def noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    console = make_console()
    jars = fetched()
    with workspace(None) as place, place.directory() as folder, BrokerProcess(folder, "--http", "off") as broker:
        print_head(console, machine_facts(place))
        with Admin(broker.bootstrap) as admin:
            for topic in (TOPIC, "copies"):
                admin.create_topic(topic, partitions=4)
        with Producer(broker.bootstrap) as producer:
            load = Load(messages=given.rows, start_ms=int(time.time() * 1000) - given.rows, malformed=0)
            for at_ms, keys, values in arrivals(load):
                producer.send_many(TOPIC, values, keys=keys, timestamp=at_ms)
        configs = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
        if jars:
            configs["spark.jars"] = ",".join(map(str, jars))
        spark = session("local[2]", configs=configs)
        spark.sparkContext.setLogLevel("OFF")
        try:
            measure(
                console.print, spark, Works(spark, broker.bootstrap, given.rows), given.runs, given.rows, bool(jars)
            )
        finally:
            spark.stop()


def measure(
    say: Callable[[str], None], spark: SparkSession, works: Works, runs: int, rows: int, has_kafka: bool
) -> None:
    kafka = ("kafka",) if has_kafka else ()
    pairs = works.raw("millpond").select("key", "value").persist()
    pairs.count()
    jobs: dict[str, Callable[[], None]] = {}
    for engine in ("millpond", *kafka, "ready"):
        jobs[f"raw read, {engine}"] = noop(works.raw(engine))
    for engine in ("millpond", *kafka):
        jobs[f"JSON and one-minute roll-up, {engine}"] = noop(works.json(engine))
        jobs[f"sink, {engine}"] = partial(works.write, engine, pairs)
    jobs["sink, millpond, exactly once"] = partial(works.write, "millpond", pairs, once=True)
    jvm = jvm_of(os.getpid())
    found: dict[str, tuple[float, float]] = {}
    for turn in range(runs + 1):
        for name, job in jobs.items():
            before, started = cpu_seconds(jvm), time.monotonic()
            job()
            used, took = cpu_seconds(jvm) - before, time.monotonic() - started
            if turn:  # the first is for the compilers
                best = found.get(name, (1e9, 1e9))
                found[name] = min(best[0], used), min(best[1], took)
    for name, (used, took) in found.items():
        say(f"{name:42} {rows / used / 1e6:6.3f} M rows/CPU-s   {rows / took / 1e6:6.3f} M rows/s")


if __name__ == "__main__":
    main()
