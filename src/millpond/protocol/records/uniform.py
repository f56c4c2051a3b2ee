"""Records that are alike, decoded many at a time: equal sizes of key and value, offsets one after another, no headers.

Measurements, events of one kind and bulk loads are mostly so. Then a block of records is a table: each field is at the
same place of every row, and is read as a column, without Python code per record. What is checked of one record by the
usual way (kernel.py) is checked here of all at once, by comparing columns; a block that is not alike is left to that.

Invariant: `decode_alike` returns exactly what the usual way would, or None.
Pure. Driven by kernel.py.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

BLOCK_RECORDS: Final = 256
"""Few enough that one odd record costs little, many enough that the columns pay."""

_ONE_BYTE_DELTAS: Final = 64
_TWO_BYTE_DELTAS: Final = 8192
_SINGLE: Final = bytes(range(0, 128, 2))
"""Offset deltas 0 to 63, as they are written."""
_DOUBLE_LOW: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(_TWO_BYTE_DELTAS))
_DOUBLE_HIGH: Final = bytes(2 * delta >> 7 & 0x7F for delta in range(_TWO_BYTE_DELTAS))
_NO_KEY: Final = 1
_FIRST: Final = itemgetter(0)


class _Layout(NamedTuple):
    """Where the fields of a record are, from its first byte."""

    size: int
    timestamp_at: int
    timestamp_width: int
    delta_at: int
    delta_width: int
    key_length_at: int
    key_at: int
    key_size: int | None
    value_length_at: int
    value_at: int
    value_size: int


class Alike(NamedTuple):
    made: list[Any]
    size: int
    """Bytes they took."""


def decode_alike(
    data: bytes,
    position: int,
    first: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    make: Callable[[tuple[Any, ...]], Any],
    tail: tuple[Any, ...],
) -> Alike | None:
    """The `count` records from `position` on, the first with offset delta `first`; None if they are not alike."""
    delta_width = 1 if first + count <= _ONE_BYTE_DELTAS else 2
    if first + count > _TWO_BYTE_DELTAS or (delta_width == 2 and first < _ONE_BYTE_DELTAS):
        return None
    layout = _layout(data, position, delta_width)
    if layout is None or position + count * layout.size > len(data):
        return None
    block = data[position : position + count * layout.size]
    if not _is_table(block, layout, first, count):
        return None
    timestamps = _timestamps(block, layout, base_timestamp, count)
    if timestamps is None:
        return None
    if append_time is not None:
        timestamps = repeat(append_time, count)
    keys, values = _columns(block, layout)
    offsets = range(base_offset + first, base_offset + first + count)
    # zip fills one tuple again and again if nobody keeps it: nothing is made per record but what `make` makes.
    rows = zip(offsets, timestamps, keys, values, repeat(()), *map(repeat, tail), strict=False)
    return Alike(list(map(make, rows)), len(block))


def _columns(block: bytes, layout: _Layout) -> tuple[Iterable[bytes | None], Iterable[bytes]]:
    values = map(_FIRST, struct.iter_unpack(f"{layout.value_at}x{layout.value_size}sx", block))
    if layout.key_size is None:
        return repeat(None), values
    rest = layout.size - layout.key_at - layout.key_size
    return map(_FIRST, struct.iter_unpack(f"{layout.key_at}x{layout.key_size}s{rest}x", block)), values


def _layout(data: bytes, start: int, delta_width: int) -> _Layout | None:
    """Of the record at `start`, if it is one that could be a row."""
    try:
        length, at = _size(data, start)
        size = at + length - start
        timestamp_at = at + 1
        timestamp_width = 1 if data[timestamp_at] < 0x80 else 2
        delta_at = timestamp_at + timestamp_width
        key_length_at = delta_at + delta_width
        if data[key_length_at] == _NO_KEY:
            key_size, key_at = None, key_length_at + 1
        else:
            key_size, key_at = _size(data, key_length_at)
        value_length_at = key_at + (key_size or 0)
        value_size, value_at = _size(data, value_length_at)
        is_whole = value_at + value_size + 1 == start + size and data[value_at + value_size] == 0
    except (IndexError, _NotPlain):
        return None
    if not is_whole:
        return None
    return _Layout(
        size,
        timestamp_at - start,
        timestamp_width,
        delta_at - start,
        delta_width,
        key_length_at - start,
        key_at - start,
        key_size,
        value_length_at - start,
        value_at - start,
        value_size,
    )


class _NotPlain(Exception):
    """A length that is negative, or takes more than two bytes. Never leaves this module."""


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A length of one or two bytes, and the place after it."""
    raw = data[at]
    if raw >= 0x80:
        second = data[at + 1]
        if second >= 0x80:
            raise _NotPlain
        raw, at = raw & 0x7F | second << 7, at + 1
    if raw & 1:
        raise _NotPlain
    return raw >> 1, at + 1


def _is_table(block: bytes, layout: _Layout, first: int, count: int) -> bool:
    """Whether every row has the lengths of the first, the next offset, and no headers."""
    size, delta_at = layout.size, layout.delta_at
    if layout.delta_width == 1:
        if block[delta_at::size] != _SINGLE[first : first + count]:
            return False
    elif (
        block[delta_at::size] != _DOUBLE_LOW[first : first + count]
        or block[delta_at + 1 :: size] != _DOUBLE_HIGH[first : first + count]
    ):
        return False
    lengths: Iterable[int] = (
        *range(layout.timestamp_at - 1),
        *range(layout.key_length_at, layout.key_at),
        *range(layout.value_length_at, layout.value_at),
        size - 1,
    )
    return all(block[at::size].count(block[at]) == count for at in lengths)


def _timestamps(block: bytes, layout: _Layout, base: int, count: int) -> Iterable[int] | None:
    low = block[layout.timestamp_at :: layout.size]
    if layout.timestamp_width == 1:
        if low.count(low[0]) == count:
            return repeat(base + (low[0] >> 1 ^ -(low[0] & 1)), count)
        return None if max(low) >= 0x80 else [base + (raw >> 1 ^ -(raw & 1)) for raw in low]
    high: Sequence[int] = block[layout.timestamp_at + 1 :: layout.size]
    if min(low) < 0x80 or max(high) >= 0x80:
        return None
    raws = [first & 0x7F | second << 7 for first, second in zip(low, high, strict=True)]
    return [base + (raw >> 1 ^ -(raw & 1)) for raw in raws]
