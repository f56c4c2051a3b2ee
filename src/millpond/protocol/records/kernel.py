"""The records of a batch to bytes and back: the inner loops, and nothing else.

    field            type
    length           varint    bytes of the record that follow
    attributes       i8        unused: written as 0, ignored when read
    timestampDelta   varlong   minus the batch's baseTimestamp
    offsetDelta      varint    minus the batch's baseOffset
    keyLength        varint    -1 = no key
    key              bytes
    valueLength      varint    -1 = no value
    value            bytes
    headerCount      varint
      keyLength      varint    }
      key            UTF-8     } for each header
      valueLength    varint    } -1 = no value
      value          bytes     }

A varint is zigzag (0, -1, 1, -2 … become 0, 1, 2, 3 …), then seven bits a byte, lowest first, the top bit set on all
but the last byte: at most 5 bytes, a varlong 10.

Invariant: reading never leaves `data`, never sets aside memory for a claim, and raises only errors of our tree.
Pure. Driven by encode.py and decode.py, who know nothing of varints: a compiled kernel could stand in for these
functions. They are written for speed first, which is why they repeat themselves.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from millpond.model.errors import InvalidRecord, MalformedBatch
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import HEADERS_PER_RECORD_MAX
from millpond.protocol.records.record import Headers, NewRecord, Record
from millpond.protocol.records.uniform import BLOCK_RECORDS, decode_alike

RECORD_BYTES_MIN: Final = 7
"""The smallest record: one byte each for length, attributes, both deltas, key, value and header count."""

TIMESTAMP_DISTANCE_MAX: Final = 2**62 - 1
"""Neither a base nor a delta goes further, in milliseconds, so that no sum of theirs leaves 64 bits."""

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64
_NO_BYTES_RAW: Final = 1  # -1, after zigzag
_NO_BYTES: Final = bytes((_NO_BYTES_RAW,))


def _build_varint(number: int) -> bytes:
    rest = (number << 1) if number >= 0 else (~number << 1) | 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_WIDTH_STARTS: Final = (0, 1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31)
"""The first number of each varint width, from one byte on; the last is where varints end."""

_SMALL: Final = _WIDTH_STARTS[2]
_VARINTS: Final = [_build_varint(number) for number in range(_SMALL)]
"""Of all numbers that take one or two bytes; nearly all that occur."""


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < _SMALL else _build_varint(number)


def _varints(start: int, stop: int) -> list[bytes]:
    if stop <= _SMALL:
        return _VARINTS[start:stop]
    return [_build_varint(number) for number in range(start, stop)]


def encode_values(values: Sequence[bytes]) -> bytes:
    """Records that have a value and nothing else, offsets in order, all at the batch's base timestamp.

    Per record there is no Python code: what differs between two records of one width of offset delta is only the
    delta and the size, so the parts are laid out in slices and joined once.
    """
    runs: list[bytes] = []
    for width, start in enumerate(_WIDTH_STARTS[:-1], start=1):
        if start >= len(values):
            break
        run = values[start : _WIDTH_STARTS[width]]
        sizes = list(map(len, run))
        # Four fields are a single byte here: attributes, timestamp delta, key length and header count.
        heads = {size: _varint(size + len(_varint(size)) + width + 4) + b"\x00\x00" for size in set(sizes)}
        middles = {size: _NO_BYTES + _varint(size) for size in heads}
        parts: list[bytes] = [b"\x00"] * (5 * len(run))
        parts[0::5] = map(heads.__getitem__, sizes)
        parts[1::5] = _varints(start, start + len(run))
        parts[2::5] = map(middles.__getitem__, sizes)
        parts[3::5] = run
        runs.append(b"".join(parts))
    return b"".join(runs)


def encode_new(records: Sequence[NewRecord], *, base_timestamp: TimestampMs) -> bytes:
    """Records with offsets in order from the batch's base."""
    return _encode(
        [
            (delta, timestamp - base_timestamp, key, value, headers)
            for delta, (value, key, timestamp, headers) in enumerate(records)
        ]
    )


def encode_placed(records: Sequence[Record], *, base_offset: Offset, base_timestamp: TimestampMs) -> bytes:
    """Records with the offsets they have, gaps between them and all."""
    return _encode(
        [
            (offset - base_offset, timestamp - base_timestamp, key, value, headers)
            for offset, timestamp, key, value, headers in records
        ]
    )


def _encode(rows: Sequence[tuple[int, int, bytes | None, bytes | None, Headers]]) -> bytes:
    table, small = _VARINTS, _SMALL
    out: list[bytes] = []
    for offset_delta, timestamp_delta, key, value, headers in rows:
        head = b"\x00%b%b%b" % (
            table[timestamp_delta] if 0 <= timestamp_delta < small else _varint(timestamp_delta),
            table[offset_delta] if 0 <= offset_delta < small else _varint(offset_delta),
            _NO_BYTES if key is None else sized(key),
        )
        if value is None:
            size, value = _NO_BYTES, b""
        else:
            length = len(value)
            size = table[length] if length < small else _varint(length)
        tail = _encode_headers(headers) if headers else b"\x00"
        length = len(head) + len(size) + len(value) + len(tail)
        out += (table[length] if length < small else _varint(length), head, size, value, tail)
    return b"".join(out)


def sized(data: bytes) -> bytes:
    """Its length before it, as a header's name and value have it."""
    return _varint(len(data)) + data


def _encode_headers(headers: Headers) -> bytes:
    if len(headers) > HEADERS_PER_RECORD_MAX:
        raise InvalidRecord(f"a record has {len(headers)} headers; at most {HEADERS_PER_RECORD_MAX} are taken")
    return _varint(len(headers)) + encode_header_list(headers)


def encode_header_list(headers: Headers) -> bytes:
    """Without their number."""
    out: list[bytes] = []
    for name, value in headers:
        try:
            out.append(sized(name.encode("utf-8", "surrogateescape")))
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the header name {name!r} has no bytes: {error.reason}") from None
        out.append(_NO_BYTES if value is None else sized(value))
    return b"".join(out)


ALIKE_MISSES_MAX: Final = 2
"""Blocks in a row that were not alike: the others are not tried."""
ALIKE_RECORDS_MIN: Final = 16
"""Fewer are decoded sooner one by one than as a table."""

_RECORD: Final[Any] = partial(tuple.__new__, Record)
"""What NamedTuple's own constructor does, called from C alone."""


Make = Callable[[tuple[Any, ...]], Any]


def decode_records(
    data: bytes,
    *,
    count: int,
    base_offset: Offset,
    base_timestamp: TimestampMs,
    append_time: TimestampMs | None,
    make: Make = _RECORD,
    tail: tuple[Any, ...] = (),
) -> list[Any]:
    """The `count` records that fill `data`; those of a batch with an append time all have that timestamp.

    `make` is given a tuple of what a `Record` has, in its order, and `tail` behind it; without it they are Records.
    """
    if count * RECORD_BYTES_MIN > len(data):
        raise InvalidRecord(f"recordsCount is {count}, but {len(data)} bytes hold {len(data) // RECORD_BYTES_MIN}")
    if abs(base_timestamp) > TIMESTAMP_DISTANCE_MAX:
        raise InvalidRecord(f"baseTimestamp {base_timestamp} is no time")
    decoder = _Decoder(data, base_offset, base_timestamp, append_time, make, tail)
    try:
        position = decoder.decode(count)
    except IndexError:
        raise MalformedBatch(f"the records are cut short: {len(data)} bytes do not hold the {count} claimed") from None
    if position != len(data):
        raise MalformedBatch(f"{len(data) - position} bytes follow the last of {count} records")
    return decoder.made


def record_starts(data: bytes, count: int) -> "array[int]":
    """Where each of `count` records begins, and where the last ends; nothing else of them is looked at."""
    starts, position = array("I", [0]), 0
    for _ in range(count):
        if (raw := data[position]) < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            position += 2
        else:
            raw, position = _read_raw(data, position, _VARINT_BITS)
        position += raw >> 1
        starts.append(position)
    return starts


def decode_one(
    data: bytes, position: int, *, base_offset: Offset, base_timestamp: TimestampMs, append_time: TimestampMs | None
) -> Record:
    """The record that begins there, of data that were decoded before."""
    rows: list[Any] = []
    _decode_rows(rows, data, position, 1, base_offset, base_timestamp)
    offset, timestamp, key, value, headers = rows[0]
    return Record(offset, timestamp if append_time is None else append_time, key, value, headers)


class Split(NamedTuple):
    """A record's bytes, taken apart where another place, time or header would come in."""

    timestamp_delta: int
    body: bytes
    """Key and value, each with its length."""
    header_count: int
    headers: bytes


def split_record(data: bytes) -> Split:
    """One record, of data that were decoded before."""
    _, position = _read_raw(data, 0, _VARINT_BITS)
    raw, position = _read_raw(data, position + 1, _VARLONG_BITS)  # past the attributes
    while data[position] >= 0x80:  # the offset's delta
        position += 1
    begin = position + 1
    key, position = _read_raw(data, begin, _VARINT_BITS)
    value, position = _read_raw(data, position if key == _NO_BYTES_RAW else position + (key >> 1), _VARINT_BITS)
    end = position if value == _NO_BYTES_RAW else position + (value >> 1)
    count, position = _read_raw(data, end, _VARINT_BITS)
    return Split(raw >> 1 ^ -(raw & 1), data[begin:end], count >> 1, data[position:])


def join_record(offset_delta: int, body: bytes, header_count: int, headers: bytes) -> bytes:
    """What `split_record` took apart, in another place, at its batch's base timestamp."""
    rest = b"\x00\x00%b%b%b%b" % (_varint(offset_delta), body, _varint(header_count), headers)
    return _varint(len(rest)) + rest


class _Decoder:
    """Goes through a batch block by block: as a table where records are alike, one by one where they are not."""

    __slots__ = ("_append_time", "_base_offset", "_base_timestamp", "_data", "_make", "_tail", "made")

    def __init__(
        self,
        data: bytes,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        make: Make,
        tail: tuple[Any, ...],
    ) -> None:
        self.made: list[Any] = []
        self._data = data
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp
        self._append_time = append_time
        self._make = make
        self._tail = tail

    def decode(self, count: int) -> int:
        """The position after the last. IndexError where the data end early."""
        position = misses = 0
        made, tail = self.made, (self._append_time, self._make, self._tail)
        while (left := count - len(made)) >= ALIKE_RECORDS_MIN and misses < ALIKE_MISSES_MAX:
            size = min(left, BLOCK_RECORDS if made else _WIDTH_STARTS[1])
            found = decode_alike(self._data, position, len(made), size, self._base_offset, self._base_timestamp, *tail)
            if found is None:
                misses += 1
                position = self._one_by_one(position, size)
            else:
                misses = 0
                made += found.made
                position += found.size
        return self._one_by_one(position, count - len(made))

    def _one_by_one(self, position: int, count: int) -> int:
        rows: list[tuple[Any, ...]] = []
        position = _decode_rows(rows, self._data, position, count, self._base_offset, self._base_timestamp)
        if self._append_time is not None:
            rows = [(offset, self._append_time, key, value, headers) for offset, _, key, value, headers in rows]
        make, tail = self._make, self._tail
        self.made += [make(row + tail) for row in rows] if tail else map(make, rows)
        return position


def _decode_rows(  # noqa: C901 - varints are read in place, as a call would cost more than all the rest
    rows: list[Any], data: bytes, position: int, count: int, base_offset: int, base_timestamp: int
) -> int:
    """Adds rows in the order of Record's fields; the position after the last. IndexError where `data` ends early."""
    size = len(data)
    for _ in range(count):
        if (raw := data[position]) < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            position += 2
        else:
            raw, position = _read_raw(data, position, _VARINT_BITS)
        end = position + (raw >> 1)
        if raw & 1 or end > size:
            raise _bad_length("record", raw, size - position)
        if (raw := data[position + 1]) < 0x80:  # past the attributes
            position += 2
        else:
            raw, position = _read_raw(data, position + 1, _VARLONG_BITS)
            if raw > 2 * TIMESTAMP_DISTANCE_MAX:
                raise InvalidRecord(f"timestampDelta {raw >> 1 ^ -(raw & 1)} leads to no time")
        timestamp = base_timestamp + (raw >> 1 ^ -(raw & 1))
        if (raw := data[position]) < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            position += 2
        else:
            raw, position = _read_raw(data, position, _VARINT_BITS)
        offset = base_offset + (raw >> 1 ^ -(raw & 1))
        key: bytes | None = None
        if data[position] == _NO_BYTES_RAW:
            position += 1
        else:
            key, position = _read_bytes(data, position, end)
        value: bytes | None = None
        if (raw := data[position]) < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            position += 2
        else:
            raw, position = _read_raw(data, position, _VARINT_BITS)
        if not raw & 1:
            value = data[position : position + (raw >> 1)]
            position += raw >> 1
        elif raw != _NO_BYTES_RAW:
            raise _bad_length("value", raw, end - position)
        headers: Headers = ()
        if data[position]:
            headers, position = _read_headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise MalformedBatch(f"the fields of a record end at byte {position} of the records, its length says {end}")
        rows.append((offset, timestamp, key, value, headers))
    return position


def _read_raw(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """A varint before zigzag is undone, and the position after it."""
    raw = shift = 0
    while shift < bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, position
        shift += 7
    raise MalformedBatch(f"the varint before byte {position} of the records is more than {bits} bits")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if (raw := data[position]) < 0x80:
        position += 1
    else:
        raw, position = _read_raw(data, position, _VARINT_BITS)
    if raw == _NO_BYTES_RAW:
        return None, position
    stop = position + (raw >> 1)
    if raw & 1 or stop > end:
        raise _bad_length("key or header", raw, end - position)
    return data[position:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    raw, position = _read_raw(data, position, _VARINT_BITS)
    count = raw >> 1
    # A header takes two bytes at least.
    if raw & 1 or 2 * count > end - position:
        raise _bad_length("header list", raw, max(end - position, 0) // 2)
    if count > HEADERS_PER_RECORD_MAX:
        raise InvalidRecord(f"a record has {count} headers; at most {HEADERS_PER_RECORD_MAX} are taken")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise InvalidRecord("a header has no name; it may be empty, but not null")
        value, position = _read_bytes(data, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _bad_length(what: str, raw: int, room: int) -> MalformedBatch:
    return MalformedBatch(f"{what} length is {raw >> 1 ^ -(raw & 1)}; here it can be at most {room}")
