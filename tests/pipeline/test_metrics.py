"""The metrics pipeline comes to what plain Python computes of the same messages, however often its work is done."""

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from millpond.client.blocking import Admin, Producer
from millpond.pipeline.generating import Load, arrivals
from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings
from millpond.testing.broker import InProcessBroker
from tests.pipeline.metrics_model import Truth, truth
from tests.pipeline.topics import everything

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


def check(spark: SparkSession, settings: MetricsSettings) -> Truth:
    expected = truth(everything(settings.bootstrap, settings.topic, PARTITIONS), lateness_seconds=60)
    job = MetricsJob(spark, settings)
    progress = job.progress()
    rows = job.facts.read(spark).collect()
    found = {
        (row.client_id, row.metric, moment(row.time), row.value, json.dumps(row.tags or {}, sort_keys=True)): row.late
        for row in rows
    }
    assert len(found) == len(rows)
    assert found == expected.facts
    dead = everything(settings.bootstrap, settings.dead_letters, PARTITIONS)
    assert sorted((each.key or b"").decode() for each in dead) == sorted(expected.dead)
    assert all(dict(each.headers)["reason"] for each in dead)
    assert (progress.ingested, progress.dead, progress.facts, progress.late) == (
        expected.ingested, len(expected.dead), len(expected.facts), sum(expected.facts.values()),
    )  # fmt: skip
    stored = [tuple(row.asDict()[name] for name in SUMMARY) for row in job.rollups.read(spark).collect()]
    published = [json.loads(each.value or b"") for each in everything(settings.bootstrap, settings.rollups, PARTITIONS)]
    check_rollups([(*row[:3], moment(row[3]), *row[4:]) for row in stored], expected)
    check_rollups([tuple(each[name] for name in SUMMARY) for each in published], expected)
    return expected


SUMMARY = ("client_id", "metric", "resolution", "time", "count", "sum", "min", "max", "avg", "p50", "p95", "p99")


def moment(time: Any) -> int:  # noqa: ANN401 - a time that Spark gives without its zone
    return int(time.astimezone(UTC).timestamp() * 1000 + 0.5)


def check_rollups(found: list[tuple[Any, ...]], expected: Truth) -> None:
    by_window = {row[:4]: row[4:] for row in found}
    assert len(by_window) == len(found), "a window is there twice"
    wanted = expected.rollups()
    assert by_window.keys() == wanted.keys()
    for window, summary in by_window.items():
        assert summary == pytest.approx(wanted[window])


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
        assert sum(each.messages for each in admin.group_lag(settings.group)) == 0
    for writes_to_live in (2, 2, 3):
        Mortal(job, writes_to_live)
        with pytest.raises(Killed):
            job.close_windows()
        job = MetricsJob(spark, settings)
    job.close_windows()
    expected = check(spark, settings)
    assert expected.dead
    assert any(expected.facts.values())
    assert expected.ingested > len(expected.facts) + len(expected.dead)
