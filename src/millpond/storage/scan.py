"""Reading a segment from its first byte: which batches are whole, where the first is not, and its index anew.

Three marks tell a batch that was written so from one that was not: its checksum; its base offset, which must be
the one after the batch before (nothing in a log leaves a gap, not even compaction); and its leader epoch, which
must be the history's. Together they cover every bit of a batch, also the sixteen bytes that the checksum does not.

Invariant: everything that an index counts after a scan bears all three marks.
Pure apart from reading the map it is given. Driven by recovery.py, and by segment.py where an index is missing.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from millpond.model.errors import MillpondError
from millpond.model.ids import NO_PRODUCER, Offset
from millpond.model.limits import MIB
from millpond.protocol.records import HEADER_BYTES, LENGTH_END, BatchHeader, check_batch, parse_header
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.index import SparseIndex

_FRONT = struct.Struct("!qiibI2xi8xqq")
"""base offset, length, epoch, magic, crc, last offset delta, max timestamp, producer id"""

_BASE_AND_LENGTH = struct.Struct("!qi")
_MAGIC_AT = 16
_CRC_START = 21
_LENGTH_MIN = HEADER_BYTES - LENGTH_END
_OFFSET_REACH = 2**31
"""No two batches of one segment are further apart than this."""


def scan_segment(
    content: memoryview,
    index: SparseIndex,
    *,
    origin: int = 0,
    epochs: LeaderEpochs | None,
    index_interval: int,
    on_producer: Callable[[BatchHeader], None] | None = None,
) -> str | None:
    """Extends `index` from where it ends to the first batch that is not whole, and says what is wrong with that one.

    None means that all are whole, and nothing follows but what is blank. `content` begins at byte `origin` of the file.
    Without `epochs`, the batches' own are believed.
    """
    size = len(content)
    position, expected, max_timestamp = index.log_bytes - origin, index.next_offset, index.max_timestamp
    index_due = position
    epoch, epoch_end = epochs.at(expected) if epochs else (-1, -1)
    fault = None
    unpack = _FRONT.unpack_from
    while position < size:
        if size - position < HEADER_BYTES:
            fault = f"{size - position} bytes are no batch header"
            break
        base, length, batch_epoch, magic, crc, delta, timestamp, producer = unpack(content, position)
        end = position + LENGTH_END + length
        if expected >= epoch_end:
            epoch, epoch_end = epochs.at(expected) if epochs else (batch_epoch, -1)
        if (
            base != expected
            or length < _LENGTH_MIN
            or end > size
            or magic != 2
            or delta < 0
            or batch_epoch != epoch
            or crc32c(content[position + _CRC_START : end]) != crc
        ):
            fault = explain(content, position, expected=expected, epoch=epoch)
            break
        if timestamp > max_timestamp:
            max_timestamp = index.max_timestamp = timestamp
        if position >= index_due:
            index.add(Offset(base), origin + position)
            index_due = position + index_interval
        if producer != NO_PRODUCER and on_producer:
            on_producer(parse_header(content, position))
        expected = base + delta + 1
        position = end
    index.next_offset, index.log_bytes = Offset(expected), origin + position
    return None if fault is None or is_blank(content, position) else fault


def is_blank(content: memoryview, position: int) -> bool:
    """Whether nothing follows: a segment that was growing has zeros ahead of it, which no batch begins with."""
    rest = content[position:]
    return rest[:HEADER_BYTES] == bytes(HEADER_BYTES)[: len(rest)] and bytes(rest) == bytes(len(rest))


class Damage(NamedTuple):
    """A place in a file that holds something other than what was written there."""

    file: str
    position: int
    offset: Offset
    """The first offset that cannot be read."""
    reason: str


def scan_around_damage(
    content: memoryview, index: SparseIndex, *, file: str, epochs: LeaderEpochs | None, index_interval: int
) -> list[Damage]:
    """Indexes a segment whose bytes were all synced once: what is not whole in it is damage, not a torn tail."""
    damages = []
    while (fault := scan_segment(content, index, epochs=epochs, index_interval=index_interval)) is not None:
        damages.append(Damage(file, index.log_bytes, index.next_offset, fault))
        if not skip_damage(content, index):
            break
    return damages


def skip_damage(content: memoryview, index: SparseIndex) -> bool:
    """Moves the index on to the next whole batch, or to the end of the segment where there is none."""
    found = find_batch_after(content, index.log_bytes, expected=index.next_offset)
    if found is None:
        index.log_bytes = len(content)
        return False
    index.log_bytes, header = found
    index.next_offset = header.base_offset
    return True


def whole_batches(content: memoryview) -> Iterator[BatchHeader]:
    """The headers from the segment's start to the first batch that its checksum does not fit."""
    position = 0
    while position < len(content):
        try:
            header = check_batch(content, position)
        except MillpondError:
            return
        yield header
        position += header.size


def explain(content: memoryview, position: int, *, expected: int, epoch: int) -> str:
    """Why the bytes at `position` are not the batch that should be there."""
    try:
        header = check_batch(content, position)
    except MillpondError as error:
        return str(error)
    if header.base_offset != expected:
        return f"the batch says it starts at offset {header.base_offset}, but {expected} comes next"
    if header.leader_epoch != epoch:
        return f"the batch says it is of leader epoch {header.leader_epoch}, but it was written in {epoch}"
    return "it cannot be a batch of this log"


def find_batch_after(content: memoryview, position: int, *, expected: Offset) -> tuple[int, BatchHeader] | None:
    """The next place behind damage where a whole batch of this log begins.

    The damaged batch's own length is asked first. Failing that, every byte may be the place; but a record's value may
    hold a batch too, so only one counts from which others follow without a gap to the segment's end.
    """
    base, length = (
        _BASE_AND_LENGTH.unpack_from(content, position) if len(content) - position >= HEADER_BYTES else (0, 0)
    )
    if base == expected and length >= _LENGTH_MIN:
        header = _batch_behind(content, position + LENGTH_END + length, expected)
        if header is not None:
            return position + LENGTH_END + length, header
    for magic_at in _places_of(b"\x02", content, position + _MAGIC_AT + 1):
        header = _batch_behind(content, magic_at - _MAGIC_AT, expected)
        if header is not None and _leads_to_the_end(content, magic_at - _MAGIC_AT, header.base_offset):
            return magic_at - _MAGIC_AT, header
    return None


def _batch_behind(content: memoryview, position: int, expected: Offset) -> BatchHeader | None:
    """The whole batch at `position`, where there is one and its offset can follow `expected`."""
    if position < 0 or len(content) - position < HEADER_BYTES:
        return None
    base, length = _BASE_AND_LENGTH.unpack_from(content, position)
    if not expected < base < expected + _OFFSET_REACH or length < _LENGTH_MIN:
        return None
    try:
        return check_batch(content, position)
    except MillpondError:
        return None


def _leads_to_the_end(content: memoryview, position: int, expected: int) -> bool:
    while len(content) - position >= HEADER_BYTES:
        base, length, _, magic, _, delta, _, _ = _FRONT.unpack_from(content, position)
        if base != expected or length < _LENGTH_MIN or magic != 2 or delta < 0:
            break
        position, expected = position + LENGTH_END + length, base + delta + 1
    return position <= len(content) and is_blank(content, position)


def _places_of(byte: bytes, content: memoryview, position: int) -> Iterator[int]:
    """Where `byte` stands, from `position` on; a megabyte at a time, since damage is rarely far from the next batch."""
    for window_at in range(position, len(content), MIB):
        window = bytes(content[window_at : window_at + MIB])
        found = window.find(byte)
        while found >= 0:
            yield window_at + found
            found = window.find(byte, found + 1)
