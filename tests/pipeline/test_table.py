"""Commits to a table are there whole, once and in order, whoever else commits."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import DateType, StructType, TimestampType

from millpond.model.errors import InvalidSetting
from millpond.pipeline.table import File, Table

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
