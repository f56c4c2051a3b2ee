"""The plan of `make pipeline-chaos`: the same for the same seed, everywhere in twenty kills; and where one landed."""

import json
import random
from pathlib import Path

from tests.pipeline.chaos_aims import AIMS, Folders, ingested, landed, loose, schedule


def test_a_seed_gives_one_plan_that_strikes_at_every_place() -> None:
    plan = schedule(random.Random(7), 20)
    assert plan == schedule(random.Random(7), 20)
    assert plan != schedule(random.Random(8), 20)
    assert {each.aim for each in plan} >= AIMS.keys()


def test_where_a_kill_landed_is_read_from_what_is_on_disk(tmp_path: Path) -> None:
    at = Folders(tmp_path / "job", tmp_path / "broker")
    assert landed(at) == "between micro-batches"

    def write(path: str, text: str = "") -> None:
        (tmp_path / "job" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "job" / path).write_text(text)

    def commit(table: str, version: int, number: int) -> None:
        lines = [
            {"commitInfo": {"note": {"ingested": 100 * (version + 1)}}},
            {"txn": {"appId": "query", "version": number}},
            {"add": {"path": f"date=1/{version}.parquet"}},
        ]
        write(f"{table}/_delta_log/{version:020}.json", "\n".join(map(json.dumps, lines)))
        write(f"{table}/date=1/{version}.parquet")

    write("checkpoint/offsets/0")
    assert landed(at) == "in 0, before its facts"
    commit("facts", 0, 0)
    assert landed(at) == "in 0, behind its facts"
    commit("rollups", 0, 0)
    assert landed(at) == "in 0, behind its roll-ups"
    write("checkpoint/commits/0")
    assert landed(at) == "between micro-batches"
    write("facts/date=1/of-a-run-that-died.parquet")
    assert (ingested(at), loose(at)) == (100, 1)
