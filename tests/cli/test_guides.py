"""The guides for people at a terminal: every command in them works, and prints what they say it prints."""

from pathlib import Path

import pytest

from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command
from tests.cli.transcripts import is_like, run_line, transcript

ROOT = Path(__file__).parents[2]
GUIDES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if transcript(path)]
STARTS_A_BROKER = ("make run", "millpond up")
"""The one of the test is there already."""
NOT_YET = ["there are no dead letters"]
"""A letter is written a moment after its message was given back for the last time."""
TRIES_MAX = 200


def test_there_are_guides_to_be_tried() -> None:
    wanted = {"cli.md", "coming-from-kafka.md", "coming-from-sqs-and-rabbitmq.md", "five-minutes.md", "queues.md"}
    assert {"README.md", *wanted} <= {path.name for path in GUIDES}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_every_command_prints_what_the_guide_says(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}, http=True, seed=1) as broker:
        monkeypatch.setenv("MILLPOND_DOOR", f"127.0.0.1:{broker.broker.http_port}")
        millpond = Command(capsys, monkeypatch, broker.bootstrap)
        for typed in transcript(path):
            if typed.line.startswith(STARTS_A_BROKER):
                continue
            printed = run_line(millpond, typed.line)
            for _ in range(TRIES_MAX):
                if printed != NOT_YET or typed.printed == NOT_YET:
                    break
                printed = run_line(millpond, typed.line)
            assert len(printed) == len(typed.printed), "\n".join([typed.line, *printed])
            for line, said in zip(printed, typed.printed, strict=True):
                assert is_like(line, said), "\n".join([typed.line, *printed])
