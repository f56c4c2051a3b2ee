"""An archive has every message of its ranges, and comparing it with the log finds whatever differs."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from millpond.client.blocking import Admin, Producer
from millpond.model.errors import InvalidSetting, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.pipeline.archive import Archive, ArchivedRange, archive, first_missing
from millpond.pipeline.archive_check import differences, holes, verify
from millpond.pipeline.columns import TYPES, arrow_schema
from millpond.pipeline.contents import Contents
from millpond.testing.broker import InProcessBroker
from tests.pipeline.topics import everything

RANGE = ArchivedRange(
    partition=0, start=0, end=10, messages=10, first_ms=1, last_ms=2, file="0", bytes=1, sha256="", contents=""
)


def states(spark: SparkSession, target: Archive) -> list[tuple[str, str]]:
    return [(each.state, each.found) for each in verify(spark, target)]


@pytest.mark.slow
def test_an_archive_is_the_log_and_a_difference_is_found(
    spark: SparkSession, broker: InProcessBroker, tmp_path: Path
) -> None:
    topic = tmp_path.name
    broker.create_topic(topic, partitions=2)
    target = Archive(broker.bootstrap, topic, str(tmp_path))
    folder = tmp_path / topic
    with Producer(broker.bootstrap) as producer:
        for number in range(30):
            headers = [("place", b"%d" % number), ("nothing", None)] if number % 3 else []
            producer.send(topic, b"v%d" % number if number % 7 else None, key=b"k%d" % number, headers=headers)
        producer.flush()
        first = archive(spark, target, messages_per_file_max=10)
        producer.send(topic, b"one more", partition=0)
        producer.flush()
    (folder / "0-left-over.parquet").write_bytes(b"of a run that was killed")
    second = archive(spark, target)
    assert (sum(each.messages for each in first), [each.messages for each in second]) == (30, [1])
    assert archive(spark, target) == []
    assert len(list(folder.glob("*.parquet"))) == len(target.ranges()) == len(first) + 1

    sent = {(each.partition, each.offset): (each.key, each.value) for each in everything(broker.bootstrap, topic)}
    kept = spark.read.parquet(str(folder)).collect()
    assert {
        (row.partition, row.offset): (
            None if row.key is None else bytes(row.key), None if row.value is None else bytes(row.value),
        ) for row in kept
    } == sent  # fmt: skip
    assert {state for state, _ in states(spark, target)} == {"same"}

    damaged, changed = (folder / each.file for each in target.ranges()[:2])
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    rewrite(folder, changed.name)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 1): target.ranges()[-1].end})
    found = states(spark, target)
    assert found[0][0] == "different"
    assert "is not as it was written" in found[0][1]
    assert found[1] == ("different", f"other value: offset {target.ranges()[1].start}")
    assert found[-1][0] == "gone"


def rewrite(folder: Path, name: str) -> None:
    """With another value in its first message, and a manifest that knows no better."""
    table = pq.read_table(folder / name)
    values = table["value"].to_pylist()
    table = table.set_column(1, table.schema.field("value"), pa.array([b"another", *values[1:]], pa.binary()))
    pq.write_table(table, folder / name)
    contents = Contents()
    for batch in table.to_batches():
        contents.add(batch)
    path = folder / "_manifest.json"
    document = json.loads(path.read_text())
    data = (folder / name).read_bytes()
    for each in document["ranges"]:
        if each["file"] == name:
            each.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), contents=contents.checksum())
    path.write_text(json.dumps(document))


def test_how_messages_are_cut_into_batches_makes_no_difference_and_what_they_are_does() -> None:
    rows: list[dict[str, Any]] = [
        {"key": None, "value": b"", "topic": "t", "partition": 0, "offset": 0, "timestamp": 1, "timestampType": 0},
        {"key": b"k", "value": None, "topic": "t", "partition": 0, "offset": 3, "timestamp": 2, "timestampType": 0,
         "headers": [{"key": "a", "value": None}, {"key": "b", "value": b""}]},
        {"key": b"", "value": b"v", "topic": "t", "partition": 0, "offset": 4, "timestamp": 3, "timestampType": 1,
         "headers": []},
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(tuple(TYPES)))

    def checksum(*batches: pa.RecordBatch) -> str:
        contents = Contents()
        for each in batches:
            contents.add(each)
        assert contents.messages == 3
        return contents.checksum()

    whole = checksum(batch)
    assert checksum(*(batch.slice(place, 1) for place in range(3))) == whole
    assert checksum(batch.slice(0, 0), batch.slice(0, 2), batch.slice(2)) == whole
    for row, column, value in (
        (0, "key", b""),
        (1, "value", b""),
        (2, "headers", None),
        (1, "headers", []),
        (2, "timestamp", 4),
    ):
        other = [each | ({column: value} if place == row else {}) for place, each in enumerate(rows)]
        assert checksum(pa.RecordBatch.from_pylist(other, schema=batch.schema)) != whole


def test_what_was_lost_before_it_was_archived_is_said() -> None:
    at = TopicPartition("orders", 0)
    assert first_missing(at, [], 7, allow_gaps=False) == 7
    assert first_missing(at, [RANGE], 7, allow_gaps=False) == 10
    assert first_missing(at, [RANGE], 12, allow_gaps=True) == 12
    with pytest.raises(OffsetOutOfRange, match="archived up to offset 10, and now begins at 12"):
        first_missing(at, [RANGE], 12, allow_gaps=False)
    (hole,) = holes([RANGE, replace(RANGE, start=12, end=20)])
    assert (hole.start, hole.end, hole.found) == (10, 12, "no file has these offsets")


def test_differences_are_named_by_offset() -> None:
    def message(offset: int, value: bytes) -> dict[str, object]:
        return dict.fromkeys(("timestamp", "timestampType", "key", "headers")) | {"offset": offset, "value": value}

    archived = {offset: message(offset, b"a") for offset in range(9)}
    logged = {offset: message(offset, b"a" if offset else b"b") for offset in range(3)} | {20: message(20, b"a")}
    assert differences(archived, logged) == (
        "only in the log: offset 20; only in the archive: offsets 3, 4, 5, 6, 7 and 1 more; other value: offset 0"
    )


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "_manifest.json").write_text("{}")
    with pytest.raises(InvalidSetting, match="is no manifest"):
        Archive("127.0.0.1:9", "orders", str(tmp_path)).ranges()
