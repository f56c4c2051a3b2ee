"""Spark's own kafka source and sink work with a Millpond broker, and read what ours reads."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.pipeline.connector import kept
from millpond.client.blocking import Producer
from millpond.testing.broker import InProcessBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not kept(), reason="Spark's kafka connector is not at hand; bench/pipeline/connector.py fetches it"
    ),
]


def read(spark: SparkSession, broker: InProcessBroker, engine: str, topic: str) -> DataFrame:
    reader = spark.read.format(engine).option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_topics_are_read_and_written(spark: SparkSession, broker: InProcessBroker) -> None:
    broker.create_topic("with-kafka", partitions=2)
    with Producer(broker.bootstrap, compression="zstd") as producer:
        producer.send_many("with-kafka", [b"%d" % n for n in range(500)], keys=[b"%d" % (n % 9) for n in range(500)])
        producer.send_soon("with-kafka", None, key=b"x", headers={"a": b"b"})
    theirs = read(spark, broker, "kafka", "with-kafka")
    ours = read(spark, broker, "millpond", "with-kafka")
    columns = [name for name in theirs.columns if name != "headers"]
    assert sorted(map(tuple, theirs.select(columns).collect()), key=str) == sorted(
        map(tuple, ours.select(columns).collect()), key=str
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "from-kafka"}
    theirs.select("key", "value", "headers").write.format("kafka").options(**options).mode("append").save()
    copied = read(spark, broker, "millpond", "from-kafka").select("key", "value", "headers")
    assert sorted(map(str, copied.collect())) == sorted(map(str, ours.select("key", "value", "headers").collect()))


def test_a_stream_copies_a_topic(spark: SparkSession, broker: InProcessBroker, tmp_path: Path) -> None:
    broker.create_topic("streamed-from", partitions=2)
    broker.create_topic("streamed-to", partitions=2)
    with Producer(broker.bootstrap) as producer:
        producer.send_many("streamed-from", [b"%d" % n for n in range(300)], keys=[b"%d" % (n % 9) for n in range(300)])
    where = {"kafka.bootstrap.servers": broker.bootstrap}
    source = spark.readStream.format("kafka").options(**where, subscribe="streamed-from", startingOffsets="earliest")
    rows = source.option("maxOffsetsPerTrigger", 100).load().select("key", "value")
    for _ in range(2):  # the second one finds nothing new
        writer = rows.writeStream.format("kafka").options(**where, topic="streamed-to")
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
    copied = read(spark, broker, "millpond", "streamed-to").select("key", "value")
    wanted = read(spark, broker, "millpond", "streamed-from").select("key", "value")
    assert sorted(map(str, copied.collect())) == sorted(map(str, wanted.collect()))
