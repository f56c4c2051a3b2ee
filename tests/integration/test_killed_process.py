"""A process that is killed loses nothing it had handed to the operating system, in whatever flush mode."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.model.ids import Offset
from millpond.protocol.records import decode_batch
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from tests.integration.expectations import read_all

APPENDER = """
import asyncio, sys
from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import encode_values
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings

async def append_for_ever() -> None:
    settings = LogSettings(flush=Flush(sys.argv[2]), segment_bytes=64 * 1024)
    log = Log.open(OsFilesystem(sys.argv[1]), "orders-0", settings)
    number = log.next_offset
    while True:
        batch = encode_values([b"order %d" % number], timestamp=TimestampMs(number))
        await log.append_and_wait(batch, leader_epoch=LeaderEpoch(0))
        number += 1
        sys.stdout.write("%d\\n" % number)
        sys.stdout.flush()

asyncio.run(append_for_ever())
"""


@pytest.mark.slow
@pytest.mark.parametrize("flush", Flush)
def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path, flush: Flush) -> None:
    filesystem, acknowledged = OsFilesystem(tmp_path), 0
    for acks in (1, 40, 400, 2_000):
        acknowledged = _append_until_killed(tmp_path, flush, acks=acks)
        log = Log.open(filesystem, "orders-0", LogSettings(flush=flush))
        assert log.report.damages == []
        assert log.next_offset >= acknowledged
        records = [record for _, batch in read_all(log) for record in decode_batch(batch)]
        assert [record.value for record in records] == [b"order %d" % number for number in range(log.next_offset)]
        assert log.start_offset == Offset(0)
        log.abandon()
    assert acknowledged > 2_400


def _append_until_killed(directory: Path, flush: Flush, *, acks: int) -> int:
    """The next offset as the process last announced it; it was killed some appends later."""
    command = [sys.executable, "-c", APPENDER, str(directory), flush.value]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) as process:
        assert process.stdout is not None
        heard = [process.stdout.readline() for _ in range(acks)]
        process.send_signal(signal.SIGKILL)
        heard += process.stdout.readlines()
    whole = [line for line in heard if line.endswith("\n")]
    assert len(whole) >= acks, "the appender ended by itself"
    return int(whole[-1])
