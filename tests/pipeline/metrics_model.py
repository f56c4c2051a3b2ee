"""What the metrics pipeline has to come to, computed in plain Python from what a plain consumer reads."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.client import Message
from millpond.pipeline import metrics
from millpond.pipeline.metrics import AHEAD_SECONDS_MAX, RESOLUTIONS_MS
from millpond.pipeline.metrics_job import MetricsSettings, Progress
from millpond.pipeline.storage import below
from millpond.pipeline.table import Table
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


def _is_object(value: bytes) -> bool:
    """What can be read, and only means nothing, is sent on as the fields that are known."""
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def compare(settings: MetricsSettings) -> Truth:
    """Tables and topics with the truth, to the row and to the sum; returns it. Without Spark: files are files."""
    expected = truth(everything(settings.bootstrap, settings.topic), lateness_seconds=settings.lateness_seconds)
    facts, rollups = tables(settings)
    found = list(_stored_facts(facts))
    by_fact = dict(found)
    assert len(by_fact) == len(found), f"{len(found) - len(by_fact)} facts are there more than once"
    assert by_fact == expected.facts, _difference(by_fact, expected.facts)
    dead = everything(settings.bootstrap, settings.dead_letters) if expected.dead else []
    letters = sorted((each.key or b"").decode() for each in dead)
    assert letters == sorted(expected.dead), f"{len(letters)} dead letters, and {len(expected.dead)} in the model"
    for each in dead:
        headers, came = dict(each.headers), expected.dead[(each.key or b"").decode()]
        assert headers["reason"]
        assert headers["source"] == each.key
        assert each.value == came or _is_object(came), f"dead letter {each.key!r} is not what came: {each.value!r}"
    progress = Progress(**facts.state.note)
    assert (progress.ingested, progress.dead, progress.facts, progress.late) == (
        expected.ingested, len(expected.dead), len(expected.facts), sum(expected.facts.values()),
    ), progress  # fmt: skip
    windows = expected.rollups()
    published = [json.loads(each.value or b"") for each in everything(settings.bootstrap, settings.rollups)]
    _compare_rollups("stored", _stored_rollups(rollups), windows)
    _compare_rollups("published", (tuple(each[name] for name in SUMMARY) for each in published), windows)
    return expected


SUMMARY = ("client_id", "metric", "resolution", "time", "count", "sum", "min", "max", "avg", "p50", "p95", "p99")


def tables(settings: MetricsSettings) -> tuple[Table, Table]:
    """Of facts, and of roll-ups."""
    return (
        Table(below(settings.folder, "facts"), metrics.FACT, partitioned_by="date"),
        Table(below(settings.folder, "rollups"), metrics.ROLLUP, partitioned_by="resolution"),
    )


def _columns(table: Table, *names: str) -> Iterator[tuple[Mapping[str, str], Iterator[tuple[Any, ...]]]]:
    """Of each file of a table: what its folder says, and its rows; times in milliseconds."""
    for file in table.state.files.values():
        found = pq.read_table(table.storage.parquet(file.path), columns=list(names), partitioning=None)
        columns = []
        for name in names:
            column = found[name]
            is_time = pa.types.is_timestamp(column.type)
            columns.append(column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()) if is_time else column)
        yield file.partition, zip(*(each.to_pylist() for each in columns), strict=True)


def _stored_facts(table: Table) -> Iterator[tuple[Fact, bool]]:
    for _, rows in _columns(table, "client_id", "metric", "time", "value", "tags", "late"):
        for client, metric, time, value, tags, late in rows:
            yield (client, metric, time, value, json.dumps(dict(tags or ()), sort_keys=True)), late


def _stored_rollups(table: Table) -> Iterator[tuple[Any, ...]]:
    for partition, rows in _columns(table, *(name for name in SUMMARY if name != "resolution")):
        for row in rows:
            yield (*row[:2], partition["resolution"], *row[2:])


def _difference(found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> str:
    missing, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    other = [each for each in wanted.keys() & found.keys() if wanted[each] != found[each]]
    return (
        f"{len(missing)} are missing, such as {sorted(missing)[:2]}; {len(more)} are too many, such as "
        f"{sorted(more)[:2]}; {len(other)} are otherwise, such as {sorted(other)[:2]}"
    )


def _compare_rollups(where: str, found: Iterable[tuple[Any, ...]], wanted: Mapping[Window, tuple[float, ...]]) -> None:
    rows = list(found)
    by_window = {row[:4]: row[4:] for row in rows}
    assert len(by_window) == len(rows), f"{where}: {len(rows) - len(by_window)} windows are there more than once"
    assert by_window.keys() == wanted.keys(), f"{where}: {_difference(dict.fromkeys(by_window), dict.fromkeys(wanted))}"
    for window, summary in by_window.items():
        right = wanted[window]
        assert summary[0] == right[0], f"{where}: {window} counts {summary[0]}, and it is {right[0]}"
        assert np.allclose(summary, right, rtol=1e-9, atol=0), f"{where}: {window} is {summary}, and not {right}"
