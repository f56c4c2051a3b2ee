"""What the metrics pipeline has to come to, computed in plain Python from what a plain consumer reads."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from millpond.client import Message
from millpond.pipeline.metrics import AHEAD_SECONDS_MAX, RESOLUTIONS_MS
from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings
from tests.pipeline.topics import everything

Fact = tuple[str, str, int, float, str]
Window = tuple[str, str, str, int]


@dataclass(slots=True)
class Truth:
    ingested: int = 0
    dead: dict[str, bytes] = field(default_factory=dict)
    """By partition and offset, the value."""
    facts: dict[Fact, bool] = field(default_factory=dict)
    """And whether it was late."""

    def rollups(self) -> dict[Window, tuple[float, ...]]:
        found: dict[Window, list[float]] = defaultdict(list)
        for (client, metric, time, value, _), late in self.facts.items():
            if not late:
                for name, width in RESOLUTIONS_MS.items():
                    found[client, metric, name, time // width * width].append(value)
        return {window: _summary(values) for window, values in found.items()}


def _summary(values: list[float]) -> tuple[float, ...]:
    shares = np.percentile(values, [50, 95, 99])
    total = sum(values)
    return (len(values), total, min(values), max(values), total / len(values), *map(float, shares))


def truth(messages: Iterable[Message], *, lateness_seconds: int) -> Truth:
    """Messages of one partition come in order; those of one client are in one partition."""
    found = Truth()
    for message in messages:
        found.ingested += 1
        metric = _metric(message)
        if metric is None:
            found.dead[f"{message.partition}-{message.offset}"] = message.value or b""
        else:
            found.facts.setdefault(metric, metric[2] < message.timestamp - 1000 * lateness_seconds)
    return found


def _metric(message: Message) -> Fact | None:
    try:
        said: Any = json.loads(message.value or b"")
        client, metric, time, value = (said.get(name) for name in ("client_id", "metric", "timestamp", "value"))
    except (ValueError, AttributeError):
        return None
    is_good = isinstance(client, str) and isinstance(metric, str) and isinstance(value, float | int)
    if not is_good or not isinstance(time, int) or time > message.timestamp + 1000 * AHEAD_SECONDS_MAX:
        return None
    return client, metric, time, float(value), json.dumps(said.get("tags") or {}, sort_keys=True)


def compare(spark: SparkSession, settings: MetricsSettings) -> Truth:
    """Tables and topics with the truth, to the row; returns it."""
    expected = truth(everything(settings.bootstrap, settings.topic), lateness_seconds=settings.lateness_seconds)
    job = MetricsJob(spark, settings)
    progress = job.progress()
    rows = job.facts.read(spark).collect()
    found = {
        (row.client_id, row.metric, _moment(row.time), row.value, json.dumps(row.tags or {}, sort_keys=True)): row.late
        for row in rows
    }
    assert len(found) == len(rows)
    assert found == expected.facts
    dead = everything(settings.bootstrap, settings.dead_letters)
    assert sorted((each.key or b"").decode() for each in dead) == sorted(expected.dead)
    assert all(dict(each.headers)["reason"] for each in dead)
    assert (progress.ingested, progress.dead, progress.facts, progress.late) == (
        expected.ingested, len(expected.dead), len(expected.facts), sum(expected.facts.values()),
    )  # fmt: skip
    stored = [tuple(row.asDict()[name] for name in SUMMARY) for row in job.rollups.read(spark).collect()]
    published = [json.loads(each.value or b"") for each in everything(settings.bootstrap, settings.rollups)]
    _compare_rollups([(*row[:3], _moment(row[3]), *row[4:]) for row in stored], expected)
    _compare_rollups([tuple(each[name] for name in SUMMARY) for each in published], expected)
    return expected


SUMMARY = ("client_id", "metric", "resolution", "time", "count", "sum", "min", "max", "avg", "p50", "p95", "p99")


def _moment(time: Any) -> int:  # noqa: ANN401 - a time that Spark gives without its zone
    return int(time.astimezone(UTC).timestamp() * 1000 + 0.5)


def _compare_rollups(found: list[tuple[Any, ...]], expected: Truth) -> None:
    by_window = {row[:4]: row[4:] for row in found}
    assert len(by_window) == len(found), "a window is there twice"
    wanted = expected.rollups()
    assert by_window.keys() == wanted.keys()
    for window, summary in by_window.items():
        assert np.allclose(summary, wanted[window]), window
