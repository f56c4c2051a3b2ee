"""A stream reads every message once, batch after batch and start after start, within its limits."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.client import TopicPartition
from millpond.client.blocking import Admin, Producer
from millpond.testing.broker import InProcessBroker

pytestmark = pytest.mark.slow

GROUP = "the-spark-job"
STARTS_MAX = 4
TOO_SLOW = "Python worker failed to connect back"
"""Within ten seconds, for which Spark has no setting; a machine under load may need more to start a process."""


def send(broker: InProcessBroker, topic: str, numbers: Iterable[int], *, partition: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in numbers:  # one by one, so that they are in batches of their own
            producer.send_soon(topic, b"%06d" % number, partition=partition)


class Job:
    """One query, started again and again on one checkpoint; keeps what it has read as files."""

    def __init__(self, spark: SparkSession, broker: InProcessBroker, where: Path, **options: str) -> None:
        self._spark = spark
        self._where = where
        self._options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"} | options

    def run(self) -> StreamingQuery:
        """To the end of what is there."""
        for _ in range(STARTS_MAX - 1):
            try:
                return self._run_once()
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error):
                    raise
        return self._run_once()

    def _run_once(self) -> StreamingQuery:
        frame = self._spark.readStream.format("millpond").options(**self._options).load()
        numbers = frame.selectExpr("cast(cast(value as string) as int) number")
        writer = numbers.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._where / "check")).start(str(self._where / "out"))
        query.awaitTermination()
        return query

    def numbers(self) -> list[int]:
        return sorted(row.number for row in self._spark.read.parquet(str(self._where / "out")).collect())


def sizes(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_goes_on_where_it_was_and_finds_new_partitions(
    spark: SparkSession, broker: InProcessBroker, tmp_path: Path
) -> None:
    broker.create_topic("readings", partitions=2)
    send(broker, "readings", range(40), partition=0)
    send(broker, "readings", range(40, 60), partition=1)
    job = Job(spark, broker, tmp_path, subscribe="readings", maxOffsetsPerTrigger="25", **{"kafka.group.id": GROUP})
    assert sizes(job.run()) == [25, 25, 10]
    assert job.numbers() == list(range(60))
    with Admin(broker.bootstrap) as admin:
        assert {each.at: (each.committed, each.messages) for each in admin.group_lag(GROUP)} == {
            TopicPartition("readings", 0): (40, 0),
            TopicPartition("readings", 1): (20, 0),
        }
        admin.add_partitions("readings", total=3)
    send(broker, "readings", range(60, 65), partition=2)
    assert sizes(job.run()) == [5]
    assert job.numbers() == list(range(65))
    assert sizes(job.run()) == []


def test_a_limit_in_bytes_makes_more_batches(spark: SparkSession, broker: InProcessBroker, tmp_path: Path) -> None:
    broker.create_topic("heavy")
    with Producer(broker.bootstrap) as producer:
        producer.send_many("heavy", [b"%01000d" % number for number in range(300)])
    job = Job(spark, broker, tmp_path, subscribe="heavy", maxBytesPerTrigger="150000")
    found = sizes(job.run())
    assert len(found) == 3
    assert job.numbers() == list(range(300))


def test_a_stream_says_what_it_lost_and_goes_on_only_if_told(
    spark: SparkSession, broker: InProcessBroker, tmp_path: Path
) -> None:
    broker.create_topic("lossy")
    send(broker, "lossy", range(5), partition=0)
    assert sizes(Job(spark, broker, tmp_path, subscribe="lossy").run()) == [5]
    send(broker, "lossy", range(5, 20), partition=0)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("lossy", 0): 12})
    with pytest.raises(StreamingQueryException, match="messages from offset 5 to 11 are gone; it now begins at 12"):
        Job(spark, broker, tmp_path, subscribe="lossy").run()
    job = Job(spark, broker, tmp_path, subscribe="lossy", failOnDataLoss="false")
    job.run()
    assert job.numbers() == [*range(5), *range(12, 20)]
