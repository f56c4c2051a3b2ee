"""A full disk and a failing one: nothing acknowledged is lost, nothing unacknowledged is claimed."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from millpond.model.errors import DiskFailed, DiskFull, LogClosed, StorageError, TooManyOpenFiles
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import Operation, SimDisk
from tests.storage.builders import (
    EPOCH,
    NOW,
    append,
    batch_of,
    facts_of,
    files_of,
    new_disk,
    open_log,
    placed_batch,
    sequenced_batch,
    simulated,
    until_a_sync_is_under_way,
    values_of,
)

SMALL = LogSettings(segment_bytes=1024, retention_ms=None)
FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


async def values_after_restart(log: Log, disk: SimDisk, *, power_cut: bool = False) -> list[bytes | None]:
    """What the next process finds, after this one was killed; it also appends and closes in good order."""
    log.abandon()
    disk.heal()
    disk.capacity_bytes = None
    if power_cut:
        disk.crash("lose")
    log = open_log(disk, log.settings)
    assert log.report.damages == []
    found = values_of(log)
    append(log, b"after the restart", epoch=99)
    assert values_of(log) == [*found, b"after the restart"]
    await log.close()
    return found


# A full disk


@pytest.mark.parametrize("room", [0, 1, 16, 60, 61, 100, 400])
@simulated
async def test_an_append_that_meets_a_full_disk_in_its_midst_leaves_the_log_as_it_was(room: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"before")
    files, facts = files_of(disk), facts_of(log)
    disk.capacity_bytes = disk.used_bytes + room
    for _ in range(3):
        with pytest.raises(DiskFull, match="no space left for orders-0"):
            append(log, b"x" * 400)
        assert (files_of(disk), facts_of(log), log.next_offset) == (files, facts, 1)
        assert values_of(log) == [b"before"]
    await log.flush()
    disk.capacity_bytes = None
    assert append(log, b"x" * 400).base_offset == 1
    assert await values_after_restart(log, disk) == [b"before", b"x" * 400]


@simulated
async def test_a_smaller_batch_still_fits_where_a_larger_one_did_not(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"before")
    disk.capacity_bytes = disk.used_bytes + 200
    with pytest.raises(DiskFull):
        append(log, b"x" * 400)
    await log.append_and_wait(batch_of(b"small"), leader_epoch=EPOCH)
    assert await values_after_restart(log, disk, power_cut=True) == [b"before", b"small"]


@simulated
async def test_a_process_killed_on_a_full_disk_finds_everything_again(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"before")
    disk.capacity_bytes = disk.used_bytes + 100
    with pytest.raises(DiskFull):
        append(log, b"x" * 400)
    assert await values_after_restart(log, disk) == [b"before"]


@pytest.mark.parametrize("error", FULL)
@simulated
async def test_every_way_a_disk_says_it_is_full_is_understood(error: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"before")
    disk.fail("write", error=error)
    with pytest.raises(DiskFull):
        append(log, b"x")
    append(log, b"after")
    assert await values_after_restart(log, disk) == [b"before", b"after"]


@simulated
async def test_a_producers_batch_that_found_no_space_is_not_remembered(disk: SimDisk) -> None:
    log = open_log(disk)
    batch = sequenced_batch(b"a", sequence=0)
    append(log, b"before")
    disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.append(batch, leader_epoch=EPOCH)
    appended = log.append(batch, leader_epoch=EPOCH)
    assert (appended.base_offset, appended.is_duplicate) == (1, False)
    await log.close()


@pytest.mark.parametrize("operation", ["create", "write", "truncate"])
@simulated
async def test_a_disk_that_is_full_when_a_segment_rolls(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    append(log, b"a" * 800)
    disk.fail(operation, error=errno.ENOSPC, path_pattern="*.log")
    with pytest.raises(DiskFull):
        append(log, b"b" * 800)
    assert values_of(log) == [b"a" * 800]
    append(log, b"small")
    append(log, b"b" * 800)
    append(log, b"c")
    assert await values_after_restart(log, disk) == [b"a" * 800, b"small", b"b" * 800, b"c"]
    assert disk.open_files == 0


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
@simulated
async def test_a_disk_that_is_full_when_an_epoch_begins(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"a", epoch=1)
    disk.fail(operation, error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        append(log, b"b", epoch=2)
    assert log.epochs.latest == 1
    assert values_of(log) == [b"a"]
    assert append(log, b"b", epoch=2).base_offset == 1
    await log.flush()
    assert log.end_of_epoch(LeaderEpoch(1)) == (1, 1)
    assert await values_after_restart(log, disk, power_cut=True) == [b"a", b"b"]


@simulated
async def test_a_disk_that_is_full_between_the_epoch_and_its_first_batch(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", epoch=1)
    await log.flush()
    disk.fail("write", error=errno.ENOSPC, path_pattern="*.log")
    with pytest.raises(DiskFull):
        append(log, b"b", epoch=2)
    log.abandon()
    log = open_log(disk)
    assert values_of(log) == [b"a"]
    append(log, b"c", epoch=3)
    assert log.epochs.pairs() == [(1, 0), (3, 1)]
    assert await values_after_restart(log, disk) == [b"a", b"c"]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
@simulated
async def test_a_disk_that_is_full_during_upkeep_leaves_a_log_that_works(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=1024, segment_ms=1000, retention_ms=5000))
    for number in range(5):
        append(log, b"%d" % number + b"x" * 500)
    await log.flush()
    late = NOW + 10_000
    log.append(batch_of(b"late", timestamp=late), leader_epoch=EPOCH)
    disk.fail(operation, error=errno.ENOSPC, path_pattern="*checkpoint*")
    with pytest.raises(DiskFull):
        await log.upkeep(now_ms=late)
    append(log, b"more")
    await log.upkeep(now_ms=late)
    assert values_of(log)[-2:] == [b"late", b"more"]
    assert log.start_offset > 0
    start = log.start_offset
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, log.settings)
    assert log.start_offset >= start
    log.abandon()


@simulated
async def test_a_disk_that_is_full_when_an_old_segment_rolls(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_ms=1000, retention_ms=None))
    append(log, b"a")
    disk.fail("create", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        await log.upkeep(now_ms=NOW + 1000)
    append(log, b"b")
    await log.upkeep(now_ms=NOW + 1000)
    assert len(facts_of(log)) == 2
    assert await values_after_restart(log, disk) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(20))
@simulated
async def test_a_torn_tail_before_a_segment_that_has_nothing_yet_does_not_come_back(seed: int) -> None:
    """The removal of a torn tail is synced with what follows; here nothing follows, and the segment is sealed."""
    disk = new_disk(seed)
    log = open_log(disk, SMALL)
    append(log, b"a" * 300)
    await log.close()
    log = open_log(disk, SMALL)
    size = facts_of(log)[0].size
    for room, value in [(25, b"b" * 100), (70, b"c" * 800)]:
        disk.capacity_bytes = disk.used_bytes + room
        with pytest.raises(DiskFull):
            append(log, value)
    assert [each.size for each in facts_of(log)] == [size, 0]
    disk.capacity_bytes = None
    log.abandon()
    log = open_log(disk, SMALL)
    log.abandon()
    disk.crash("random")
    log = open_log(disk, SMALL)
    assert facts_of(log)[0].size == size
    assert await values_after_restart(log, disk) == [b"a" * 300]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@simulated
async def test_a_process_that_may_open_no_more_files_rolls_when_it_may_again(error: int) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=1024))
    append(log, b"a" * 800)
    disk.fail("create", error=error, times=2)
    for _ in range(2):
        with pytest.raises(TooManyOpenFiles, match="orders-0 needs a new file"):
            append(log, b"b" * 800)
    append(log, b"b" * 800)
    assert await values_after_restart(log, disk) == [b"a" * 800, b"b" * 800]


@simulated
async def test_a_deletion_that_failed_is_not_taken_for_done_when_it_is_asked_for_again(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, *[b"x"] * 10)
    await log.flush()
    disk.fail("write", error=errno.ENOSPC, path_pattern="*checkpoint*")
    with pytest.raises(DiskFull):
        await log.delete_before(Offset(5))
    await log.delete_before(Offset(5))
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert log.start_offset == 5
    log.abandon()


@simulated
async def test_a_disk_that_is_full_when_the_log_closes_costs_the_marker_only(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(DiskFull):
        await log.close()
    assert disk.open_files == 0
    disk.capacity_bytes = None
    disk.crash("lose")
    log = open_log(disk)
    assert not log.report.clean
    assert values_of(log) == [b"a"]
    log.abandon()


@simulated
async def test_documents_that_do_not_fit_the_disk_do_not_fail_a_commit(disk: SimDisk) -> None:
    """They save work at the next start; the promise rests on the sync alone."""
    log = open_log(disk, SMALL)
    values = [b"%d" % number + b"x" * 500 for number in range(5)]
    for value in values:
        append(log, value)
    disk.fail("write", error=errno.ENOSPC, path_pattern="*.new", times=None)
    await log.flush()
    assert log.durable_offset == 5
    assert await values_after_restart(log, disk, power_cut=True) == values


@simulated
async def test_replicated_batches_that_do_not_all_fit_leave_whole_ones_only(disk: SimDisk) -> None:
    log = open_log(disk)
    log.append_replicated(placed_batch(b"first", offset=0))
    batches = [placed_batch(b"%d" % number * 50, offset=1 + number) for number in range(4)]
    disk.capacity_bytes = disk.used_bytes + int(len(batches[0]) * 2.5)
    with pytest.raises(DiskFull):
        log.append_replicated(b"".join(batches))
    kept = values_of(log)
    assert kept == [b"first", b"0" * 50, b"1" * 50][: len(kept)]
    disk.capacity_bytes = None
    log.append_replicated(b"".join(batches[log.next_offset - 1 :]))
    assert await values_after_restart(log, disk) == [b"first", *(b"%d" % number * 50 for number in range(4))]


# A failing disk


async def assert_refuses(log: Log) -> None:
    for _ in range(2):
        with pytest.raises(DiskFailed, match="orders-0 takes no more appends, since the disk failed"):
            append(log, b"refused")
        with pytest.raises(DiskFailed):
            log.append_replicated(placed_batch(b"refused", offset=log.next_offset))
        with pytest.raises(DiskFailed):
            await log.flush()
        with pytest.raises(DiskFailed):
            await log.upkeep(now_ms=NOW)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.ENODEV])
@simulated
async def test_a_write_that_fails_ends_the_log_until_it_is_opened_again(error: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    await log.append_and_wait(batch_of(b"before"), leader_epoch=EPOCH)
    disk.fail("write", error=error)
    with pytest.raises(DiskFailed):
        append(log, b"x" * 500)
    await assert_refuses(log)
    assert values_of(log) == [b"before"], "what is there can still be read"
    assert await values_after_restart(log, disk) == [b"before"]


@simulated
async def test_a_torn_tail_that_cannot_be_cut_ends_the_log(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"before")
    disk.fail("write", error=errno.ENOSPC)
    disk.fail("truncate")
    with pytest.raises(DiskFailed):
        append(log, b"x" * 500)
    await assert_refuses(log)
    assert await values_after_restart(log, disk) == [b"before"]


@simulated
async def test_a_failed_sync_reaches_everyone_who_waited_and_ends_the_log(disk: SimDisk) -> None:
    log = open_log(disk)
    await log.append_and_wait(batch_of(b"kept"), leader_epoch=EPOCH)
    disk.fail("sync", path_pattern="*.log")
    sending = [log.append_and_wait(batch_of(b"%d" % number), leader_epoch=EPOCH) for number in range(10)]
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DiskFailed] * 10
    assert log.durable_offset == 1
    await assert_refuses(log)
    assert await values_after_restart(log, disk, power_cut=True) == [b"kept"]


@simulated
async def test_after_a_failed_sync_no_later_one_acknowledges_anything(disk: SimDisk) -> None:
    """The kernel drops what the failed sync did not write: a second one succeeds, and has written nothing."""
    log = open_log(disk)
    await log.append_and_wait(batch_of(b"kept"), leader_epoch=EPOCH)
    fault = disk.fail("sync", path_pattern="*.log")
    first = asyncio.create_task(log.append_and_wait(batch_of(b"first round"), leader_epoch=EPOCH))
    await until_a_sync_is_under_way(log)
    assert fault.hits == 0, "the first round has begun and not yet synced"
    second = asyncio.create_task(log.append_and_wait(batch_of(b"second round"), leader_epoch=EPOCH))
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DiskFailed, DiskFailed]
    assert log.durable_offset == 1
    assert await values_after_restart(log, disk, power_cut=True) == [b"kept"]


@simulated
async def test_a_failed_sync_of_an_interval_that_nobody_waits_for_ends_the_log_too(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(flush=Flush.INTERVAL, flush_interval_ms=100))
    append(log, b"a")
    disk.fail("sync", path_pattern="*.log")
    await asyncio.sleep(1)
    await assert_refuses(log)
    assert await values_after_restart(log, disk, power_cut=True) == []


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
@simulated
async def test_a_new_segment_that_cannot_be_made_durable_acknowledges_nothing(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    await log.append_and_wait(batch_of(b"a" * 800), leader_epoch=EPOCH)
    append(log, b"b" * 800)
    disk.fail(operation)
    with pytest.raises(DiskFailed):
        await log.flush()
    assert log.durable_offset == 1
    await assert_refuses(log)
    assert (await values_after_restart(log, disk, power_cut=True))[0] == b"a" * 800


@pytest.mark.parametrize("operation", ["create", "truncate", "write"])
@simulated
async def test_a_disk_that_fails_when_a_segment_rolls_ends_the_log(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    await log.append_and_wait(batch_of(b"a" * 800), leader_epoch=EPOCH)
    disk.fail(operation, path_pattern="*.log")
    with pytest.raises(DiskFailed):
        append(log, b"b" * 800)
    await assert_refuses(log)
    assert await values_after_restart(log, disk) == [b"a" * 800]
    assert disk.open_files == 0


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
@simulated
async def test_a_disk_that_fails_when_an_epoch_begins_ends_the_log(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk)
    await log.append_and_wait(batch_of(b"a"), leader_epoch=LeaderEpoch(1))
    disk.fail(operation)
    with pytest.raises(DiskFailed):
        append(log, b"b", epoch=2)
    await assert_refuses(log)
    assert await values_after_restart(log, disk, power_cut=True) == [b"a"]


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "remove", "truncate", "sync_directory"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@simulated
async def test_a_truncation_that_fails_ends_the_log_and_never_tears_it(operation: Operation, error: int) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    values = [b"%d" % number + b"x" * 300 for number in range(8)]
    for value in values:
        await log.append_and_wait(batch_of(value), leader_epoch=EPOCH)
    disk.fail(operation, error=error)
    with pytest.raises(DiskFailed):
        await log.truncate(Offset(1))
    for refused in (lambda: append(log, b"refused"), lambda: log.read(Offset(0), bytes_max=1)):
        with pytest.raises((DiskFailed, LogClosed)):
            refused()  # half of it may be done: nobody may read or write on
    found = await values_after_restart(log, disk, power_cut=True)
    assert found[:1] == values[:1]
    assert found == values[: len(found)]


@pytest.mark.parametrize("look", ["read", "map", "open"])
@simulated
async def test_a_read_that_the_disk_refuses_is_the_machines_mistake(look: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for number in range(4):
        append(log, b"%d" % number + b"x" * 800)
    await log.flush()
    disk.fail(look, path_pattern="*.log", times=None)
    asked: list[Callable[[], object]] = [
        *(partial(log.read, Offset(offset), bytes_max=10) for offset in range(4)),
        partial(log.first_since, TimestampMs(NOW)),
    ]
    refusals = []
    for ask in asked:
        try:
            ask()
        except StorageError as error:
            refusals.append(str(error))
    assert refusals
    assert all("orders-0" in refusal for refusal in refusals)
    disk.heal()
    assert len(values_of(log)) == 4, "reads go on once the disk does"
    log.abandon()


@pytest.mark.parametrize("operation", ["list", "open", "map", "sync", "write", "rename", "sync_directory"])
@simulated
async def test_a_log_that_cannot_be_opened_leaves_no_file_open(operation: Operation) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for number in range(4):
        append(log, b"%d" % number + b"x" * 800)
    log.abandon()
    refusals = 0
    for after in range(50):
        disk.fail(operation, after=after)
        try:
            open_log(disk, SMALL).abandon()
        except StorageError:
            refusals += 1
            assert disk.open_files == 0, f"the {after + 1}th {operation} failed"
            disk.heal()
        else:
            break
    assert refusals > 0
    disk.heal()
    log = open_log(disk, SMALL)
    assert len(values_of(log)) == 4
    log.abandon()
