"""Opening again: after an orderly close nothing is read, after a kill everything written is there, torn tails go."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from millpond.model.errors import LogClosed
from millpond.model.ids import Offset, TimestampMs
from millpond.model.ports import Filesystem
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    DIRECTORY,
    EPOCH,
    NOW,
    append,
    batch_of,
    facts_of,
    files_of,
    new_disk,
    open_log,
    placed_batch,
    simulated,
    values_of,
)

SMALL = LogSettings(segment_bytes=1024)
VALUES = [b"%d" % number + b"x" * 200 for number in range(12)]


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


def filled(filesystem: Filesystem, settings: LogSettings = SMALL) -> Log:
    """A log of several segments."""
    log = open_log(filesystem, settings)
    for value in VALUES:
        append(log, value)
    assert len(facts_of(log)) == 4
    return log


def put(filesystem: Filesystem, name: str, content: bytes, *, position: int = 0) -> None:
    file = filesystem.open(f"{DIRECTORY}/{name}", create=True)
    file.write(position, [content])
    file.close()


# New


@simulated
async def test_a_log_whose_removal_was_cut_short_believes_nothing_that_was_known_of_it(disk: SimDisk) -> None:
    """Else a power cut before the first sync of the new one would be taken for damage."""
    log = open_log(disk)
    append(log, b"old")
    await log.flush()
    await log.upkeep(now_ms=NOW)
    log.abandon()
    for name in [each for each in disk.list(DIRECTORY) if each.endswith((".log", ".index"))]:
        disk.remove(f"{DIRECTORY}/{name}")
    disk.sync_directory(DIRECTORY)
    log = open_log(disk)
    append(log, b"new")
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert (log.next_offset, log.report.damages) == (0, [])
    await log.close()


def test_a_new_log_is_empty_clean_and_at_0(disk: SimDisk) -> None:
    log = open_log(disk)
    assert (log.start_offset, log.durable_offset, log.next_offset, log.size_bytes()) == (0, 0, 0, 0)
    assert log.report.clean
    assert [tuple(each) for each in facts_of(log)] == [(0, 0, 0, -1)]
    log.abandon()


@simulated
async def test_a_new_log_survives_a_power_cut_before_its_first_append(disk: SimDisk) -> None:
    open_log(disk).abandon()
    disk.crash("lose")
    log = open_log(disk)
    append(log, b"a")
    await log.flush()
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert values_of(log) == [b"a"]
    log.abandon()


@simulated
async def test_a_log_deep_below_new_directories_survives_a_power_cut(disk: SimDisk) -> None:
    log = Log.open(disk, "data/logs/orders-0")
    append(log, b"a")
    await log.flush()
    log.abandon()
    disk.crash("lose")
    log = Log.open(disk, "data/logs/orders-0")
    assert values_of(log) == [b"a"]
    log.abandon()


# Clean


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_after_an_orderly_close_all_is_there_and_nothing_was_scanned(flush: Flush, tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=1024, flush=flush)
    log = filled(OsFilesystem(tmp_path), settings)
    facts = facts_of(log)
    await log.close()
    log = open_log(OsFilesystem(tmp_path), settings)
    assert (log.report.clean, log.report.bytes_scanned, log.report.bytes_cut) == (True, 0, 0)
    assert log.report.damages == []
    assert values_of(log) == VALUES
    assert facts_of(log) == facts
    assert log.durable_offset == log.next_offset == 12
    assert append(log, b"more").base_offset == 12
    await log.close()


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_an_orderly_close_survives_a_power_cut_in_every_flush_mode(flush: Flush) -> None:
    disk, settings = new_disk(), LogSettings(segment_bytes=1024, flush=flush)
    log = filled(disk, settings)
    await log.close()
    disk.crash("lose")
    log = open_log(disk, settings)
    assert log.report.clean
    assert values_of(log) == VALUES
    log.abandon()


@simulated
async def test_a_clean_start_does_not_read_the_segments(disk: SimDisk) -> None:
    await filled(disk).close()
    fault = disk.fail("map", path_pattern="*.log", times=None)
    reading = disk.fail("read", path_pattern="*.log", times=None)
    log = open_log(disk, SMALL)
    append(log, b"x")
    assert (fault.hits, reading.hits) == (0, 0)
    log.abandon()


@simulated
async def test_closing_an_empty_log_is_clean_too(disk: SimDisk) -> None:
    await open_log(disk).close()
    log = open_log(disk)
    assert log.report.clean
    assert append(log, b"a").base_offset == 0
    await log.close()


@simulated
async def test_a_log_can_be_closed_and_opened_many_times(disk: SimDisk) -> None:
    for number in range(20):
        log = open_log(disk, SMALL)
        assert log.report.clean
        append(log, b"%d" % number + b"x" * 200)
        await log.close()
    log = open_log(disk, SMALL)
    assert [value.strip(b"x") for value in values_of(log) if value] == [b"%d" % number for number in range(20)]
    await log.close()


@simulated
async def test_the_marker_of_an_orderly_close_is_believed_once_only(disk: SimDisk) -> None:
    await filled(disk).close()
    open_log(disk, SMALL).abandon()
    log = open_log(disk, SMALL)
    assert not log.report.clean
    assert values_of(log) == VALUES
    log.abandon()


@simulated
async def test_bytes_written_since_an_orderly_close_make_its_marker_void(disk: SimDisk) -> None:
    log = filled(disk)
    last = facts_of(log)[-1]
    await log.close()
    put(disk, f"{last.base_offset:020d}.log", b"torn", position=last.size)
    log = open_log(disk, SMALL)
    assert (log.report.clean, log.report.bytes_cut) == (False, 4)
    assert values_of(log) == VALUES
    log.abandon()


@simulated
async def test_lost_index_files_are_built_anew(disk: SimDisk) -> None:
    await filled(disk).close()
    indexes = files_of(disk, suffix=".index")
    assert len(indexes) == 4
    for name in indexes:
        disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, SMALL)
    assert values_of(log) == VALUES
    assert log.first_since(NOW) == (0, NOW)
    await log.close()


@simulated
async def test_an_index_that_grew_with_the_log_is_the_one_that_a_scan_builds(disk: SimDisk) -> None:
    settings = LogSettings(index_interval_bytes=500)
    log = open_log(disk, settings)
    for number in range(50):
        append(log, b"x" * (number * 7 % 90))
    await log.close()
    (grown,) = files_of(disk, suffix=".index").values()
    assert 48 + 16 * 5 < len(grown) < 48 + 16 * 15
    disk.remove(f"{DIRECTORY}/00000000000000000000.index")
    log = open_log(disk, settings)
    await log.close()
    assert files_of(disk, suffix=".index") == {"00000000000000000000.index": grown}


# After a kill


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_a_kill_loses_nothing_in_any_flush_mode(flush: Flush, tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=1024, flush=flush)
    log = filled(OsFilesystem(tmp_path), settings)
    facts = facts_of(log)
    log.abandon()
    log = open_log(OsFilesystem(tmp_path), settings)
    assert not log.report.clean
    assert log.report.bytes_scanned > 0
    assert (log.report.bytes_cut, log.report.damages) == (0, [])
    assert values_of(log) == VALUES
    assert facts_of(log) == facts
    assert append(log, b"more").base_offset == 12
    log.abandon()


@simulated
async def test_after_a_kill_only_what_was_not_known_to_be_synced_is_scanned(disk: SimDisk) -> None:
    log = filled(disk)
    await log.flush()
    last = facts_of(log)[-1]
    log.abandon()
    log = open_log(disk, SMALL)
    assert log.report.bytes_scanned == last.size
    log.abandon()


@pytest.mark.parametrize(
    "tail",
    [
        b"\1",
        bytes(100) + b"\1",
        placed_batch(b"torn", offset=12)[:-1],
        placed_batch(b"torn", offset=11),
        placed_batch(b"torn", offset=13),
        placed_batch(b"torn", offset=12, epoch=EPOCH + 1),
        b"\xff" * 5000,
    ],
    ids=["a byte", "zeros and a byte", "a batch but for a byte", "again", "gap", "an epoch nobody began", "ones"],
)
@simulated
async def test_a_torn_tail_is_cut_reported_and_written_over(tail: bytes) -> None:
    disk = new_disk()
    log = filled(disk)
    last = facts_of(log)[-1]
    await log.close()
    disk.remove(f"{DIRECTORY}/clean-shutdown")
    put(disk, f"{last.base_offset:020d}.log", tail, position=last.size)
    log = open_log(disk, SMALL)
    assert log.report.bytes_cut == len(tail)
    assert log.report.cut_reason
    assert f"at byte {last.size}" in log.report.cut_reason
    assert log.report.damages == []
    assert values_of(log) == VALUES
    assert append(log, b"more").base_offset == 12
    log.abandon()
    log = open_log(disk, SMALL)
    assert log.report.bytes_cut == 0
    assert values_of(log) == [*VALUES, b"more"]
    log.abandon()


@simulated
async def test_unfinished_files_are_removed_when_found(disk: SimDisk) -> None:
    filled(disk).abandon()
    for name in ("checkpoint.new", "00000000000000000000.log.new", "00000000000000000004.index.new"):
        put(disk, name, b"half of something")
    log = open_log(disk, SMALL)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".new")]
    assert values_of(log) == VALUES
    log.abandon()


@simulated
async def test_what_recovery_found_is_synced_before_it_is_served(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(flush=Flush.NONE))
    append(log, b"a")
    log.abandon()  # a kill: the bytes are still in the page cache
    log = open_log(disk)
    assert (values_of(log), log.durable_offset) == ([b"a"], 1)
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert values_of(log) == [b"a"]
    log.abandon()


# Closed


METHODS: dict[str, Callable[[Log], Awaitable[object] | object]] = {
    "append": lambda log: append(log, b"x"),
    "append_replicated": lambda log: log.append_replicated(b""),
    "flush": lambda log: log.flush(),
    "truncate": lambda log: log.truncate(Offset(0)),
    "delete_before": lambda log: log.delete_before(Offset(1)),
    "upkeep": lambda log: log.upkeep(now_ms=NOW),
    "compact": lambda log: log.compact(now_ms=NOW),
    "read": lambda log: log.read(Offset(0), bytes_max=1),
    "first_since": lambda log: log.first_since(TimestampMs(0)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("orderly", [True, False])
@simulated
async def test_a_closed_log_says_so_and_touches_no_file(method: str, orderly: bool) -> None:
    disk = new_disk()
    log = filled(disk)
    await log.flush()
    if orderly:
        await log.close()
    log.abandon()
    files = files_of(disk)

    async def call() -> None:
        result = METHODS[method](log)
        if isinstance(result, Awaitable):
            await result

    with pytest.raises(LogClosed, match="orders-0 is closed"):
        await call()
    assert disk.open_files == 0
    assert files_of(disk) == files


@simulated
async def test_closing_twice_is_closing_once(disk: SimDisk) -> None:
    log = filled(disk)
    await asyncio.gather(log.close(), log.close())
    await log.close()
    log.abandon()
    log = open_log(disk, SMALL)
    assert log.report.clean
    log.abandon()


@simulated
async def test_an_abandoned_log_lets_go_of_its_files_for_good(disk: SimDisk) -> None:
    """Rolling asked for a commit round; it must not run on a log that somebody else may have opened by now."""
    log = filled(disk)
    log.abandon()
    operations = disk.operations
    await asyncio.sleep(1)
    assert (disk.operations, disk.open_files) == (operations, 0)


@simulated
async def test_whoever_waits_for_a_log_that_is_abandoned_is_told(disk: SimDisk) -> None:
    log = open_log(disk)
    waiting = asyncio.create_task(log.append_and_wait(batch_of(b"a"), leader_epoch=EPOCH))
    await asyncio.sleep(0)
    log.abandon()
    with pytest.raises(LogClosed):
        await waiting
    assert disk.open_files == 0


def test_a_log_abandoned_while_a_thread_syncs_it_is_not_opened_again_by_that_thread() -> None:
    gate = threading.Event()

    async def scenario() -> None:
        loop, syncing = asyncio.get_running_loop(), asyncio.Event()

        def hold(seconds: float) -> None:
            loop.call_soon_threadsafe(syncing.set)
            assert gate.wait(10), "the test never opened the gate"

        disk = SimDisk(random.Random(1), spend=hold)
        log = filled(disk)
        disk.slow_sync(1, 1)
        flushing = asyncio.create_task(log.flush())
        await asyncio.wait_for(syncing.wait(), 10)
        log.abandon()
        gate.set()
        await asyncio.gather(flushing, return_exceptions=True)
        assert disk.open_files == 0
        with pytest.raises(LogClosed):
            append(log, b"x")

    asyncio.run(scenario())


@simulated
async def test_appends_while_the_log_is_closing_are_kept_or_refused_and_leak_nothing(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"first")
    kept: list[bytes] = []

    async def send(value: bytes) -> None:
        try:
            await log.append_and_wait(batch_of(value), leader_epoch=EPOCH)
        except LogClosed:
            return
        kept.append(value)

    closing = asyncio.create_task(log.close())
    sending: list[asyncio.Task[None]] = []
    while not closing.done():
        sending.append(asyncio.create_task(send(b"%d" % len(sending))))
        await asyncio.sleep(0.0001)
    await asyncio.gather(closing, *sending)
    assert disk.open_files == 0
    disk.crash("lose")
    log = open_log(disk)
    assert log.report.clean
    assert kept
    assert set(kept) <= set(values_of(log))
    log.abandon()
