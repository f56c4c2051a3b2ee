"""A data directory has one owner at a time."""

import os
from pathlib import Path

import pytest

from millpond.app.data_directory import LOCK, DataDirectory
from millpond.app.refusals import CannotStart


def test_a_second_owner_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    first = DataDirectory.lock(f"{tmp_path}/a/b")
    try:
        with pytest.raises(CannotStart) as refused:
            DataDirectory.lock(f"{tmp_path}/a/b")
    finally:
        first.unlock()
    assert str(refused.value) == (
        f"the data directory {tmp_path}/a/b is in use by another broker, process {os.getpid()}; "
        "stop that one first, or give this one its own with --data-dir"
    )


def test_an_owner_that_is_not_known_is_not_named(tmp_path: Path) -> None:
    first = DataDirectory.lock(str(tmp_path))
    try:
        (tmp_path / LOCK).write_text("")
        with pytest.raises(CannotStart, match="in use by another broker; stop"):
            DataDirectory.lock(str(tmp_path))
    finally:
        first.unlock()


def test_it_can_be_locked_again_after_it_was_unlocked(tmp_path: Path) -> None:
    for _ in range(3):
        directory = DataDirectory.lock(str(tmp_path))
        directory.unlock()
        directory.unlock()
    assert (tmp_path / LOCK).read_text() == ""


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(CannotStart) as refused:
        DataDirectory.lock(f"{tmp_path}/data")
    assert str(refused.value) == (
        f"cannot use the data directory {tmp_path}/data: File exists; "
        "give one that this user may write to with --data-dir"
    )
