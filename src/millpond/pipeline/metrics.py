"""What is done with metrics, as functions from table to table: for a stream's micro-batches and for batch jobs alike.

    message   {"client_id": "c1", "metric": "cpu", "value": 0.5, "timestamp": 1700000000000, "tags": {"host": "h1"}}
    judged    the message as columns, and `reason` where it is no metric
    fact      one metric, once: those that say the same of the same moment are one
    roll-up   count, sum, min, max, avg, p50, p95, p99 of a client's metric in 10 s, 1 min or 1 h

A fact is late when it came more than the allowed time after it was measured, by the message's own time, or for a window
that is closed: it is kept as a fact, and counts in no roll-up.

Invariant: each function gives the same rows for the same rows, in whatever order and however often it is asked.
Pure: they build plans, which Spark runs. Driven by metrics_job.py, and by whoever wants to.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as sql

from millpond.model.errors import InvalidSetting

VALUE_SCHEMA: Final = "client_id string, metric string, value double, timestamp timestamp, tags map<string,string>"
COLUMNS: Final = "value,partition,offset,timestamp"
"""Of a message, as they are needed here."""

RESOLUTIONS_MS: Final = {"10s": 10_000, "1m": 60_000, "1h": 3_600_000}
FIELD_TYPES: Final = ("string", "double", "bigint", "boolean", "timestamp")
"""That a field which metrics have besides may be of."""
AHEAD_SECONDS_MAX: Final = 300
"""A client's clock may be ahead by so much."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TAGS: Final = types.MapType(types.StringType(), types.StringType())
FACT: Final = (
    types.StructType()
    .add("id", types.LongType())
    .add("client_id", types.StringType())
    .add("metric", types.StringType())
    .add("value", types.DoubleType())
    .add("time", types.TimestampType())
    .add("tags", _TAGS)
    .add("arrived", types.TimestampType())
    .add("partition", types.IntegerType())
    .add("offset", types.LongType())
    .add("late", types.BooleanType())
    .add("date", types.DateType())
)
ROLLUP: Final = (
    types.StructType()
    .add("client_id", types.StringType())
    .add("metric", types.StringType())
    .add("time", types.TimestampType())
    .add("count", types.LongType())
    .add("sum", types.DoubleType())
    .add("min", types.DoubleType())
    .add("max", types.DoubleType())
    .add("avg", types.DoubleType())
    .add("p50", types.DoubleType())
    .add("p95", types.DoubleType())
    .add("p99", types.DoubleType())
    .add("resolution", types.StringType())
)


def fact_schema(fields: Mapping[str, str]) -> types.StructType:
    """With columns for fields that metrics have besides, by their types; null in facts that were kept without."""
    for name, kind in fields.items():
        if kind not in FIELD_TYPES:
            raise InvalidSetting(f"field {name} is {kind!r}; allowed is {', '.join(FIELD_TYPES)}")
        if not _NAME.fullmatch(name) or name in {*FACT.fieldNames(), "timestamp", "reason"}:
            raise InvalidSetting(f"a field cannot be called {name!r}; a name of its own, of letters, digits and _, can")
    named = {"bigint": types.LongType(), "double": types.DoubleType(), "boolean": types.BooleanType()}
    named |= {"string": types.StringType(), "timestamp": types.TimestampType()}
    return types.StructType([*FACT, *(types.StructField(name, named[kind]) for name, kind in fields.items())])


def fields_of(schema: types.StructType) -> dict[str, str]:
    """Those of facts that every metric need not have."""
    return {each.name: each.dataType.simpleString() for each in schema if each.name not in FACT.fieldNames()}


def value_schema(fields: Mapping[str, str]) -> str:
    return ", ".join([VALUE_SCHEMA, *(f"{name} {kind}" for name, kind in fields.items())])


def judged(messages: DataFrame) -> DataFrame:
    """Rows of the source, typed, with a `reason` where one is no metric."""
    value, time = sql.col("value"), sql.col("value.timestamp")
    latest = sql.col("timestamp") + sql.expr(f"interval {AHEAD_SECONDS_MAX} seconds")
    reason = sql.coalesce(
        sql.col("malformedReason"),
        sql.when(value.isNull(), sql.lit("the message has no value")),
        _missing("client_id"),
        _missing("metric"),
        sql.when(sql.col("value.value").isNull(), sql.lit("value is missing")),
        sql.when(time.isNull(), sql.lit("timestamp is missing")),
        sql.when(time > latest, sql.lit("timestamp is in the future, measured by the time of the message")),
    )
    return messages.withColumn("reason", reason)


def _missing(name: str) -> Column:
    return sql.when(sql.coalesce(sql.col(f"value.{name}"), sql.lit("")) == "", sql.lit(f"{name} is missing"))


def dead_letters(rows: DataFrame) -> DataFrame:
    """Messages for the topic of dead letters: the value as it came, why it is there and where it was."""
    place = sql.concat_ws("-", "partition", "offset")
    came = sql.coalesce("malformed", sql.to_json("value").cast("binary"))
    return rows.where("reason is not null").select(
        place.alias("key"),
        came.alias("value"),
        sql.array(
            sql.struct(sql.lit("reason").alias("key"), sql.col("reason").cast("binary").alias("value")),
            sql.struct(sql.lit("source").alias("key"), place.cast("binary").alias("value")),
        ).alias("headers"),
    )


def facts(
    rows: DataFrame, *, lateness_seconds: int, closed_until_ms: int, fields: Mapping[str, str] | None = None
) -> DataFrame:
    """Metrics among judged rows, each once."""
    more = tuple(fields or ())
    good = rows.where("reason is null").select("value.*", "partition", "offset", sql.col("timestamp").alias("arrived"))
    good = good.withColumnRenamed("timestamp", "time")
    entries = sql.array_sort(sql.map_entries(sql.coalesce("tags", sql.expr("cast(map() as map<string,string>)"))))
    identity = sql.xxhash64("client_id", "metric", "time", "value", entries, *more)  # a null changes no hash
    allowed = sql.expr(f"arrived - interval {lateness_seconds} seconds")
    late = (sql.col("time") < allowed) | (sql.unix_millis("time") < closed_until_ms)
    marked = good.withColumn("id", identity).withColumn("late", late)
    # What is first of the same is the same; of where it was, and whether it was late, the first to come counts.
    first = [sql.first(name).alias(name) for name in ("client_id", "metric", "value", "tags", *more)]
    came = sql.min(sql.struct("arrived", "partition", "offset", "late")).alias("came")
    once = marked.groupBy("id", "time").agg(*first, came).select("*", "came.*").drop("came")
    return once.withColumn("date", sql.to_date("time")).select(*FACT.fieldNames(), *more)


def without(new: DataFrame, known: DataFrame) -> DataFrame:
    """Facts that are not among those that are known."""
    return new.join(known.select("id", "time"), ["id", "time"], "left_anti").select(*new.columns)


def rollups(on_time: DataFrame, resolution: str) -> DataFrame:
    """Of facts, in windows of one width."""
    width = RESOLUTIONS_MS[resolution]
    start = sql.timestamp_millis(sql.floor(sql.unix_millis("time") / width) * width)
    shares = sql.percentile("value", sql.array(sql.lit(0.5), sql.lit(0.95), sql.lit(0.99)))
    # Added up in one order always: the sum of floating numbers depends on it.
    total = sql.aggregate(sql.array_sort(sql.collect_list("value")), sql.lit(0.0), lambda before, each: before + each)
    found = on_time.groupBy("client_id", "metric", start.alias("start")).agg(
        sql.count("*").alias("count"),
        total.alias("sum"),
        sql.min("value").alias("min"),
        sql.max("value").alias("max"),
        shares.alias("shares"),
    )
    return found.select(
        "client_id",
        "metric",
        sql.col("start").alias("time"),
        "count",
        "sum",
        "min",
        "max",
        (sql.col("sum") / sql.col("count")).alias("avg"),
        *(sql.col("shares")[place].alias(name) for place, name in enumerate(("p50", "p95", "p99"))),
        sql.lit(resolution).alias("resolution"),
    )


def rollup_messages(found: DataFrame) -> DataFrame:
    """Roll-ups for their topic, in one order always: a client's metric is a key, so it stays in order."""
    ordered = found.coalesce(1).sortWithinPartitions("time", "resolution", "client_id", "metric")
    document = sql.struct(
        *(name for name in ROLLUP.fieldNames() if name != "time"), sql.unix_millis("time").alias("time")
    )
    return ordered.select(sql.concat_ws("/", "client_id", "metric").alias("key"), sql.to_json(document).alias("value"))
