"""Record batches of an exact size, and logs full of them.

Invariant: a batch made here is what a producer would send: valid, not compressed, of incompressible bytes.
"""

import random
import struct

from crc32c import crc32c

from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import HEADER_BYTES, encode_values
from millpond.storage.log import Log

EPOCH = LeaderEpoch(0)
_APPENDS_PER_MILLISECOND = 64
_TIMES = struct.Struct("!qq")
_TIMES_AT = 27
_CHECKSUM = struct.Struct("!I")
_CHECKSUM_AT = 17
"""Bytes of the header, drawn in protocol/records/header.py."""


def batch_of(size: int, *, values: int = 1) -> bytearray:
    """One batch of `size` bytes; writable, as it would lie in a socket's buffer."""
    rng = random.Random(size)
    overhead = 10
    while True:
        room, rest = divmod(size - HEADER_BYTES - overhead * values, values)
        lengths = [room + (number < rest) for number in range(values)]
        batch = bytearray(encode_values([rng.randbytes(each) for each in lengths], timestamp=TimestampMs(0)))
        if len(batch) <= size:
            break
        overhead += 1
    if len(batch) < size:
        lengths[0] += size - len(batch)
        batch = bytearray(encode_values([rng.randbytes(each) for each in lengths], timestamp=TimestampMs(0)))
    assert len(batch) == size, (len(batch), size)
    return batch


def fill(log: Log, batch: bytearray, *, total_bytes: int) -> TimestampMs:
    """Appends the batch until the log is that large, its time one millisecond later every so many appends.

    Returns the last time.
    """
    now = TimestampMs(0)
    for number in range(total_bytes // len(batch)):
        if number % _APPENDS_PER_MILLISECOND == 0:
            now = TimestampMs(number // _APPENDS_PER_MILLISECOND)
            _set_time(batch, now)
        log.append(batch, leader_epoch=EPOCH)
    return now


def _set_time(batch: bytearray, time: TimestampMs) -> None:
    """As if its producer had sent it then. The records' times count from the batch's."""
    _TIMES.pack_into(batch, _TIMES_AT, time, time)
    _CHECKSUM.pack_into(batch, _CHECKSUM_AT, crc32c(memoryview(batch)[_CHECKSUM_AT + _CHECKSUM.size :]))
