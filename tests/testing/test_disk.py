"""What a power cut leaves of a simulated disk: names, contents, sizes, handles."""

import errno
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.ports import Filesystem
from millpond.testing.disk import CrashMode, PowerCut, SimDisk, SimFile

SEEDS = range(200)
MODES: tuple[CrashMode, ...] = get_args(CrashMode)


def disk_with(content: bytes, *, seed: int = 0) -> tuple[SimDisk, SimFile]:
    """A disk with one file, `log`, that a power cut cannot touch."""
    disk = SimDisk(random.Random(seed))
    file = disk.open("log", create=True)
    file.write(0, [content])
    file.sync()
    disk.sync_directory("/")
    return disk, file


def content_of(disk: Filesystem, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


# Contents


@pytest.mark.parametrize("mode", MODES)
def test_what_was_synced_survives_any_crash(mode: CrashMode) -> None:
    for seed in SEEDS:
        disk, _ = disk_with(b"s" * 3000, seed=seed)
        disk.crash(mode)
        assert content_of(disk, "log") == b"s" * 3000


def test_a_crash_may_lose_everything_that_was_not_synced() -> None:
    disk, file = disk_with(b"synced")
    file.write(0, [b"SYNCED and more"])
    disk.crash("lose")
    assert content_of(disk, "log") == b"synced"


def test_a_crash_may_keep_everything_that_was_not_synced() -> None:
    disk, file = disk_with(b"synced")
    file.write(6, [b" and more"])
    file.truncate(10)
    disk.crash("keep")
    assert content_of(disk, "log") == b"synced and"


def test_the_mode_of_a_crash_can_be_set_beforehand() -> None:
    for seed in SEEDS:
        disk, file = disk_with(b"synced", seed=seed)
        file.write(6, [b" and more"])
        disk.crash_mode = "lose"
        disk.crash()
        assert content_of(disk, "log") == b"synced"


def test_an_append_survives_wholly_not_at_all_as_a_prefix_with_holes_and_as_zeros() -> None:
    fates: Counter[str] = Counter()
    tail = bytes(range(1, 256)) * 16
    for seed in SEEDS:
        disk, file = disk_with(b"synced", seed=seed)
        file.write(6, [tail])
        disk.crash()
        content = content_of(disk, "log")
        assert content[:6] == b"synced"
        found = content[6:]
        assert len(found) <= len(tail)
        assert all(byte in (0, expected) for byte, expected in zip(found, tail, strict=False))
        fates[fate_of(found, tail)] += 1
    assert min(fates[fate] for fate in ("nothing", "everything", "prefix", "holes", "zeros")) >= 3, fates


def fate_of(found: bytes, written: bytes) -> str:
    if not found:
        return "nothing"
    if found == written:
        return "everything"
    if not any(found):
        return "zeros"
    return "prefix" if written.startswith(found) else "holes"


def test_a_sector_shows_one_moment_in_the_order_of_its_writes() -> None:
    """Within one sector a later write never survives without an earlier one."""
    seen = set()
    for seed in SEEDS:
        disk, file = disk_with(bytes(512), seed=seed)
        for number in range(4):
            file.write(number, [b"w"])
        disk.crash()
        seen.add(content_of(disk, "log")[:4].rstrip(b"\0"))
    assert seen == {b"", b"w", b"ww", b"www", b"wwww"}


def test_sectors_survive_independently_of_one_another() -> None:
    seen = set()
    for seed in SEEDS:
        disk, file = disk_with(bytes(1024), seed=seed)
        file.write(0, [b"a"])
        file.write(512, [b"b"])
        disk.crash()
        content = content_of(disk, "log")
        seen.add((content[0:1], content[512:513]))
    assert seen == {(a, b) for a in (b"\0", b"a") for b in (b"\0", b"b")}


def test_bytes_overwritten_without_sync_are_old_or_new() -> None:
    kinds = set()
    for seed in SEEDS:
        disk, file = disk_with(b"o" * 2048, seed=seed)
        file.write(100, [b"n" * 1500])
        disk.crash()
        content = content_of(disk, "log")
        assert len(content) == 2048
        assert content[:100] == b"o" * 100
        assert content[1600:] == b"o" * 448
        kinds.add(content[100:1600].count(b"n"))
        assert set(content[100:1600]) <= set(b"on")
    assert {0, 1500} < kinds


def test_a_truncate_may_or_may_not_have_happened() -> None:
    sizes: Counter[int] = Counter()
    for seed in SEEDS:
        disk, file = disk_with(b"s" * 100, seed=seed)
        file.truncate(40)
        disk.crash()
        sizes[disk.size("log")] += 1
        assert content_of(disk, "log").strip(b"s") == b""
    assert min(sizes[40], sizes[100]) > 10


def test_an_extended_file_shows_zeros_never_what_was_cut_off() -> None:
    disk, file = disk_with(b"s" * 100)
    file.truncate(10)
    file.truncate(100)
    file.sync()
    disk.crash()
    assert content_of(disk, "log") == b"s" * 10 + bytes(90)


def test_sync_covers_what_was_written_through_another_handle() -> None:
    disk, file = disk_with(b"")
    other = disk.open("log")
    other.write(0, [b"millpond"])
    file.sync()
    disk.crash("lose")
    assert content_of(disk, "log") == b"millpond"


@settings(max_examples=200, database=None)
@given(
    seed=st.integers(0, 1 << 32),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 1500)),
            st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(0)),
            st.tuples(st.just("sync"), st.just(0), st.just(0)),
        ),
        max_size=30,
    ),
)
def test_only_bytes_changed_since_the_last_sync_can_differ_after_a_crash(
    seed: int, steps: list[tuple[str, int, int]]
) -> None:
    disk, file = disk_with(b"", seed=seed)
    synced, cut_from, size_max, touched = b"", 1 << 30, 0, set[int]()
    for number, (step, position, size) in enumerate(steps, start=1):
        if step == "write":
            file.write(position, [bytes([number]) * size])
            touched.update(range(position, position + size))
        elif step == "truncate":
            file.truncate(position)
            cut_from = min(cut_from, position)
        else:
            file.sync()
            synced, cut_from, size_max, touched = file.read(0, 1 << 20), 1 << 30, 0, set()
        size_max = max(size_max, file.size())
    disk.crash()
    content = content_of(disk, "log")
    assert min(len(synced), cut_from) <= len(content) <= max(len(synced), size_max)
    for position, byte in enumerate(synced[: min(cut_from, len(content))]):
        if position not in touched:
            assert content[position] == byte, position


# Names


def test_a_file_whose_name_was_not_synced_is_gone_with_its_synced_content() -> None:
    disk = SimDisk(random.Random(1))
    file = disk.open("log", create=True)
    file.write(0, [b"synced"])
    file.sync()
    disk.crash("lose")
    assert disk.list("") == []


def test_a_durable_name_says_nothing_of_its_content() -> None:
    disk = SimDisk(random.Random(1))
    disk.open("log", create=True).write(0, [b"not synced"])
    disk.sync_directory("")
    disk.crash("lose")
    assert content_of(disk, "log") == b""


def test_a_removal_that_was_not_synced_comes_back_with_the_durable_content() -> None:
    disk, file = disk_with(b"synced")
    file.write(0, [b"SYNCED"])
    disk.remove("log")
    assert not disk.exists("log")
    disk.crash("lose")
    assert content_of(disk, "log") == b"synced"


def test_a_synced_removal_stays() -> None:
    disk, _ = disk_with(b"synced")
    disk.remove("log")
    disk.sync_directory("/")
    disk.crash("lose")
    assert disk.list("/") == []


def test_a_new_directory_is_a_name_in_its_parent() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_directory("a/b")
    disk.open("a/b/log", create=True).sync()
    disk.sync_directory("a/b")
    disk.sync_directory("")
    disk.crash("lose")
    assert disk.list("") == ["a"]
    assert disk.list("a") == []


def test_the_changes_of_one_directory_survive_in_their_order() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = SimDisk(random.Random(seed))
        for name in ("a", "b", "c"):
            disk.open(name, create=True)
        disk.remove("a")
        disk.rename("b", "d")
        disk.crash()
        outcomes.add(" ".join(disk.list("")))
    assert outcomes == {"", "a", "a b", "a b c", "b c", "c d"}


def test_two_directories_survive_independently_of_one_another() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = SimDisk(random.Random(seed))
        disk.make_directory("x")
        disk.make_directory("y")
        disk.sync_directory("")
        disk.open("x/first", create=True)
        disk.open("y/second", create=True)
        disk.crash()
        outcomes.add((len(disk.list("x")), len(disk.list("y"))))
    assert outcomes == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_rename_is_atomic_and_its_target_never_missing() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = disk_with(b"old", seed=seed)
        new = disk.open("log.new", create=True)
        new.write(0, [b"new"])
        new.sync()
        disk.rename("log.new", "log")
        disk.crash()
        found.add((*disk.list(""), content_of(disk, "log")))
    assert found == {("log", b"old"), ("log", "log.new", b"old"), ("log", b"new")}


def test_a_directory_half_removed_holds_any_part_of_what_it_held() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(random.Random(seed))
        disk.make_directory("t")
        for name in ("a", "b"):
            disk.open(f"t/{name}", create=True)
        disk.sync_directory("t")
        disk.sync_directory("")
        disk.remove_directory("t")
        disk.crash()
        found.add(" ".join(disk.list("t")) if disk.exists("t") else None)
    assert found == {None, "a b", "a", "b", ""}


def test_what_one_crash_took_no_later_crash_brings_back() -> None:
    disk, file = disk_with(b"synced")
    file.write(0, [b"SYNCED"])
    disk.open("new", create=True)
    disk.crash("lose")
    disk.crash("keep")
    assert disk.list("") == ["log"]
    assert content_of(disk, "log") == b"synced"


# Handles


def test_handles_of_before_a_crash_are_dead_and_only_close_is_harmless() -> None:
    disk, file = disk_with(b"synced")
    disk.crash()
    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        file.map,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
    ]
    for use in uses:
        with pytest.raises(OSError, match="Input/output error") as caught:
            use()
        assert caught.value.errno == errno.EIO
    file.close()
    assert content_of(disk, "log") == b"synced"
    assert disk.open_files == 0


def test_open_handles_are_counted() -> None:
    disk, file = disk_with(b"")
    other = disk.open("log")
    assert disk.open_files == 2
    other.close()
    other.close()
    file.close()
    assert disk.open_files == 0


# The power


def replace_checkpoint(disk: Filesystem, content: bytes) -> None:
    file = disk.open("checkpoint.new", create=True)
    file.truncate(0)
    file.write(0, [content])
    file.sync()
    file.close()
    disk.rename("checkpoint.new", "checkpoint")
    disk.sync_directory("")


def replace_checkpoint_without_sync(disk: Filesystem, content: bytes) -> None:
    file = disk.open("checkpoint.new", create=True)
    file.write(0, [content])
    file.close()
    disk.rename("checkpoint.new", "checkpoint")
    disk.sync_directory("")


OLD, NEW = b"old" * 500, b"new" * 700


def contents_after_every_cut(replace: Callable[[Filesystem, bytes], None], *, seed: int) -> list[bytes]:
    """The checkpoint as found after a cut at each operation of its replacement, and at last after none."""
    found: list[bytes] = []
    while True:
        disk = SimDisk(random.Random(seed))
        replace_checkpoint(disk, OLD)
        disk.cut_power_at(len(found) + 1)
        try:
            replace(disk, NEW)
        except PowerCut:
            disk.crash()
            found.append(content_of(disk, "checkpoint"))
        else:
            disk.crash()
            return [*found, content_of(disk, "checkpoint")]


def test_every_cut_of_a_careful_replacement_leaves_the_old_or_the_new() -> None:
    for seed in SEEDS:
        *cut, finished = contents_after_every_cut(replace_checkpoint, seed=seed)
        assert len(cut) == 6  # create, truncate, write, sync, rename, sync_directory
        assert set(cut) <= {OLD, NEW}
        assert cut[:4] == [OLD] * 4  # before the rename began there was only the old one
        assert finished == NEW


def test_a_careless_replacement_is_caught() -> None:
    bad = [
        seed
        for seed in SEEDS
        if not set(contents_after_every_cut(replace_checkpoint_without_sync, seed=seed)) <= {OLD, NEW}
    ]
    assert len(bad) > len(SEEDS) // 2


def test_the_operation_that_is_cut_may_have_happened_or_not() -> None:
    outcomes: set[tuple[int, bool]] = set()
    for seed in SEEDS:
        disk, file = disk_with(b"", seed=seed)
        disk.cut_power_at(2)
        file.write(0, [b"x" * 10])
        with pytest.raises(PowerCut):
            file.sync()
        disk.crash("lose")
        outcomes.add((disk.size("log"), True))
        disk.cut_power_at(1)
        with pytest.raises(PowerCut):
            disk.open("log").write(0, [b"y" * 4])
        disk.crash("keep")
        outcomes.add((content_of(disk, "log").count(b"y"), False))
    assert outcomes == {(0, True), (10, True)} | {(count, False) for count in range(5)}


def test_a_rename_that_is_cut_may_have_happened_or_not() -> None:
    found = set()
    for seed in SEEDS:
        disk, _ = disk_with(b"", seed=seed)
        disk.cut_power_at(1)
        with pytest.raises(PowerCut):
            disk.rename("log", "renamed")
        disk.crash("keep")
        found.update(disk.list(""))
    assert found == {"log", "renamed"}


def test_a_crash_calls_off_the_power_cut_that_was_still_to_come() -> None:
    disk, _ = disk_with(b"")
    disk.cut_power_at(3)
    disk.crash()
    file = disk.open("log")
    for size in range(10):
        file.truncate(size)
    assert file.size() == 9


def test_without_power_nothing_works_until_the_crash() -> None:
    disk, file = disk_with(b"synced")
    disk.cut_power_at(1)
    with pytest.raises(PowerCut, match="rename"):
        disk.rename("log", "renamed")
    operations = disk.operations
    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        file.map,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
        lambda: disk.open("log"),
        lambda: disk.exists("log"),
        lambda: disk.size("log"),
        lambda: disk.list(""),
        lambda: disk.make_directory("d"),
        lambda: disk.rename("log", "x"),
        lambda: disk.remove("log"),
        lambda: disk.remove_directory("d"),
        lambda: disk.sync_directory(""),
    ]
    for use in uses:
        with pytest.raises(PowerCut):
            use()
    file.close()
    assert disk.operations == operations
    disk.crash("lose")
    assert content_of(disk, "log") == b"synced"


def test_a_power_cut_is_not_an_exception_one_recovers_from() -> None:
    assert not issubclass(PowerCut, Exception)


def test_changes_are_counted_and_looks_are_not() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_directory("a/b")  # 2
    file = disk.open("a/b/log", create=True)  # 3
    file.write(0, [b"x"])  # 4
    file.read(0, 1)
    file.map()
    file.sync()  # 5
    file.truncate(2)  # 6
    disk.rename("a/b/log", "a/b/gol")  # 7
    disk.list("a")
    disk.sync_directory("a")  # 8
    disk.remove_directory("a")  # 11: the file and both directories
    assert disk.operations == 11


# The same again


def history(seed: int) -> tuple[list[tuple[object, ...]], list[str], bytes]:
    trace: list[tuple[object, ...]] = []
    disk = SimDisk(random.Random(seed), trace=lambda *event: trace.append(event))
    disk.make_directory("topic-0")
    disk.sync_directory("")
    for name in ("alpha", "beta", "gamma", "delta"):
        disk.open(f"topic-0/{name}", create=True).write(0, [name.encode() * 300])
    disk.sync_directory("topic-0")
    disk.crash()
    contents = b"".join(content_of(disk, f"topic-0/{name}") for name in disk.list("topic-0"))
    disk.remove_directory("topic-0")
    disk.crash()
    return trace, disk.list(""), contents


def test_the_same_seed_gives_the_same_disk_whatever_the_hash_seed() -> None:
    program = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_disk; print(test_disk.history(7))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert printed == {f"{history(7)}\n"}


def test_another_seed_gives_another_disk() -> None:
    assert len({history(seed)[2] for seed in range(20)}) > 10


def test_the_trace_names_every_operation_with_path_and_sizes() -> None:
    trace: list[tuple[object, ...]] = []
    disk = SimDisk(random.Random(1), trace=lambda *event: trace.append(event))
    file = disk.open("/log", create=True)
    file.write(3, [b"ab", b"c"])
    file.read(0, 9)
    file.truncate(1)
    file.sync()
    disk.rename("log", "/gol")
    assert trace == [
        ("open", "log"),
        ("create", "log"),
        ("write", "log", 3, 3),
        ("read", "log", 0, 9),
        ("truncate", "log", 1),
        ("sync", "log", 2),
        ("rename", "log", "gol"),
    ]


# Maps


def test_shrinking_below_a_living_map_is_caught() -> None:
    disk, file = disk_with(b"millpond")
    view = file.map()[2:4]
    file.truncate(8)
    file.truncate(9)
    with pytest.raises(AssertionError, match="would SIGBUS"):
        disk.open("log").truncate(7)
    assert bytes(view) == b"ll"
    del view
    file.truncate(0)


def test_a_map_is_of_the_moment_it_was_made() -> None:
    _, file = disk_with(b"millpond")
    view = file.map()
    file.write(4, [b"race"])
    assert bytes(view) == b"millpond"


def test_maps_of_before_a_crash_do_not_keep_a_file_from_shrinking() -> None:
    disk, file = disk_with(b"millpond")
    view = file.map()
    disk.crash()
    disk.open("log").truncate(0)
    assert bytes(view) == b"millpond"
