"""When an append counts as kept, in each flush mode; proved by taking away everything that was not synced."""

import asyncio
from collections.abc import Iterator

import pytest

from millpond.model.errors import Truncated
from millpond.model.ids import Offset
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from millpond.testing.simulation import Simulation, simulate
from tests.storage.builders import (
    EPOCH,
    append,
    batch_of,
    facts_of,
    new_disk,
    open_log,
    placed_batch,
    simulated,
    until_a_sync_is_under_way,
    values_of,
)

GROUP = LogSettings(flush=Flush.GROUP)
INTERVAL = LogSettings(flush=Flush.INTERVAL, flush_interval_ms=500)
NONE = LogSettings(flush=Flush.NONE)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


def after_power_cut(log: Log, disk: SimDisk) -> list[bytes | None]:
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, log.settings)
    found = values_of(log)
    log.abandon()
    return found


class Syncs:
    """Counts how often the disk was told to sync a segment."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, operation: str, path: str, *details: object) -> None:
        if operation == "sync" and path.endswith(".log"):
            self.count += 1


# Group


@simulated
async def test_group_an_append_that_was_waited_for_survives_a_power_cut(disk: SimDisk) -> None:
    log = open_log(disk, GROUP)
    appended = append(log, b"a")
    assert log.durable_offset == 0
    await log.wait_kept(appended)
    assert log.durable_offset == 1
    append(log, b"nobody waited for")
    assert after_power_cut(log, disk) == [b"a"]


@simulated
async def test_group_waiting_for_one_append_keeps_all_before_it(disk: SimDisk) -> None:
    log = open_log(disk, GROUP)
    for number in range(9):
        append(log, b"%d" % number)
    await log.append_and_wait(batch_of(b"9"), leader_epoch=EPOCH)
    assert log.durable_offset == 10
    assert after_power_cut(log, disk) == [b"%d" % number for number in range(10)]


@simulated
async def test_group_a_disk_that_lies_loses_what_was_acknowledged(disk: SimDisk) -> None:
    """Shows that the tests here would notice a sync left out."""
    log = open_log(disk, GROUP)
    disk.lie_about_sync = True
    await log.append_and_wait(batch_of(b"a"), leader_epoch=EPOCH)
    disk.heal()
    assert after_power_cut(log, disk) == []


@pytest.mark.parametrize("seed", range(5))
def test_group_many_writers_share_few_syncs_and_lose_nothing(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        syncs = Syncs()
        disk = SimDisk(sim.loop.chance("disk"), spend=sim.loop.spend, trace=syncs)
        disk.slow_sync(0.002, 0.01)
        log = open_log(disk, GROUP)
        kept: list[bytes] = []

        async def write(value: bytes) -> None:
            await asyncio.sleep(sim.rng.uniform(0, 0.1))
            await log.append_and_wait(batch_of(value), leader_epoch=EPOCH)
            kept.append(value)

        writers = [asyncio.create_task(write(b"%d" % number)) for number in range(300)]
        await asyncio.sleep(0.05)
        assert 0 < len(kept) < 300
        acknowledged = list(kept)
        assert syncs.count < 30
        for writer in writers:
            writer.cancel()
        found = after_power_cut(log, disk)
        assert set(acknowledged) <= set(found)

    simulate(seed, scenario)


@simulated
async def test_group_waiting_again_for_what_is_kept_costs_no_sync() -> None:
    syncs = Syncs()
    disk = SimDisk(asyncio.get_running_loop().chance("disk"), trace=syncs)  # type: ignore[attr-defined]
    log = open_log(disk, GROUP)
    appended = await log.append_and_wait(batch_of(b"a"), leader_epoch=EPOCH)
    before = syncs.count
    await log.wait_kept(appended)
    assert syncs.count == before
    log.abandon()


@simulated
async def test_group_an_append_that_rolled_a_segment_survives_with_all_before_it(disk: SimDisk) -> None:
    settings = LogSettings(flush=Flush.GROUP, segment_bytes=1024)
    log = open_log(disk, settings)
    values = [b"%d" % number + b"x" * 300 for number in range(10)]
    for value in values[:-1]:
        append(log, value)
    await log.append_and_wait(batch_of(values[-1]), leader_epoch=EPOCH)
    assert len(facts_of(log)) > 3
    assert after_power_cut(log, disk) == values


@simulated
async def test_group_what_is_written_while_a_sync_runs_is_not_kept_by_it(disk: SimDisk) -> None:
    log = open_log(disk, GROUP)
    first = append(log, b"a")
    waiting = asyncio.create_task(log.wait_kept(first))
    await until_a_sync_is_under_way(log)
    second = append(log, b"b")
    await waiting
    assert log.durable_offset == 1
    await log.wait_kept(second)
    assert log.durable_offset == 2
    assert after_power_cut(log, disk) == [b"a", b"b"]


@simulated
async def test_group_a_writer_that_gives_up_waiting_disturbs_no_other(disk: SimDisk) -> None:
    log = open_log(disk, GROUP)
    one = asyncio.create_task(log.append_and_wait(batch_of(b"a"), leader_epoch=EPOCH))
    two = asyncio.create_task(log.append_and_wait(batch_of(b"b"), leader_epoch=EPOCH))
    await until_a_sync_is_under_way(log)
    one.cancel()
    await two
    with pytest.raises(asyncio.CancelledError):
        await one
    assert sorted(value for value in after_power_cut(log, disk) if value) == [b"a", b"b"]


# Interval


@pytest.mark.parametrize("replicated", [False, True])
@simulated
async def test_interval_syncs_by_itself_when_its_time_has_come(replicated: bool) -> None:
    disk = new_disk()
    log = open_log(disk, INTERVAL)
    appended = log.append_replicated(placed_batch(b"a", offset=0)) if replicated else append(log, b"a")
    before = asyncio.get_running_loop().time()
    await log.wait_kept(appended)
    assert asyncio.get_running_loop().time() == before, "kept at once"
    await asyncio.sleep(0.49)
    assert log.durable_offset == 0
    await asyncio.sleep(0.02)
    assert log.durable_offset == 1
    append(log, b"b")
    assert after_power_cut(log, disk) == [b"a"]


@simulated
async def test_interval_goes_on_syncing_as_long_as_there_is_something_new(disk: SimDisk) -> None:
    log = open_log(disk, INTERVAL)
    for number in range(100):
        append(log, b"%d" % number)
        await asyncio.sleep(0.1)
        assert log.next_offset - log.durable_offset <= 6
    operations = disk.operations
    await asyncio.sleep(60)
    assert log.durable_offset == 100
    assert disk.operations - operations <= 1, "a log at rest does not sync"
    await log.close()


@simulated
async def test_interval_flush_does_not_wait_for_the_time(disk: SimDisk) -> None:
    log = open_log(disk, INTERVAL)
    append(log, b"a")
    await log.flush()
    assert asyncio.get_running_loop().time() < 0.1
    assert after_power_cut(log, disk) == [b"a"]


@simulated
async def test_interval_a_closed_log_does_not_sync_any_more(disk: SimDisk) -> None:
    log = open_log(disk, INTERVAL)
    append(log, b"a")
    log.abandon()
    operations = disk.operations
    await asyncio.sleep(10)
    assert disk.operations == operations


# None


@simulated
async def test_none_keeps_at_once_and_loses_only_what_was_not_synced(disk: SimDisk) -> None:
    log = open_log(disk, NONE)
    await log.wait_kept(append(log, b"a"))
    assert asyncio.get_running_loop().time() == 0
    await log.flush()
    await log.append_and_wait(batch_of(b"b"), leader_epoch=EPOCH)
    await asyncio.sleep(3600)
    assert (log.durable_offset, log.next_offset) == (1, 2)
    assert after_power_cut(log, disk) == [b"a"]


@simulated
async def test_none_a_sealed_segment_is_synced_soon_all_the_same(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(flush=Flush.NONE, segment_bytes=1024))
    values = [b"%d" % number + b"x" * 500 for number in range(4)]
    for value in values:
        append(log, value)
    sealed_end = facts_of(log)[-1].base_offset
    assert sealed_end > 0
    await asyncio.sleep(1)
    assert log.durable_offset >= sealed_end
    assert after_power_cut(log, disk)[:sealed_end] == values[:sealed_end]


@pytest.mark.parametrize("seed", range(20))
def test_none_whatever_a_power_cut_leaves_is_a_beginning_of_what_was_written(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        disk = new_disk(seed)
        log = open_log(disk, LogSettings(flush=Flush.NONE, segment_bytes=1024))
        values = [b"%d" % number + b"x" * 100 for number in range(20)]
        for value in values[:7]:
            append(log, value)
        await log.flush()
        for value in values[7:]:
            append(log, value)
        log.abandon()
        disk.crash("random")
        log = open_log(disk, log.settings)
        found = values_of(log)
        assert len(found) >= 7
        assert found == values[: len(found)]
        log.abandon()

    simulate(seed, scenario)


# Cut off


@simulated
async def test_an_append_that_is_truncated_before_it_is_kept_is_not_acknowledged(disk: SimDisk) -> None:
    log = open_log(disk, GROUP)
    waiting = asyncio.create_task(log.append_and_wait(batch_of(b"a"), leader_epoch=EPOCH))
    await asyncio.sleep(0)
    await log.truncate(Offset(0))
    append(log, b"another at the same offset")
    with pytest.raises(Truncated, match="orders-0 was truncated before offset 0 was kept"):
        await waiting
    await log.close()
