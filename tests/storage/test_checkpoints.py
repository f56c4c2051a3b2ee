"""Small documents: whole or none, whatever became of their bytes."""

import errno
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.storage.checkpoints import read_document, write_document
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.builders import new_disk

CONTENT = {"recovery_point": 4711, "start_offset": 0, "names": ["a", None, "ü"]}


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    disk.make_directory("d")
    yield disk
    assert disk.open_files == 0


def put(disk: SimDisk, content: bytes | bytearray) -> None:
    file = disk.open("d/doc", create=True)
    file.truncate(0)
    file.write(0, [content])
    file.close()


def written_bytes(disk: SimDisk) -> bytes:
    write_document(disk, "d", "doc", CONTENT)
    file = disk.open("d/doc")
    content = file.read(0, file.size())
    file.close()
    return content


def test_a_missing_document_is_none(disk: SimDisk) -> None:
    assert read_document(disk, "d", "doc") is None


def test_a_document_looks_as_its_module_says(disk: SimDisk) -> None:
    head, body, rest = written_bytes(disk).split(b"\n")
    assert head.startswith(b"millpond 1 ")
    assert len(head) == len(b"millpond 1 ") + 8
    assert body == b'{"recovery_point":4711,"start_offset":0,"names":["a",null,"\\u00fc"]}'
    assert rest == b""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_a_document_reads_back_as_it_was_written(content: object) -> None:
    disk = new_disk()
    disk.make_directory("d")
    write_document(disk, "d", "doc", content)
    assert read_document(disk, "d", "doc") == content


def test_a_shorter_document_replaces_a_longer_one_whole(disk: SimDisk) -> None:
    write_document(disk, "d", "doc", list(range(1000)))
    write_document(disk, "d", "doc", [1])
    assert read_document(disk, "d", "doc") == [1]
    assert disk.list("d") == ["doc"]


def test_what_a_failed_write_left_behind_does_not_show_in_the_next_document(disk: SimDisk) -> None:
    disk.fail("rename")
    with pytest.raises(OSError, match="Input/output error"):
        write_document(disk, "d", "doc", list(range(1000)))
    write_document(disk, "d", "doc", [1])
    assert read_document(disk, "d", "doc") == [1]


def test_a_document_with_any_one_bit_flipped_is_none(disk: SimDisk) -> None:
    content = written_bytes(disk)
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        put(disk, flipped)
        assert read_document(disk, "d", "doc") is None, f"bit {bit} of {content!r}"


def test_a_document_cut_anywhere_before_its_last_newline_is_none(disk: SimDisk) -> None:
    content = written_bytes(disk)
    for size in range(len(content) - 1):
        put(disk, content[:size])
        assert read_document(disk, "d", "doc") is None, content[:size]


def test_a_document_with_a_tail_of_zeros_or_in_a_sea_of_them_is_none(disk: SimDisk) -> None:
    content = written_bytes(disk)
    for damaged in (bytes(len(content)), content + b"\0", content[:20] + bytes(len(content) - 20)):
        put(disk, damaged)
        assert read_document(disk, "d", "doc") is None


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_read_without_an_exception(content: bytes) -> None:
    disk = new_disk()
    disk.make_directory("d")
    put(disk, content)
    assert read_document(disk, "d", "doc") is None


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_step_leaves_the_old_document_or_the_new_one(seed: int) -> None:
    for step in range(1, 10):
        disk = SimDisk(random.Random(seed))
        disk.make_directory("d")
        disk.sync_directory("")
        write_document(disk, "d", "doc", "old")
        disk.cut_power_at(step)
        try:
            write_document(disk, "d", "doc", "new")
        except PowerCut:
            outcomes = ["old", "new"]
        else:
            outcomes = ["new"]
        disk.crash()
        assert read_document(disk, "d", "doc") in outcomes


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_write_that_fails_leaves_the_old_document(disk: SimDisk, operation: str) -> None:
    write_document(disk, "d", "doc", "old")
    disk.fail(operation, error=errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="No space left"):
        write_document(disk, "d", "doc", "new")
    assert read_document(disk, "d", "doc") == "old"
    write_document(disk, "d", "doc", "new")
    assert read_document(disk, "d", "doc") == "new"
