"""The `Filesystem` port: one suite over both implementations, then what only the operating system's has."""

import errno
import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from millpond.model.ports import Buffer, File, Filesystem
from millpond.storage.filesystem import OsFilesystem
from millpond.testing.disk import SimDisk


@pytest.fixture(params=["os", "os-without-root", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Filesystem:
    if request.param == "os":
        return OsFilesystem(tmp_path)
    if request.param == "os-without-root":
        monkeypatch.chdir(tmp_path)
        return OsFilesystem()
    return SimDisk(random.Random(1))


@pytest.fixture
def file(files: Filesystem) -> Iterator[File]:
    file = files.open("log", create=True)
    yield file
    file.close()


def put(files: Filesystem, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.write(0, [content])
    file.close()


def content_of(files: Filesystem, path: str) -> bytes:
    file = files.open(path)
    content = file.read(0, file.size())
    file.close()
    return content


def assert_errno(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 the number is checked below
        call()
    assert caught.value.errno == number, caught.value


# A file


def test_a_new_file_is_empty(file: File) -> None:
    assert file.size() == 0
    assert file.read(0, 10) == b""


def test_what_was_written_is_read_back(file: File) -> None:
    assert file.write(0, [b"millpond"]) == 8
    assert file.read(0, 8) == b"millpond"
    assert file.read(4, 2) == b"po"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda content: memoryview(bytearray(content))])
@pytest.mark.parametrize("size", [1, 4096, 4097])
def test_chunks_of_any_kind_and_size_are_written_as_they_are(
    file: File, kind: Callable[[bytes], Buffer], size: int
) -> None:
    """With zeros in them: small ones pass through C's hands."""
    content = bytes(number % 7 for number in range(size))
    assert file.write(3, [kind(content)]) == size
    assert file.read(0, size + 10) == bytes(3) + content


def test_a_read_is_short_only_where_the_file_ends(file: File) -> None:
    file.write(0, [b"millpond"])
    assert file.read(5, 100) == b"ond"
    assert file.read(8, 100) == b""
    assert file.read(99, 100) == b""
    assert file.read(3, 0) == b""


def test_all_chunks_of_a_write_follow_one_another(file: File) -> None:
    chunks: list[Buffer] = [b"mi", bytearray(b"ll"), b"", memoryview(b"..pond..")[2:6]]
    assert file.write(3, chunks) == 8
    assert file.read(0, 99) == b"\0\0\0millpond"


def test_more_chunks_than_one_system_call_takes_are_written(file: File) -> None:
    chunks = [str(number).encode() for number in range(3000)]
    assert file.write(0, chunks) == len(b"".join(chunks))
    assert file.read(0, 1 << 20) == b"".join(chunks)


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_writing_nothing_leaves_even_the_size_alone(file: File, chunks: list[bytes]) -> None:
    assert file.write(100, chunks) == 0
    assert file.size() == 0


def test_a_write_over_old_bytes_replaces_only_those(file: File) -> None:
    file.write(0, [b"aaaaaaaa"])
    file.write(2, [b"bb"])
    assert file.read(0, 99) == b"aabbaaaa"


def test_a_write_keeps_no_hold_of_the_callers_buffer(file: File) -> None:
    buffer = bytearray(b"before")
    file.write(0, [buffer])
    buffer[:] = b"after!"
    buffer.extend(b"more")
    file.sync()
    assert file.read(0, 99) == b"before"


def test_truncate_cuts_and_extends_with_zeros(file: File) -> None:
    file.write(0, [b"millpond"])
    file.truncate(4)
    assert file.read(0, 99) == b"mill"
    file.truncate(6)
    assert file.read(0, 99) == b"mill\0\0"
    assert file.size() == 6


def test_sync_changes_nothing_one_can_read(file: File) -> None:
    file.write(0, [b"millpond"])
    file.sync()
    file.sync()
    assert file.read(0, 99) == b"millpond"


def test_a_map_shows_the_whole_content_and_cannot_be_written(file: File) -> None:
    file.write(0, [b"millpond"])
    view = file.map()
    assert bytes(view) == b"millpond"
    assert view.readonly
    assert view.nbytes == 8


def test_an_empty_file_maps_to_nothing(file: File) -> None:
    assert bytes(file.map()) == b""


def test_a_map_outlives_close_rename_and_remove(files: Filesystem) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"millpond"])
    view = file.map()
    file.close()
    files.rename("a", "b")
    files.remove("b")
    assert bytes(view) == b"millpond"
    assert bytes(view[4:]) == b"pond"


def test_a_file_may_shrink_once_its_maps_are_gone(file: File) -> None:
    file.write(0, [b"millpond"])
    view = file.map()
    del view
    gc.collect()
    file.truncate(0)
    assert file.size() == 0


def test_two_handles_of_one_file_see_one_content(files: Filesystem, file: File) -> None:
    other = files.open("log")
    other.write(0, [b"millpond"])
    assert file.read(0, 99) == b"millpond"
    other.close()
    assert file.size() == 8


def test_a_handle_follows_its_file_through_rename_and_remove(files: Filesystem, file: File) -> None:
    files.rename("log", "renamed")
    file.write(0, [b"millpond"])
    assert content_of(files, "renamed") == b"millpond"
    files.remove("renamed")
    file.write(8, [b"!"])
    file.sync()
    assert file.read(0, 99) == b"millpond!"


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.size(),
        lambda file: file.read(0, 1),
        lambda file: file.write(0, [b"x"]),
        lambda file: file.write(0, [b"x", b"y"]),
        lambda file: file.sync(),
        lambda file: file.truncate(0),
        lambda file: file.map(),
    ],
)
def test_a_closed_file_refuses_every_use(file: File, use: Callable[[File], object]) -> None:
    file.write(0, [b"x"])
    file.close()
    assert_errno(errno.EBADF, lambda: use(file))


def test_closing_twice_is_fine(file: File) -> None:
    file.close()
    file.close()


def test_negative_numbers_are_refused(file: File) -> None:
    assert_errno(errno.EINVAL, lambda: file.read(-1, 1))
    assert_errno(errno.EINVAL, lambda: file.write(-1, [b"x"]))
    assert_errno(errno.EINVAL, lambda: file.truncate(-1))


# Names


def test_open_makes_a_file_only_when_asked_to(files: Filesystem) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("log")
    assert not files.exists("log")
    files.open("log", create=True).close()
    assert files.exists("log")
    assert files.size("log") == 0


def test_open_with_create_keeps_what_is_there(files: Filesystem) -> None:
    put(files, "log", b"millpond")
    files.open("log", create=True).close()
    assert content_of(files, "log") == b"millpond"
    assert files.size("log") == 8


def test_make_directory_makes_those_above_it_and_may_be_repeated(files: Filesystem) -> None:
    files.make_directory("a/b/c")
    files.make_directory("a/b/c")
    files.make_directory("a/b/d")
    assert files.list("a") == ["b"]
    assert files.list("a/b") == ["c", "d"]
    assert files.exists("a/b/c")


def test_list_is_sorted(files: Filesystem) -> None:
    files.make_directory("d")
    for name in ("10", "b", "9", "a", "B"):
        put(files, f"d/{name}", b"")
    files.make_directory("d/aa")
    assert files.list("d") == ["10", "9", "B", "a", "aa", "b"]


def test_rename_replaces_its_target(files: Filesystem) -> None:
    files.make_directory("d")
    put(files, "d/new", b"new")
    put(files, "d/old", b"old")
    files.rename("d/new", "d/old")
    assert files.list("d") == ["old"]
    assert content_of(files, "d/old") == b"new"
    files.rename("d/old", "d/old")
    assert content_of(files, "d/old") == b"new"


def test_a_directory_is_renamed_with_all_it_holds(files: Filesystem) -> None:
    files.make_directory("topic-0")
    put(files, "topic-0/log", b"millpond")
    files.make_directory("gone")
    files.rename("topic-0", "gone")
    assert not files.exists("topic-0")
    assert content_of(files, "gone/log") == b"millpond"


def test_a_rename_stays_within_one_directory(files: Filesystem) -> None:
    files.make_directory("a")
    files.make_directory("b")
    put(files, "a/x", b"")
    assert_errno(errno.EXDEV, lambda: files.rename("a/x", "b/x"))


def test_remove_takes_a_file_away(files: Filesystem) -> None:
    put(files, "log", b"x")
    files.remove("log")
    assert not files.exists("log")


def test_remove_directory_takes_everything_below_it(files: Filesystem) -> None:
    files.make_directory("a/b/c")
    files.make_directory("keep")
    for path in ("a/x", "a/b/y", "a/b/c/z"):
        put(files, path, b"x")
    files.remove_directory("a")
    assert not files.exists("a")
    assert not files.exists("a/b/y")
    assert files.exists("keep")


def test_sync_directory_changes_nothing_one_can_see(files: Filesystem) -> None:
    files.make_directory("d")
    put(files, "d/log", b"x")
    files.sync_directory("d")
    assert files.list("d") == ["log"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda files: files.open("none/log", create=True), FileNotFoundError),
        (lambda files: files.open("dir"), IsADirectoryError),
        (lambda files: files.open("dir", create=True), IsADirectoryError),
        (lambda files: files.open("file/log", create=True), NotADirectoryError),
        (lambda files: files.size("none"), FileNotFoundError),
        (lambda files: files.list("none"), FileNotFoundError),
        (lambda files: files.list("file"), NotADirectoryError),
        (lambda files: files.make_directory("file"), FileExistsError),
        (lambda files: files.make_directory("file/dir"), NotADirectoryError),
        (lambda files: files.rename("none", "file"), FileNotFoundError),
        (lambda files: files.rename("file", "dir"), IsADirectoryError),
        (lambda files: files.rename("dir", "file"), NotADirectoryError),
        (lambda files: files.remove("none"), FileNotFoundError),
        (lambda files: files.remove("dir"), IsADirectoryError),
        (lambda files: files.remove_directory("none"), FileNotFoundError),
        (lambda files: files.remove_directory("file"), NotADirectoryError),
        (lambda files: files.sync_directory("none"), FileNotFoundError),
        (lambda files: files.sync_directory("file"), NotADirectoryError),
    ],
)
def test_a_name_that_does_not_fit_is_refused_and_nothing_changes(
    files: Filesystem, call: Callable[[Filesystem], object], error: type[OSError]
) -> None:
    files.make_directory("dir")
    put(files, "file", b"x")
    with pytest.raises(error):
        call(files)
    assert files.list("dir") == []
    assert content_of(files, "file") == b"x"
    assert not files.exists("none")
    assert not files.exists("file/dir")


def test_a_directory_does_not_replace_one_that_holds_something(files: Filesystem) -> None:
    files.make_directory("a")
    files.make_directory("b")
    put(files, "b/x", b"")
    assert_errno(errno.ENOTEMPTY, lambda: files.rename("a", "b"))
    assert files.list("b") == ["x"]


# Only the operating system


def test_short_reads_and_writes_are_carried_on_until_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No regular file gives short counts on demand, so system calls that take three bytes at most stand in."""
    pwrite, pread = os.pwrite, os.pread

    def short_pwritev(fd: int, chunks: Sequence[Buffer], position: int) -> int:
        return pwrite(fd, b"".join(chunks)[:3], position)

    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:3], position))
    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    file = OsFilesystem(tmp_path).open("log", create=True)
    assert file.write(0, [b"one chunk"]) == 9
    assert file.write(9, [b", ", b"", bytearray(b"ma"), b"n", memoryview(b"y at once")]) == 14
    assert file.write(23, [memoryview(b"!?!?!?")]) == 6
    assert file.read(0, 100) == b"one chunk, many at once!?!?!?"
    assert file.read(4, 8) == b"chunk, m"
    file.close()


def test_a_write_that_gets_nowhere_raises_instead_of_trying_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, position: 0)
    file = OsFilesystem(tmp_path).open("log", create=True)
    assert_errno(errno.EIO, lambda: file.write(0, [b"a", b"b"]))
    file.close()


def test_a_real_map_sees_what_is_written_later(tmp_path: Path) -> None:
    file = OsFilesystem(tmp_path).open("log", create=True)
    file.write(0, [b"millpond"])
    view = file.map()
    file.write(4, [b"race"])
    assert bytes(view) == b"millrace"
    file.close()


def test_a_file_dropped_without_close_is_warned_about(tmp_path: Path) -> None:
    file = OsFilesystem(tmp_path).open("log", create=True)
    with pytest.warns(ResourceWarning, match="without being closed"):
        del file


def test_files_are_not_for_everybody(tmp_path: Path) -> None:
    OsFilesystem(tmp_path).open("log", create=True).close()
    assert (tmp_path / "log").stat().st_mode & 0o007 == 0


def test_reserved_space_changes_neither_size_nor_content(file: File) -> None:
    file.write(0, [b"abc"])
    file.reserve(3, 1_000_000)
    assert (file.size(), file.read(0, 10)) == (3, b"abc")
    file.write(3, [b"def"])
    file.truncate(6)
    assert (file.size(), file.read(0, 10)) == (6, b"abcdef")


def test_what_was_reserved_and_not_used_is_given_back(tmp_path: Path) -> None:
    def blocks_bytes() -> int:
        return os.stat(tmp_path / "log").st_blocks * 512

    file = OsFilesystem(tmp_path).open("log", create=True)
    file.write(0, [b"abc"])
    file.reserve(3, 8_000_000)
    if blocks_bytes() < 8_000_000:
        pytest.skip("this filesystem reserves no space")
    file.truncate(3)
    file.sync()
    assert blocks_bytes() < 100_000
    file.close()
