"""The failures one can plan on a simulated disk."""

import errno
import random
from collections.abc import Callable

import pytest

from millpond.testing.disk import SimDisk, SimFile


def disk_with_log(*, seed: int = 0, capacity_bytes: int | None = None) -> tuple[SimDisk, SimFile]:
    disk = SimDisk(random.Random(seed), capacity_bytes=capacity_bytes)
    file = disk.open("log", create=True)
    disk.sync_directory("")
    return disk, file


def content_of(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    content = file.read(0, file.size())
    file.close()
    return content


def assert_errno(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 the number is checked below
        call()
    assert caught.value.errno == number, caught.value


def test_a_fault_strikes_after_so_many_and_so_many_times() -> None:
    disk, file = disk_with_log()
    fault = disk.fail("truncate", error=errno.EIO, after=2, times=3)
    outcomes = []
    for size in range(8):
        try:
            file.truncate(size)
            outcomes.append("done")
        except OSError as error:
            outcomes.append(errno.errorcode[error.errno or 0])
    assert outcomes == ["done", "done", "EIO", "EIO", "EIO", "done", "done", "done"]
    assert fault.hits == 3
    assert file.size() == 7


def test_a_fault_may_last_until_the_disk_is_healed() -> None:
    disk, file = disk_with_log()
    disk.fail("sync", times=None)
    for _ in range(5):
        assert_errno(errno.EIO, file.sync)
    disk.heal()
    file.sync()


def test_a_fault_knows_its_paths() -> None:
    disk, file = disk_with_log()
    disk.make_directory("topic-0")
    disk.fail("write", error=errno.EROFS, path_pattern="topic-*/*.index", times=None)
    file.write(0, [b"x"])
    disk.open("/topic-0/0.log", create=True).write(0, [b"x"])
    index = disk.open("/topic-0/0.index", create=True)
    assert_errno(errno.EROFS, lambda: index.write(0, [b"x"]))


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("open", lambda disk, file: disk.open("log")),
        ("create", lambda disk, file: disk.open("new", create=True)),
        ("list", lambda disk, file: disk.list("")),
        ("read", lambda disk, file: file.read(0, 1)),
        ("map", lambda disk, file: file.map()),
        ("write", lambda disk, file: file.write(0, [b""])),
        ("truncate", lambda disk, file: file.truncate(9)),
        ("sync", lambda disk, file: file.sync()),
        ("rename", lambda disk, file: disk.rename("log", "new")),
        ("remove", lambda disk, file: disk.remove("log")),
        ("make_directory", lambda disk, file: disk.make_directory("new")),
        ("remove_directory", lambda disk, file: disk.remove_directory("dir")),
        ("sync_directory", lambda disk, file: disk.sync_directory("dir")),
    ],
)
def test_whatever_fails_but_a_write_leaves_nothing_behind(
    operation: str, call: Callable[[SimDisk, SimFile], object]
) -> None:
    disk, file = disk_with_log()
    file.write(0, [b"millpond"])
    disk.make_directory("dir")
    disk.fail(operation, error=errno.EMFILE)  # type: ignore[arg-type]
    assert_errno(errno.EMFILE, lambda: call(disk, file))
    assert disk.list("") == ["dir", "log"]
    assert file.read(0, 99) == b"millpond"
    call(disk, file)


def test_a_failed_write_leaves_some_prefix() -> None:
    sizes = set()
    for seed in range(100):
        disk, file = disk_with_log(seed=seed)
        disk.fail("write", error=errno.ENOSPC)
        assert_errno(errno.ENOSPC, lambda file=file: file.write(0, [b"abcd", b"efgh"]))  # type: ignore[misc]
        assert b"abcdefgh".startswith(file.read(0, 99))
        sizes.add(file.size())
    assert sizes == set(range(9))


def test_a_failed_sync_loses_its_data_although_the_next_one_succeeds() -> None:
    disk, file = disk_with_log()
    file.write(0, [b"synced "])
    file.sync()
    file.write(7, [b"lost "])
    disk.fail("sync")
    assert_errno(errno.EIO, file.sync)
    file.write(12, [b"synced too"])
    file.sync()
    assert file.read(0, 99) == b"synced lost synced too"
    disk.crash("keep")
    assert content_of(disk, "log") == b"synced \0\0\0\0\0synced too"


def test_a_failed_sync_alone_shows_only_after_the_crash() -> None:
    disk, file = disk_with_log()
    file.write(0, [b"lost"])
    disk.fail("sync")
    assert_errno(errno.EIO, file.sync)
    file.sync()
    assert content_of(disk, "log") == b"lost"
    disk.crash("keep")
    assert content_of(disk, "log") == b""
    assert disk.used_bytes == 0


def test_writing_again_what_a_failed_sync_lost_makes_it_durable() -> None:
    disk, file = disk_with_log()
    file.write(0, [b"millpond"])
    disk.fail("sync")
    assert_errno(errno.EIO, file.sync)
    file.write(0, [b"millpond"])
    file.sync()
    disk.crash("lose")
    assert content_of(disk, "log") == b"millpond"


def test_a_failed_directory_sync_can_be_repeated() -> None:
    disk, _ = disk_with_log()
    disk.open("new", create=True)
    disk.fail("sync_directory")
    assert_errno(errno.EIO, lambda: disk.sync_directory(""))
    disk.sync_directory("")
    disk.crash("lose")
    assert disk.list("") == ["log", "new"]


def test_a_lying_drive_acknowledges_and_forgets() -> None:
    disk, file = disk_with_log()
    disk.lie_about_sync = True
    disk.open("new", create=True)
    file.write(0, [b"acknowledged"])
    file.sync()
    disk.sync_directory("")
    disk.crash("lose")
    assert disk.list("") == ["log"]
    assert content_of(disk, "log") == b""


def test_a_drive_that_stops_lying_flushes_what_it_held_back() -> None:
    disk, file = disk_with_log()
    disk.lie_about_sync = True
    file.write(0, [b"acknowledged"])
    file.sync()
    disk.heal()
    file.sync()
    disk.crash("lose")
    assert content_of(disk, "log") == b"acknowledged"


def test_a_full_disk_takes_what_fits_and_no_more() -> None:
    disk, file = disk_with_log(capacity_bytes=10)
    file.write(0, [b"12345678"])
    assert_errno(errno.ENOSPC, lambda: file.write(8, [b"9abc"]))
    assert file.read(0, 99) == b"123456789a"
    assert disk.used_bytes == 10
    assert_errno(errno.ENOSPC, lambda: file.write(20, [b"x"]))
    assert_errno(errno.ENOSPC, lambda: file.truncate(11))
    file.write(0, [b"over old bytes"[:10]])
    assert file.size() == 10


def test_room_comes_back_by_truncate_remove_replacement_and_capacity() -> None:
    disk, file = disk_with_log(capacity_bytes=10)
    other = disk.open("other", create=True)
    file.write(0, [b"12345"])
    other.write(0, [b"12345"])
    file.truncate(2)
    assert disk.used_bytes == 7
    disk.rename("other", "log")
    assert disk.used_bytes == 5
    disk.remove("log")
    assert disk.used_bytes == 0
    other.write(5, [b"a file without a name"[:5]])
    assert disk.used_bytes == 0
    disk.capacity_bytes = None
    disk.open("big", create=True).write(0, [bytes(1000)])
    assert disk.used_bytes == 1000


def test_the_disk_is_as_full_after_a_crash_as_what_survived() -> None:
    disk, file = disk_with_log()
    file.write(0, [bytes(100)])
    file.sync()
    file.write(100, [bytes(50)])
    disk.remove("log")
    disk.crash("lose")
    assert disk.used_bytes == 100
    disk.open("log").write(100, [b"x"])
    assert disk.used_bytes == 101


def test_rot_flips_one_bit_now_and_after_a_crash() -> None:
    for durable in (True, False):
        disk, file = disk_with_log()
        file.write(0, [b"\0" * 8])
        if durable:
            file.sync()
        assert disk.rot("log", position=3, bit=4) == (3, 4)
        assert file.read(0, 9) == b"\0\0\0\x10\0\0\0\0"
        file.sync()
        disk.crash("lose")
        assert content_of(disk, "log") == b"\0\0\0\x10\0\0\0\0"


def test_rot_in_a_place_of_its_own_choosing_says_where() -> None:
    places = set()
    for seed in range(100):
        disk, file = disk_with_log(seed=seed)
        file.write(0, [b"\0" * 4])
        position, bit = disk.rot("log")
        assert file.read(position, 1) == bytes([1 << bit])
        places.add((position, bit))
    assert len(places) > 20


def test_a_slow_sync_spends_a_drawn_time() -> None:
    spent: list[float] = []
    disk = SimDisk(random.Random(1), spend=spent.append)
    file = disk.open("log", create=True)
    file.sync()
    assert spent == []
    disk.slow_sync(0.25, 0.75)
    for _ in range(10):
        file.sync()
        disk.sync_directory("")
    assert len(set(spent)) == 20
    assert min(spent) >= 0.25
    assert max(spent) <= 0.75


def test_what_is_written_while_a_slow_sync_runs_is_not_covered_by_it() -> None:
    def write_late(_seconds: float) -> None:
        file.write(0, [b"late"])

    disk = SimDisk(random.Random(1), spend=write_late)
    file = disk.open("log", create=True)
    disk.sync_directory("")
    disk.slow_sync(1, 1)
    file.sync()
    assert file.read(0, 9) == b"late"
    disk.crash("lose")
    assert content_of(disk, "log") == b""
