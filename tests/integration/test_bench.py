"""The benchmark runs, measures everything it should, and leaves nothing behind. How fast is no question for a test."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = ("1 MB", "16 KB", "200 B")


def expected_rows() -> set[tuple[str, str]]:
    modes = ("none", "interval", "group, 1 appender", "group, 32 appenders")
    kinds = ("verified", "unverified, copied")
    latencies = ("p50", "p99", "max")
    openings = (
        "after a crash, 5 % since the last checkpoint",
        "after a crash, without a checkpoint",
        "after a crash, without a checkpoint, CPU",
        "clean reopen",
    )
    contents = ("", " with keys and times")
    return {
        *(("append", f"{size}, {mode}") for size, mode in product(SIZES, modes)),
        *(("read", f"{size}, {kind}") for size, kind in product(SIZES, kinds)),
        *(("read", f"{size}, tail, verified") for size in SIZES[1:]),
        *(("look-up", f"{by}, {size}, {each}") for by, size, each in product(("offset", "time"), SIZES, latencies)),
        *(("recovery", f"{size}, {opening}") for size, opening in product(SIZES, openings)),
        ("records", "encode values only"),
        *(("records", f"{verb}{content}") for verb, content in product(("encode", "decode"), contents)),
        *(("records", f"check_batch {size}") for size in SIZES),
    }


@pytest.mark.slow
def test_a_quick_benchmark_measures_every_row_and_cleans_up(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "storage.json"
    work.mkdir()
    command = [sys.executable, "-W", "error", "-m", "bench", "--quick", "--dir", str(work), "--out", str(out)]
    environment = os.environ | {"TERM": "dumb"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert {(row["section"], row["name"]) for row in document["rows"]} == expected_rows()
    assert all(row["value"] > 0 for row in document["rows"])
    assert all(row["ratio"] > 0 for row in document["rows"] if row["section"] in ("append", "read"))
    assert document["machine"]["cpus"] > 0
    assert "\x1b" not in done.stdout, "no colours and no cursor movements where there is no terminal"
    assert not list(work.iterdir())
