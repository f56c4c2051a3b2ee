"""The metrics pipeline comes to what plain Python computes of the same messages, however often its work is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from millpond.cli.pipeline_run import Watcher
from millpond.client.blocking import Admin, Producer
from millpond.pipeline.generating import Load, arrivals
from millpond.pipeline.metrics_job import BatchDone, MetricsJob, MetricsSettings, Progress
from millpond.testing.broker import InProcessBroker
from tests.pipeline.metrics_model import compare

pytestmark = pytest.mark.slow

PARTITIONS = 2
START_MS = 1_700_000_000_000


class Killed(Exception):
    """In the place of a kill, within one process."""


class Mortal:
    """Ends a job at its writes, in turn: before one, after one, before another."""

    def __init__(self, job: MetricsJob, writes_to_live: int) -> None:
        self._left = writes_to_live
        job._send = self._with_end(job._send)  # type: ignore[method-assign]
        for table in (job.facts, job.rollups):
            table.commit = self._with_end(table.commit)  # type: ignore[method-assign]

    def _with_end(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever a write takes
            self._left -= 1
            if self._left == 0:
                raise Killed
            done = write(*given, **named)
            self._left -= 1
            if self._left == 0:
                raise Killed
            return done

        return call


def send(broker: InProcessBroker, topic: str, load: Load) -> None:
    with Producer(broker.bootstrap) as producer:
        for at_ms, keys, values in arrivals(load):
            producer.send_many(topic, values, keys=keys, timestamp=at_ms)


@pytest.fixture
def settings(broker: InProcessBroker, tmp_path: Path) -> MetricsSettings:
    names = [f"{tmp_path.name}.{name}" for name in ("inbound", "dead", "rollup")]
    for name in names:
        broker.create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    return MetricsSettings(
        bootstrap=broker.bootstrap,
        folder=tmp_path,
        group=tmp_path.name,
        offsets_per_trigger_max=1_200,
        topic=names[0],
        dead_letters=names[1],
        rollups=names[2],
    )


def test_tables_and_topics_are_what_the_messages_come_to(
    spark: SparkSession, broker: InProcessBroker, settings: MetricsSettings
) -> None:
    """Runs are ended before and after writes of every kind; what they had done is done again by the next."""
    send(broker, settings.topic, Load(messages=2_000, start_ms=START_MS, per_second=10, clients=5))
    for writes_to_live in (2, 4, 2, 2):
        job = MetricsJob(spark, settings)
        Mortal(job, writes_to_live)
        with pytest.raises(StreamingQueryException, match="Killed"):
            job.start().awaitTermination()
    job = MetricsJob(spark, settings)
    job.start().awaitTermination()
    with Admin(broker.bootstrap) as admin:
        assert sum(each.messages or 0 for each in admin.group_lag(settings.group)) == 0
    for writes_to_live in (2, 2, 3):
        Mortal(job, writes_to_live)
        with pytest.raises(Killed):
            job.close_windows()
        job = MetricsJob(spark, settings)
    job.close_windows()
    expected = compare(settings)
    assert expected.dead
    assert any(expected.facts.values())
    assert expected.ingested > len(expected.facts) + len(expected.dead)


def test_each_batch_is_a_line_and_figures_for_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watcher(metrics_port=0)
    try:
        watch(BatchDone(3, Progress(ingested=500, dead=20, facts=450), 7, 0.5, 40, 2.0))
    finally:
        watch.close()
    assert "batch 3: 500 messages in 0.5 s" in capsys.readouterr().err
    assert prometheus_client.REGISTRY.get_sample_value("millpond_pipeline_duplicates") == 30
    assert prometheus_client.REGISTRY.get_sample_value("millpond_pipeline_lag_messages") == 40
