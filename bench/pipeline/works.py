"""What is measured on Spark: each work as each engine does it, on the same broker and in the same session."""

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench.pipeline.pure import PureSource
from bench.pipeline.ready import ReadySource, make_ready
from millpond.client.blocking import Admin, Producer
from millpond.pipeline.generating import Load, arrivals
from millpond.pipeline.kernel import KERNEL
from millpond.pipeline.metrics import VALUE_SCHEMA

PLAIN: Final = "metrics"
PACKED: Final = "metrics.zstd"
WITH_HEADERS: Final = "metrics.headers"
SMALL: Final = "small"
COPIES: Final = "copies"
TOPICS: Final = (PLAIN, PACKED, WITH_HEADERS, SMALL, COPIES)
PARTITIONS: Final = 4
BATCH_BYTES: Final = "40000"
"""As in the topics that a producer wrote, which sent a second's messages at a time."""
SMALL_ROWS: Final = 2_000
"""In one of the small micro-batches."""
WITHOUT_TAGS: Final = VALUE_SCHEMA.removesuffix(", tags map<string,string>")

COUNT: Final = "count"
READ: Final = "read, 7 columns"
READ_READY: Final = "read, 7 columns, beside ready batches"
READ_PACKED: Final = "read, 7 columns, zstd"
READ_HEADERS: Final = "read, 8 columns, 2 headers each"
ROLL_UP: Final = "JSON to a roll-up, 4 fields"
ROLL_UP_TAGS: Final = "JSON to a roll-up, 4 fields and tags"
STREAM: Final = "stream to Parquet, 7 columns"
SINK: Final = "write, key and value"


class Job(NamedTuple):
    what: str
    engine: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    key_bytes: int
    value_bytes: int


def fill(bootstrap: str, rows: int, small_rows: int) -> Sizes:
    """Topics that are read, but for the one with headers; how large keys and values are in the mean."""
    with Admin(bootstrap) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, partitions=PARTITIONS)
    key_bytes = value_bytes = 0
    load = Load(messages=rows, start_ms=int(time.time() * 1000) - rows, malformed=0)
    with Producer(bootstrap) as producer, Producer(bootstrap, compression="zstd") as packing:
        left = small_rows
        for at_ms, keys, values in arrivals(load):
            producer.send_many(PLAIN, values, keys=keys, timestamp=at_ms)
            packing.send_many(PACKED, values, keys=keys, timestamp=at_ms)
            if left > 0:
                producer.send_many(SMALL, values[:left], keys=keys[:left], timestamp=at_ms)
                left -= len(keys)
            key_bytes += sum(map(len, keys))
            value_bytes += sum(map(len, values))
    return Sizes(round(key_bytes / rows), round(value_bytes / rows))


class Works:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, rows: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._rows = rows
        self._number = 0
        for source in (ReadySource, PureSource):
            spark.dataSource.register(source)

    def prepare(self) -> None:
        """The topic with headers, and the same data as files; pairs to be written are kept in memory."""
        plain = self._topic("millpond", PLAIN)
        plain.write.parquet(self._parquet)
        make_ready(Path(self._parquet), self._ready)
        header = [sql.struct(sql.lit(name).alias("key"), sql.lit(b"0123456789abcdef").alias("value")) for name in "ab"]
        rows = plain.select("key", "value", "partition", sql.array(*header).alias("headers"))
        self._write("millpond", rows, WITH_HEADERS, {"kafka.batch.size": BATCH_BYTES})
        self._pairs = plain.select("key", "value").persist()
        self._pairs.count()

    @property
    def _parquet(self) -> str:
        return str(self._folder / "parquet")

    @property
    def _ready(self) -> Path:
        return self._folder / "ready"

    def jobs(self, *, has_kafka: bool) -> Iterator[Job]:
        """All engines of one work follow each other."""
        engines = ("millpond", "kafka") if has_kafka else ("millpond",)
        for engine in (*engines, "parquet"):
            yield Job(COUNT, engine, partial(self._count, self._frame(engine, PLAIN)))
        for engine in (*engines, "parquet"):
            yield Job(READ, engine, noop(self._frame(engine, PLAIN)))
        for engine in ("millpond", "ready", "pure") if KERNEL else ("millpond", "ready"):
            yield Job(READ_READY, engine, noop(self._frame(engine, PLAIN)))
        for engine in engines:
            yield Job(READ_PACKED, engine, noop(self._frame(engine, PACKED)))
        for engine in engines:
            yield Job(READ_HEADERS, engine, noop(self._topic(engine, WITH_HEADERS, includeHeaders="true")))
        for what, schema in ((ROLL_UP, WITHOUT_TAGS), (ROLL_UP_TAGS, VALUE_SCHEMA)):
            for engine in (*engines, "parquet"):
                yield Job(what, engine, noop(self._rolled_up(engine, schema)))
        for engine in engines:
            yield Job(STREAM, engine, partial(self._to_parquet, engine))
        for engine in engines:
            yield Job(SINK, engine, partial(self._write, engine, self._pairs, COPIES, {}))
        yield Job(SINK, "millpond, exactly once", self._write_once)

    def _topic(self, engine: str, topic: str, **options: str) -> DataFrame:
        return self._spark.read.format(engine).options(**self._options(subscribe=topic), **options).load()

    def _options(self, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, **options}

    def _frame(self, engine: str, topic: str) -> DataFrame:
        if engine == "parquet":
            return self._spark.read.parquet(self._parquet)
        if engine == "ready":
            return self._spark.read.format(engine).option("folder", str(self._ready)).load()
        return self._topic(engine, topic)

    def _count(self, frame: DataFrame) -> None:
        assert frame.count() == self._rows

    def _rolled_up(self, engine: str, schema: str) -> DataFrame:
        """All fields are read on both sides, and the same ones; who reads them is the difference."""
        if engine == "millpond":
            typed = self._topic(engine, PLAIN, columns="value", **{"value.format": "json", "value.schema": schema})
            moment = sql.col("value.timestamp")
        else:
            schema = schema.replace("timestamp timestamp", "timestamp bigint")
            text = self._frame(engine, PLAIN).select(sql.col("value").cast("string").alias("text"))
            typed = text.select(sql.from_json("text", schema).alias("value"))
            moment = sql.timestamp_millis("value.timestamp")
        window = sql.window(moment, "1 minute")
        sums = [sql.count("*"), sql.sum("value.value"), sql.max("value.value")]
        if "tags" in schema:
            sums.append(sql.count(sql.col("value.tags")["zone"]))
        return typed.groupBy(window, "value.client_id", "value.metric").agg(*sums)

    def _write(self, engine: str, rows: DataFrame, topic: str, options: dict[str, str]) -> None:
        rows.write.format(engine).options(**self._options(topic=topic), **options).mode("append").save()

    def _write_once(self) -> None:
        self._number += 1
        self._write("millpond", self._pairs, COPIES, {"commit.name": "bench", "commit.number": str(self._number)})

    def _anew(self, name: str) -> Path:
        """A place for a query, with nothing left of one that failed."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        return self._folder / name

    def _to_parquet(self, engine: str) -> None:
        out, checkpoint = self._anew("out"), self._anew("checkpoint")
        source = self._spark.readStream.format(engine).options(**self._options(subscribe=PLAIN))
        writer = source.option("startingOffsets", "earliest").load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(checkpoint)).option("path", str(out))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(each["numInputRows"] for each in query.recentProgress) == self._rows
        for path in (out, checkpoint):
            shutil.rmtree(path)

    def micro_batch_ms(self, engine: str) -> float:
        """The median time of small micro-batches, once the first ones are over."""
        checkpoint = self._anew("checkpoint")
        source = self._spark.readStream.format(engine).options(**self._options(subscribe=SMALL))
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(SMALL_ROWS))
        writer = source.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint)
        progress = [json.loads(each.json) for each in query.recentProgress]
        times = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
        return float(statistics.median(times[len(times) // 4 :]))


def noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()
