"""Small batches, small logs and their content, for the tests of storage.

Invariant: what `batch_of` makes, a log takes; what `values_of` returns was read batch by batch and checked.
"""

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from crc32c import crc32c

from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.ports import Buffer, Filesystem
from millpond.protocol.records import (
    HEADER,
    HEADER_BYTES,
    Codec,
    NewRecord,
    Record,
    decode_batch,
    encode_batch,
    encode_values,
    iter_batches,
    parse_header,
)
from millpond.storage.log import Appended, Log
from millpond.storage.retention import SegmentFacts
from millpond.storage.settings import LogSettings
from millpond.testing.disk import SimDisk
from millpond.testing.simulation import simulate

P = ParamSpec("P")

NOW = TimestampMs(1_767_225_600_000)
EPOCH = LeaderEpoch(3)
DIRECTORY = "orders-0"
CRC_START = 21


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an `async def` test in virtual time. What fails unheard in a task fails the test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        simulate(1, lambda sim: test(*args, **kwargs))

    return run


def new_disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed))


def open_log(filesystem: Filesystem, settings: LogSettings | None = None) -> Log:
    return Log.open(filesystem, DIRECTORY, settings)


def batch_of(*values: bytes, timestamp: int = NOW, codec: Codec = Codec.NONE) -> bytes:
    return encode_values(values, timestamp=TimestampMs(timestamp), codec=codec)


def timed_batch(*timestamps: int, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch([NewRecord(b"t%d" % each, timestamp=TimestampMs(each)) for each in timestamps], codec=codec)


def sequenced_batch(
    *values: bytes, sequence: int, producer: int = 7, epoch: int = 0, timestamp: int = NOW, control: bool = False
) -> bytes:
    """A batch from an idempotent producer."""
    return encode_batch(
        [NewRecord(value, timestamp=TimestampMs(timestamp)) for value in values],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=Sequence(sequence),
        control=control,
    )


def placed_batch(*values: bytes, offset: int, epoch: int = EPOCH) -> bytes:
    """A batch as a leader hands it to a follower."""
    return encode_values(values, timestamp=NOW, base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch))


def forged(batch: Buffer, **fields: int) -> bytes:
    """The batch with other numbers in its header, and a checksum that fits them."""
    header = parse_header(batch)._replace(**fields)  # type: ignore[arg-type]
    records = bytes(batch[HEADER_BYTES:])
    crc = crc32c(HEADER.pack(*header)[CRC_START:] + records)
    return HEADER.pack(*header._replace(crc=crc)) + records


def append(log: Log, *values: bytes, epoch: int = EPOCH) -> Appended:
    return log.append(batch_of(*values), leader_epoch=LeaderEpoch(epoch))


def read_all(log: Log, *, bytes_max: int = 1 << 20) -> list[Record]:
    """Every record that the log serves, read from its start to its end."""
    records: list[Record] = []
    at = log.start_offset
    while at < log.next_offset:
        found = log.read(at, bytes_max=bytes_max)
        assert found.next_offset > at, f"a read from {at} leads to {found.next_offset}"
        records += [record for position, _ in iter_batches(found.data) for record in decode_batch(found.data, position)]
        at = found.next_offset
    assert [each.offset for each in records] == list(range(records[0].offset if records else 0, log.next_offset))
    return [record for record in records if record.offset >= log.start_offset]


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


async def until_a_sync_is_under_way(log: Log) -> None:
    """Returns once a commit round has begun; what is appended from then on needs another."""
    for _ in range(100):
        if log.commit.turn.locked():
            return
        await asyncio.sleep(0)
    raise AssertionError("nobody asked for a sync")


def facts_of(log: Log) -> list[SegmentFacts]:
    """Where each segment begins and ends, its size and its newest time; oldest first."""
    return log.segments.facts()


def files_of(filesystem: Filesystem, *, suffix: str = "") -> dict[str, bytes]:
    """The bytes of all files of the log whose names end so."""
    contents = {}
    for name in filesystem.list(DIRECTORY):
        if name.endswith(suffix):
            file = filesystem.open(f"{DIRECTORY}/{name}")
            contents[name] = file.read(0, file.size())
            file.close()
    return contents
