"""Recovery begins at the last checkpoint, not at a segment's start; but only where everything before is known."""

import asyncio
from pathlib import Path

from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.records import encode_values
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings
from millpond.testing import SimDisk, Simulation, simulate

EPOCH = LeaderEpoch(0)
SETTINGS = LogSettings(checkpoint_bytes=2_000, index_interval_bytes=100)


def batch(number: int) -> bytearray:
    return bytearray(
        encode_values(
            [b"%d" % number * 10],
            timestamp=TimestampMs(number),
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(number),
        )
    )


async def append(log: Log, numbers: range) -> None:
    for number in numbers:
        await log.append_and_wait(batch(number), leader_epoch=EPOCH)


def new_disk(sim: Simulation) -> SimDisk:
    return SimDisk(sim.loop.chance("disk"))


def test_only_what_came_since_the_last_checkpoint_is_checked_again() -> None:
    async def scenario(sim: Simulation) -> None:
        disk = new_disk(sim)
        log = Log.open(disk, "orders-0", SETTINGS)
        await append(log, range(200))
        size = log.size_bytes()
        log.abandon()
        disk.crash()
        log = Log.open(disk, "orders-0", SETTINGS)
        assert not log.report.clean
        assert log.next_offset == 200
        assert log.report.bytes_scanned < 2 * SETTINGS.checkpoint_bytes < size
        assert log.append(batch(199), leader_epoch=EPOCH).is_duplicate, "producers of the part not scanned are known"
        assert log.first_since(TimestampMs(7)) == (7, 7)
        log.abandon()

    simulate(1, scenario)


def test_without_the_index_of_the_checkpoint_the_whole_segment_is_checked() -> None:
    async def scenario(sim: Simulation) -> None:
        disk = new_disk(sim)
        log = Log.open(disk, "orders-0", SETTINGS)
        await append(log, range(200))
        size = log.size_bytes()
        log.abandon()
        disk.crash()
        disk.remove("orders-0/00000000000000000000.index")
        log = Log.open(disk, "orders-0", SETTINGS)
        assert log.report.bytes_scanned == size
        assert log.next_offset == 200
        log.abandon()

    simulate(2, scenario)


def test_an_index_from_before_a_truncation_is_not_taken_for_one_of_what_came_after() -> None:
    async def scenario(sim: Simulation) -> None:
        disk = new_disk(sim)
        log = Log.open(disk, "orders-0", SETTINGS)
        await append(log, range(100))
        await log.truncate(Offset(10))
        for number in range(300, 400):
            values = [b"other %d" % number]
            await log.append_and_wait(
                bytearray(encode_values(values, timestamp=TimestampMs(number))), leader_epoch=LeaderEpoch(1)
            )
        log.abandon()
        disk.crash()
        log = Log.open(disk, "orders-0", SETTINGS)
        assert log.next_offset == 110
        assert [log.read(Offset(each), bytes_max=1).next_offset for each in range(110)] == list(range(1, 111))
        log.abandon()

    simulate(3, scenario)


async def _kept(path: Path) -> None:
    log = Log.open(OsFilesystem(path), "orders-0", SETTINGS)
    await append(log, range(100))
    log.abandon()


def test_it_works_on_a_real_disk_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        await _kept(tmp_path)
        log = Log.open(OsFilesystem(tmp_path), "orders-0", SETTINGS)
        assert log.next_offset == 100
        assert log.report.bytes_scanned < log.size_bytes()
        await log.close()

    asyncio.run(scenario())
