"""Commits to a table are there whole, once and in order, whoever else commits."""

import json
import os
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import DateType, LongType, StringType, StructType, TimestampType

from millpond.model.errors import InvalidSetting
from millpond.pipeline.storage import File
from millpond.pipeline.table import Table

SCHEMA = StructType().add("time", TimestampType()).add("date", DateType())


def table(folder: Path) -> Table:
    return Table(folder, SCHEMA, partitioned_by="date")


def file(name: str, start: int = 0, end: int = 1000) -> File:
    path = f"date=2026-11-16/{name}.parquet"
    return File(path, {"date": "2026-11-16"}, size=10, rows=3, time_min_ms=start, time_max_ms=end)


def test_a_number_is_committed_once_whoever_tries(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []

    def work(who: int) -> None:
        mine = table(tmp_path)
        done.extend(
            (who, number)
            for number in range(20)
            if mine.commit("app", number, added=[file(f"{who}-{number}")], note={})
        )

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for _, number in done) == list(range(20))
    state = table(tmp_path).state
    assert state.version == 19
    assert sorted(state.files) == sorted(file(f"{who}-{number}").path for who, number in done)
    assert not list((tmp_path / "_delta_log").glob(".*")), "drafts are taken away"


def test_whoever_opens_it_finds_what_was_committed(tmp_path: Path) -> None:
    first = table(tmp_path)
    first.commit("a", 0, added=[file("x", 0, 10), file("y", 20, 30)], note={"count": 1})
    first.commit("b", 7, added=[file("z")], removed=[file("x")], note=None)
    found = table(tmp_path).state
    assert found.files == {each.path: each for each in (file("y", 20, 30), file("z"))}
    assert (found.numbers, found.note) == ({"a": 0, "b": 7}, {"count": 1})
    assert found.last_added["b"] == [file("z")]
    with pytest.raises(InvalidSetting, match="taken away by another job"):
        table(tmp_path).commit("a", 1, added=[], removed=[file("x")], note={})


def test_the_first_commit_says_what_the_table_is(tmp_path: Path) -> None:
    table(tmp_path).commit("a", 0, added=[], note={})
    lines = (tmp_path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions = {name: content for line in lines for name, content in json.loads(line).items()}
    assert actions["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert actions["metaData"]["partitionColumns"] == ["date"]
    assert StructType.fromJson(json.loads(actions["metaData"]["schemaString"])) == SCHEMA


def test_only_files_of_the_time_asked_for_are_looked_at() -> None:
    assert file("x", 100, 200).overlaps(200, 300)
    assert file("x", 100, 200).overlaps(0, 101)
    assert not file("x", 100, 200).overlaps(0, 100)
    assert not file("x", 100, 200).overlaps(201, 300)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSetting, match="cannot be written to"):
        table(tmp_path / "file" / "table")


def test_a_checkpoint_stands_for_all_commits_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.pipeline.table.CHECKPOINT_EVERY", 5)
    first = table(tmp_path)
    first.commit("b", 7, added=[file("x")], note=None)
    for number in range(9):
        first.commit("a", number, added=[file(f"a{number}")], note={"count": number})
        if number == 2:
            first.commit("c", 0, added=[], removed=[file("x")], note=None)
    log = tmp_path / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    kept = first.state.removed.pop(file("x").path)  # its file was never there
    assert kept
    assert table(tmp_path).state == first.state
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert table(tmp_path).state == first.state
    again = table(tmp_path)
    assert again.commit("a", 8, added=[], note={}) is False
    assert again.commit("a", 9, added=[], note={"count": 9})
    assert table(tmp_path).state == again.state


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.pipeline.table.CHECKPOINT_EVERY", 1)
    first = table(tmp_path)
    for number in range(3):
        first.commit("a", number, added=[file(f"a{number}")], note={"count": number})
    (tmp_path / "_delta_log" / f"{2:020}.checkpoint.parquet").write_bytes(b"PAR1")
    assert table(tmp_path).state == first.state


def test_a_column_is_added_and_none_is_changed_or_lost(tmp_path: Path) -> None:
    table(tmp_path).commit("a", 0, added=[file("x")], note={})
    wider = Table(tmp_path, StructType().add("time", TimestampType()).add("zone", StringType()), partitioned_by="date")
    assert wider.schema.fieldNames() == ["time", "date", "zone"]
    wider.commit("a", 1, added=[file("y")], note={})
    wider.commit("a", 2, added=[file("z")], note={})
    assert table(tmp_path).schema == wider.schema, "who does not know of it keeps it"
    said = [path.read_text().count("metaData") for path in sorted((tmp_path / "_delta_log").glob("*.json"))]
    assert said == [1, 1, 0]
    with pytest.raises(InvalidSetting, match="column zone is string, and cannot become bigint"):
        Table(tmp_path, StructType().add("zone", LongType()), partitioned_by="date")


def test_files_are_removed_when_nobody_reads_them_any_more(tmp_path: Path) -> None:
    def put(name: str, age_ms: int) -> Path:
        path = tmp_path / "date=2026-11-16" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (0, (now - age_ms) / 1000))
        return path

    now = 1_700_000_000_000
    current = Table(tmp_path, SCHEMA, partitioned_by="date", wall_ms=lambda: now)
    kept = [put("kept", 5_000), put("young orphan", 10), put("last of b", 5_000)]
    gone = [put("old orphan", 5_000), put("replaced", 5_000)]
    current.commit("b", 0, added=[file("last of b")], note={})
    current.commit("a", 0, added=[file("kept"), file("replaced")], note={})
    current.commit("c", 0, added=[], removed=[file("replaced"), file("last of b")], note={})
    current.commit("a", 1, added=[file("kept")], note={})

    def vacuumed(keep_ms: int, *, dry_run: bool = False) -> list[Path]:
        return [tmp_path / each.path for each in current.vacuum(keep_ms=keep_ms, dry_run=dry_run)]

    assert vacuumed(1_000) == [gone[0]], "what was replaced just now is still read"
    now += 2_000
    assert vacuumed(3_000, dry_run=True) == []
    assert vacuumed(1_000, dry_run=True) == sorted([gone[1], kept[1]])
    assert gone[1].exists()
    assert vacuumed(1_000) == sorted([gone[1], kept[1]])
    assert [path.exists() for path in kept] == [True, False, True]


def test_a_commit_that_is_damaged_is_named(tmp_path: Path) -> None:
    table(tmp_path).commit("a", 0, added=[], note={})
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("half of a li")
    with pytest.raises(InvalidSetting, match=r"0001.json is damaged: it is no commit of a table. Put it back"):
        table(tmp_path)
