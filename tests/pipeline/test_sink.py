"""`df.write.format("millpond")`: every row is a message, with its key, headers and place."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.client.blocking import Producer
from millpond.client.partitioners import by_murmur2
from millpond.testing.broker import InProcessBroker
from tests.pipeline.topics import everything

pytestmark = pytest.mark.slow


def options(broker: InProcessBroker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap} | more


def test_rows_are_messages_where_other_clients_would_put_them(spark: SparkSession, broker: InProcessBroker) -> None:
    broker.create_topic("copies", partitions=5)
    rows = spark.range(2000).selectExpr(
        "if(id % 10 = 0, null, cast(id % 100 as string)) as key",
        "if(id = 7, null, cast(id as string)) as value",
        """if(id % 2 = 0, null, array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary))))
           as headers""",
    )
    extra = {"kafka.compression.type": "zstd", "kafka.batch.size": "4096"}
    rows.write.format("millpond").options(**options(broker, topic="copies", **extra)).mode("append").save()
    found = everything(broker.bootstrap, "copies")
    assert sorted(int(each.value or b"7") for each in found) == list(range(2000))
    for each in found:
        number = int(each.value or b"7")
        assert each.key == (b"%d" % (number % 100) if number % 10 else None)
        assert each.headers == ((("number", b"%d" % number),) if number % 2 else ())
        assert each.key is None or each.partition == by_murmur2("copies", each.key, 5)


def test_a_row_may_say_its_topic_and_its_partition(spark: SparkSession, broker: InProcessBroker) -> None:
    broker.create_topic("left", partitions=2)
    broker.create_topic("right", partitions=2)
    rows: list[tuple[Any, ...]] = [("left", 1, b"a"), ("right", 0, b"b"), ("left", 0, b"c")]
    frame = spark.createDataFrame(rows, "topic string, partition int, value binary").coalesce(1)
    frame.write.format("millpond").options(**options(broker)).mode("append").save()
    assert sorted((each.partition, each.value) for each in everything(broker.bootstrap, "left")) == [
        (0, b"c"),
        (1, b"a"),
    ]
    assert [(each.partition, each.value) for each in everything(broker.bootstrap, "right")] == [(0, b"b")]


def test_a_stream_goes_from_topic_to_topic_and_a_batch_that_is_done_again_changes_nothing(
    spark: SparkSession, broker: InProcessBroker, tmp_path: Path
) -> None:
    broker.create_topic("from", partitions=2)
    broker.create_topic("to", partitions=2)
    with Producer(broker.bootstrap) as producer:
        producer.send_many("from", [b"%d" % number for number in range(500)], keys=[b"%d" % n for n in range(500)])
    source = spark.readStream.format("millpond").options(
        **options(broker, subscribe="from", startingOffsets="earliest")
    )
    writer = source.load().select("key", "value").writeStream.format("millpond").options(**options(broker, topic="to"))
    for _ in range(2):
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        # As if it had ended before it could say that the micro-batch is done: the next run does it again.
        for path in (tmp_path / "commits").iterdir():
            path.unlink()
    assert sorted((each.partition, each.key, each.value) for each in everything(broker.bootstrap, "to")) == sorted(
        (each.partition, each.key, each.value) for each in everything(broker.bootstrap, "from")
    )


def test_a_write_with_a_name_happens_once(spark: SparkSession, broker: InProcessBroker) -> None:
    broker.create_topic("once", partitions=3)
    named = options(broker, topic="once", **{"commit.name": "a backfill", "kafka.batch.size": "500"})
    for number in (0, 0, 1, 1):
        rows = spark.range(300).selectExpr("cast(id as string) key", f"concat('{number} ', id) value")
        rows.write.format("millpond").options(**named, **{"commit.number": str(number)}).mode("append").save()
    found = sorted(each.value or b"" for each in everything(broker.bootstrap, "once"))
    assert found == sorted(b"%d %d" % (number, row) for number in (0, 1) for row in range(300))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("id", "there is no column value"),
        ("id as value", "column value is bigint; it is binary or string. Cast it"),
        ("cast(id as string) as value, id as place", "column place means nothing to a topic"),
        ("cast(id as string) as value, 9 as partition", "a row says partition 9 of topic refused"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    spark: SparkSession, broker: InProcessBroker, columns: str, text: str
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=text):
        frame.write.format("millpond").options(**options(broker, topic="refused")).mode("append").save()
