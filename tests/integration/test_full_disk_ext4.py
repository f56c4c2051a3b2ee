"""A disk that is really full: appends are refused, nothing kept is lost, and room makes them possible again."""

import asyncio
from pathlib import Path

import pytest

from millpond.model.errors import DiskFull
from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import encode_values
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings
from tests.integration.expectations import ExpectedBatches
from tests.machine.ext4_image import Ext4Image, why_no_image

EPOCH = LeaderEpoch(0)
SETTINGS = LogSettings(segment_bytes=512 * 1024)


@pytest.mark.slow
def test_a_full_disk_refuses_appends_and_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    reason = why_no_image(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    with Ext4Image(tmp_path, size_bytes=16 << 20) as image:
        asyncio.run(_fill_and_free(image))


async def _fill_and_free(image: Ext4Image) -> None:
    filesystem, expected = OsFilesystem(image.root), ExpectedBatches("full")
    ballast = image.root / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    log = Log.open(filesystem, "orders-0", SETTINGS)
    with pytest.raises(DiskFull):
        await _append_for_ever(log, expected)
    with pytest.raises(DiskFull):
        await _append(log, expected, bytes(900_000))
    ballast.unlink()
    for _ in range(5):
        await _append(log, expected, b"there is room again")
    log.abandon()
    log = Log.open(filesystem, "orders-0", SETTINGS)
    assert expected.check(log) == 0
    await log.close()


async def _append_for_ever(log: Log, expected: ExpectedBatches) -> None:
    while True:
        await _append(log, expected, bytes(100_000))


async def _append(log: Log, expected: ExpectedBatches, value: bytes) -> None:
    batch = bytearray(encode_values([value], timestamp=TimestampMs(1)))
    appended = log.append(batch, leader_epoch=EPOCH)
    expected.appended(appended.base_offset, appended.last_offset, batch)
    await log.wait_kept(appended)
    expected.kept(appended.last_offset + 1)
