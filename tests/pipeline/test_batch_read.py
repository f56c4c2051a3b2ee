"""`spark.read.format("millpond")` gives what a plain consumer reads, by whatever positions and columns."""

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from millpond.client import TopicPartition
from millpond.client.blocking import Admin, Producer
from millpond.testing.broker import InProcessBroker
from tests.pipeline.topics import everything

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def orders(broker: InProcessBroker) -> str:
    """Three partitions, two codecs, headers, nulls; partition 2 is empty."""
    broker.create_topic("orders", partitions=3, configs={"retention.ms": "-1"})
    for partition, codec in ((0, "none"), (1, "lz4")):
        with Producer(broker.bootstrap, compression=codec) as producer:
            for number in range(50):
                producer.send_soon(
                    "orders",
                    None if number == 7 else b"value %d" % number,
                    key=None if number % 3 == 0 else b"key %d" % number,
                    headers={"number": b"%d" % number} if number % 2 else (),
                    partition=partition,
                    timestamp=START_MS + 1000 * number,
                )
    return "orders"


def read(spark: SparkSession, broker: InProcessBroker, **options: str) -> DataFrame:
    reader = spark.read.format("millpond").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


def consumed(broker: InProcessBroker, topic: str) -> list[tuple[Any, ...]]:
    return sorted(
        (each.partition, each.offset, each.key, each.value, each.timestamp, list(each.headers))
        for each in everything(broker.bootstrap, topic)
    )


def test_all_that_a_consumer_reads_is_read(spark: SparkSession, broker: InProcessBroker, orders: str) -> None:
    rows = read(spark, broker, subscribe=orders, includeHeaders="true").collect()
    found = sorted(
        (
            row.partition,
            row.offset,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            round(row.timestamp.timestamp() * 1000),
            [(name, None if value is None else bytes(value)) for name, value in row.headers or []],
        )
        for row in rows
    )
    assert found == consumed(broker, orders)
    assert {(row.topic, row.timestampType) for row in rows} == {("orders", 0)}


def offsets(rows: list[Row]) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows)


POSITIONS = (
    ({"startingOffsets": '{"orders": {"0": 10, "1": 10, "2": -2}}', "maxRecordsPerPartition": "7"}, 10, 49),
    ({"endingOffsets": '{"orders": {"0": 20, "1": 20, "2": -1}}', "minPartitions": "5", "fetchBytes": "100"}, 0, 19),
    ({"startingTimestamp": str(START_MS + 41_500), "endingTimestamp": str(START_MS + 45_000)}, 42, 44),
)


def test_a_read_begins_and_ends_where_it_is_told(spark: SparkSession, broker: InProcessBroker, orders: str) -> None:
    for options, first, last in POSITIONS:
        frame = read(spark, broker, subscribe=orders, columns="partition,offset", **options)
        assert offsets(frame.collect()) == [(place, offset) for place in (0, 1) for offset in range(first, last + 1)]


def test_partitions_and_patterns_choose_what_is_read(spark: SparkSession, broker: InProcessBroker, orders: str) -> None:
    frame = read(spark, broker, assign='{"orders": [1]}', columns="topic,partition,offset")
    assert {(row.topic, row.partition) for row in frame.collect()} == {("orders", 1)}
    assert read(spark, broker, subscribePattern="ord.*", columns="offset").count() == 100
    assert read(spark, broker, subscribePattern="nothing.*", columns="offset").count() == 0


def test_conditions_spare_reading_and_change_nothing(spark: SparkSession, broker: InProcessBroker, orders: str) -> None:
    frame = read(spark, broker, subscribe=orders)
    chosen = frame.where("partition = 1 and offset >= 45 and offset < 48")
    assert offsets(chosen.collect()) == [(1, 45), (1, 46), (1, 47)]
    assert chosen.rdd.getNumPartitions() == 1
    young = frame.where(f"timestamp >= timestamp_millis({START_MS + 48_000})")
    assert offsets(young.collect()) == [(0, 48), (0, 49), (1, 48), (1, 49)]


def test_messages_that_are_gone_are_missed_unless_that_is_allowed(spark: SparkSession, broker: InProcessBroker) -> None:
    broker.create_topic("short")
    with Producer(broker.bootstrap) as producer:
        producer.send_many("short", [b"%d" % number for number in range(10)])
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("short", 0): 4})
    position = json.dumps({"short": {"0": 1}})
    with pytest.raises(PySparkException, match="short-0 has no offset 1; it has 4 to 9"):
        read(spark, broker, subscribe="short", startingOffsets=position).collect()
    frame = read(spark, broker, subscribe="short", startingOffsets=position, failOnDataLoss="false")
    assert [row.offset for row in frame.collect()] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "missing"}, "topic missing: there is no such topic"),
        ({"subscribe": "orders", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "orders", "kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_said_on_one_screen(
    spark: SparkSession, broker: InProcessBroker, orders: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises((AnalysisException, PySparkException), match=text) as caught:
        read(spark, broker, **options).collect()
    assert len(str(caught.value).splitlines()) < 40
