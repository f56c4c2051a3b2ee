"""Whatever a log holds, and from wherever to wherever it is read: the rows are those that a plain consumer reads.

EXAMPLES=1000 python -m pytest tests/pipeline/test_any_topic.py        for longer
"""

import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from millpond.model.errors import OffsetOutOfRange
from millpond.pipeline.options import read_options
from millpond.pipeline.source import BatchReader, StreamReader
from millpond.testing.broker import InProcessBroker
from tests.pipeline.any_topic import TIMES_MS, Ground, Row, Topic, batches, logs
from tests.pipeline.source_mutants import BATCH_MUTANTS, RARE_MUTANTS, STREAM_MUTANTS, Mutant

EXAMPLES = int(os.environ.get("EXAMPLES", "12"))
EXAMPLES_PER_MUTANT = 200
STEPS_MAX = 400
PLANTED = BATCH_MUTANTS + (RARE_MUTANTS if "EXAMPLES" in os.environ else ())


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}) as broker:
        made = Ground(broker)
        yield made
        made.close()


def rows_of(found: Iterator[pa.RecordBatch]) -> list[Row]:
    return [
        Row(
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for batch in found
        for row in batch.to_pylist()
    ]


def read_all(reader: BatchReader | StreamReader, parts: Any) -> list[Row]:  # noqa: ANN401
    """As tasks do: with what comes out of a pickle."""
    found = [row for part in parts for row in rows_of(reader.read(pickle.loads(pickle.dumps(part))))]
    return sorted(found, key=lambda row: (row.partition, row.offset))


def _between(data: st.DataObject, first: int, last: int) -> int:
    """What is drawn must not tell where the last example ended."""
    return first + data.draw(st.integers(0, last - first))


# A batch read


@st.composite
def position(draw: st.DrawFn, topic: Topic, *, is_end: bool) -> tuple[dict[str, str], list[int]]:
    """The option that says it, and the offset of each partition that it means."""
    word, times = ("ending", "endingOffsetsByTimestamp") if is_end else ("starting", "startingOffsetsByTimestamp")
    count = len(topic.ends)
    edges = topic.ends if is_end else topic.starts
    match draw(st.sampled_from(["edge", "offsets", "time", "times"])):
        case "edge":
            said = draw(st.sampled_from([{}, {f"{word}Offsets": "latest" if is_end else "earliest"}]))
            return said, list(edges)
        case "offsets":
            named = draw(st.lists(st.sampled_from(range(count)), unique=True, min_size=1))
            found = list(edges)
            document = {}
            for each in named:
                found[each] = topic.starts[each] + draw(st.integers(0, topic.ends[each] - topic.starts[each]))
                is_edge = found[each] == edges[each] and draw(st.booleans())
                document[str(each)] = (-1 if is_end else -2) if is_edge else found[each]
            return {f"{word}Offsets": json.dumps({topic.name: document})}, found
        case "time":
            moment = draw(TIMES_MS)
            return {f"{word}Timestamp": str(moment)}, [first_since(topic, each, moment) for each in range(count)]
        case _:
            moments = [draw(TIMES_MS) for _ in range(count)]
            document = {str(each): moment for each, moment in enumerate(moments)}
            found = [first_since(topic, each, moment) for each, moment in enumerate(moments)]
            return {times: json.dumps({topic.name: document})}, found


def first_since(topic: Topic, partition: int, moment: int) -> int:
    """By what a consumer reads: the first message not older than this."""
    young = (row.offset for row in topic.rows if row.partition == partition and row.timestamp_ms >= moment)
    return next(young, topic.ends[partition])


@st.composite
def filters(draw: st.DrawFn, topic: Topic) -> list[tuple[Filter, Callable[[Row], bool]]]:
    moment, number, place = draw(TIMES_MS), topic.starts[0] + draw(st.integers(0, 30)), draw(st.integers(0, 2))
    known: list[tuple[Filter, Callable[[Row], bool]]] = [
        (GreaterThanOrEqual(("offset",), number), lambda row: row.offset >= number),
        (LessThan(("offset",), number), lambda row: row.offset < number),
        (EqualTo(("partition",), place), lambda row: row.partition == place),
        (In(("partition",), (place, 0)), lambda row: row.partition in (place, 0)),
        (
            GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(moment / 1000, UTC)),
            lambda row: row.timestamp_ms >= moment,
        ),
    ]
    return draw(st.lists(st.sampled_from(known), max_size=2))


def check_batch_read(ground: Ground, partitions: list[list[bytes]], data: st.DataObject) -> None:
    topic = ground.topic(partitions)
    for number, end in enumerate(topic.ends):
        if data.draw(st.integers(0, 3)) == 0:
            ground.delete_before(topic, number, _between(data, topic.starts[number], end))
    starting, starts = data.draw(position(topic, is_end=False))
    ending, ends = data.draw(position(topic, is_end=True))
    given_options = {
        "bootstrap.servers": ground.broker.bootstrap,
        "subscribe": topic.name,
        "includeHeaders": "true",
        "fetchBytes": str(data.draw(st.sampled_from([1, 100, 4_000_000]))),
        "maxRecordsPerPartition": str(data.draw(st.sampled_from([3, 1_000]))),
        "minPartitions": str(data.draw(st.sampled_from([1, 7]))),
    }
    reader = BatchReader(read_options(given_options | starting | ending, "batch"), None)
    pushed = data.draw(filters(topic))
    reader.pushFilters([each for each, _ in pushed])
    found = read_all(reader, reader.partitions())
    assert len(found) == len({(row.partition, row.offset) for row in found}), "a row came twice"
    wanted = [row for row in topic.rows if starts[row.partition] <= row.offset < ends[row.partition]]
    kept = [[row for row in rows if all(holds(row) for _, holds in pushed)] for rows in (found, wanted)]
    assert kept[0] == kept[1]


@settings(max_examples=EXAMPLES)
@given(logs(), st.data())
def test_a_batch_read_gives_what_a_consumer_reads(
    ground: Ground, partitions: list[list[bytes]], data: st.DataObject
) -> None:
    check_batch_read(ground, partitions, data)


# A stream


def check_stream(ground: Ground, partitions: list[list[bytes]], data: st.DataObject) -> None:
    """Step by step, within limits, while messages come; in any number of lives, each of which begins with offsets."""
    topic = ground.topic(partitions)
    rows_max = data.draw(st.none() | st.integers(5, 40))
    bytes_max = data.draw(st.none() | st.integers(100, 2_000))
    limits = {"maxOffsetsPerTrigger": rows_max, "maxBytesPerTrigger": bytes_max}
    given_options = {
        "bootstrap.servers": ground.broker.bootstrap,
        "subscribe": topic.name,
        "includeHeaders": "true",
        "startingOffsets": data.draw(st.sampled_from(["earliest", "latest"])),
        "failOnDataLoss": data.draw(st.sampled_from(["true", "false"])),
        "minRecordsPerPartition": data.draw(st.sampled_from(["1", "20", "1000"])),
    } | {name: str(limit) for name, limit in limits.items() if limit is not None}
    stream = StreamReader(read_options(given_options, "stream"), None)
    is_latest = given_options["startingOffsets"] == "latest"
    starts = list(topic.ends if is_latest else topic.starts)
    place = stream.initialOffset()
    seen: list[Row] = []
    wanted = {(row.partition, row.offset): row for row in topic.rows if row.offset >= starts[row.partition]}
    for _ in range(data.draw(st.integers(1, 3))):
        ground.append(topic, [data.draw(st.lists(batches(), max_size=2)) for _ in topic.ends])
        wanted |= {(row.partition, row.offset): row for row in topic.rows if row.offset >= starts[row.partition]}
        gone = _delete_some(ground, topic, data)
        unread = {at for at, offset in gone.items() if offset > place[topic.name][str(at)]}
        try:
            if data.draw(st.booleans()):
                stream.prepareForTriggerAvailableNow()
            place, rows = _steps(stream, place, rows_max)
        except OffsetOutOfRange:
            assert given_options["failOnDataLoss"] == "true"
            assert unread
            stream.stop()
            return
        seen += rows
        if unread:
            assert given_options["failOnDataLoss"] == "false"
            read = {(row.partition, row.offset) for row in seen}
            lost = [at for at in wanted if at not in read and at[1] < topic.starts[at[0]]]
            for at in lost:
                del wanted[at]
        if data.draw(st.booleans()):  # another life
            stream.stop()
            stream = StreamReader(read_options(given_options, "stream"), None)
        else:
            stream._target = None
    stream.stop()
    assert sorted(seen, key=lambda row: (row.partition, row.offset)) == [wanted[at] for at in sorted(wanted)]


def _delete_some(ground: Ground, topic: Topic, data: st.DataObject) -> dict[int, int]:
    gone = {}
    for number, end in enumerate(topic.ends):
        if data.draw(st.integers(0, 4)) == 0:
            gone[number] = _between(data, topic.starts[number], end)
            ground.delete_before(topic, number, gone[number])
    return gone


def _steps(stream: StreamReader, place: Any, rows_max: int | None) -> tuple[Any, list[Row]]:  # noqa: ANN401
    """Until nothing is left; offsets go through JSON, as Spark keeps them."""
    found: list[Row] = []
    for _ in range(STEPS_MAX):
        end = json.loads(json.dumps(stream.latestOffset(place, stream.getDefaultReadLimit())))
        if end == place:
            return place, found
        rows = read_all(stream, stream.partitions(place, end))
        assert rows_max is None or len(rows) <= rows_max
        found += rows
        place = end
    raise AssertionError("it does not come to an end")


@settings(max_examples=EXAMPLES)
@given(logs(), st.data())
def test_a_stream_gives_what_a_consumer_reads(
    ground: Ground, partitions: list[list[bytes]], data: st.DataObject
) -> None:
    check_stream(ground, partitions, data)


# Bugs on purpose


@pytest.mark.parametrize(
    ("check", "mutant"),
    [(check_batch_read, each) for each in PLANTED] + [(check_stream, each) for each in STREAM_MUTANTS],
    ids=lambda given: given.__name__,
)
def test_a_bug_on_purpose_is_found(
    ground: Ground, check: Callable[..., None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    @settings(
        max_examples=EXAMPLES_PER_MUTANT,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(logs(), st.data())
    def search(partitions: list[list[bytes]], data: st.DataObject) -> None:
        check(ground, partitions, data)

    try:
        search()
    except Exception:
        return
    pytest.fail(f"{mutant.__name__} is not found")


def test_what_is_compared_tells_rows_apart() -> None:
    row = Row(0, 1, b"key", None, 5, 0, ())
    assert row != replace(row, value=b"")
