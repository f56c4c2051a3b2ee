"""The compiled kernel (kernel.c), where it was built when Millpond was installed, and the memory it works in.

It is a shared library beside this file, made by hatch_build.py where there is a C compiler. Where there is none, or
`MILLPOND_PURE` is set, `KERNEL` is None, and decode.py, encode.py and values.py do all of it with numpy, Arrow and
msgspec.

Invariants: every address that is handed over is that of an array which this module holds until the call is over, and
which has room for all that kernel.c may write into it. What the kernel leaves alone is done by the code it stands in
for, so results are the same with it and without.
Driven by decode.py, encode.py and values.py, in Spark's tasks.
"""

import ctypes
import os
from collections.abc import Sequence
from ctypes import Structure, c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.model.limits import HEADERS_PER_RECORD_MAX
from millpond.pipeline.varints import Bytes, Mask, Numbers
from millpond.protocol.records import BatchHeader
from millpond.protocol.records.kernel import RECORD_BYTES_MIN

LIBRARY: Final = Path(__file__).with_name("libkernel.so")
PURE: Final = "MILLPOND_PURE"
INTERFACE: Final = 3
"""What kernel.c says of itself; a library that was built of another one is not used."""
CONTENT_BYTES_MAX: Final = 2**31 - 1
"""Arrow counts the bytes of a column with 32 bits."""
FIELDS_MAX: Final = 32
OFFSET_MAX: Final = 2**63 - 1
RECORD_BYTES_EXTRA: Final = 24
"""What a record has besides key, value and headers is at most this: lengths, its place in the batch, two zeros."""
_HEADER_BYTES_MIN: Final = 2
_ENTRY_BYTES_MIN: Final = 5


class _Batch(Structure):
    _fields_ = (
        ("data", c_void_p),
        *((name, c_int64) for name in ("size", "count", "base_offset", "last_offset_delta", "base_timestamp")),
        ("append_time", c_int64),
        ("has_append_time", c_int64),
    )


class _Bytes(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("bounds", "bytes", "valid")),
        ("used", c_int64),
        ("nulls", c_int64),
    )


class _Columns(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("offsets", "micros", "kinds", "header_bounds", "header_valid")),
        *((name, c_int64) for name in ("header_count", "header_nulls", "headers_max")),
        *((name, _Bytes) for name in ("key", "value", "header_name", "header_value")),
    )


class _Field(Structure):
    _fields_ = (
        ("name", c_char_p),
        *((name, c_int64) for name in ("name_size", "kind", "least", "most")),
        ("numbers", c_void_p),
        *((name, _Bytes) for name in ("text", "entry_key", "entry_value")),
        ("entries", c_int64),
    )


class _Cells(Structure):
    _fields_ = (*((name, c_void_p) for name in ("bounds", "bytes", "valid")), ("first", c_int64))


def address(array: Any) -> int:  # noqa: ANN401 - an array of whatever type
    found: int = array.ctypes.data
    return found


def empty(count: int, kind: Any) -> Any:  # noqa: ANN401 - as numpy's own
    """Arrow's own memory: it keeps what was freed, where numpy's goes back to the system and comes page by page."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


class Room:
    """For a column of bytes: so many rows, and so many bytes in all of them together."""

    def __init__(self, rows: int, size: int) -> None:
        self.bounds = empty(rows + 1, np.int32)
        self.bounds[0] = 0
        self.bytes = empty(size, np.uint8)
        self.valid = np.zeros((rows + 7) // 8, np.uint8)

    def lend(self, column: Any) -> None:  # noqa: ANN401 - a field of a Structure
        column.bounds, column.bytes, column.valid = map(address, (self.bounds, self.bytes, self.valid))

    def array(self, kind: pa.DataType, rows: int, used: int, *, is_whole: bool = False) -> pa.Array:
        valid = None if is_whole else pa.py_buffer(self.valid)
        buffers = [valid, pa.py_buffer(self.bounds[: rows + 1]), pa.py_buffer(self.bytes[:used])]
        return pa.Array.from_buffers(kind, rows, buffers, 0 if is_whole else -1)

    def taken(self, told: Any, rows: int) -> pa.Array:  # noqa: ANN401 - a field of a Structure
        return self.array(pa.binary(), rows, told.used, is_whole=not told.nulls)


class HeaderColumns(NamedTuple):
    bounds: Any
    valid: Bytes
    null_count: int
    names: pa.Array
    values: pa.Array


class Decoded(NamedTuple):
    rows: int
    offsets: Numbers
    micros: Numbers
    kinds: Any
    key: pa.Array | None
    value: pa.Array | None
    headers: HeaderColumns | None


class Kernel:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._decode = library.millpond_decode
        self._decode.argtypes = (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)
        self._decode.restype = c_int64
        self._measure = library.millpond_measure
        self._measure.argtypes = (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p, c_void_p)
        self._measure.restype = c_int64
        self._decode_log = library.millpond_decode_log
        self._decode_log.argtypes = (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)
        self._decode_log.restype = c_int64
        library.millpond_has_crc.restype = c_int32
        self._has_crc = bool(library.millpond_has_crc())
        self._json = library.millpond_json
        self._json.argtypes = (c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p)
        self._json.restype = c_int64
        self._encode = library.millpond_encode
        self._encode.argtypes = (c_void_p, c_void_p, c_void_p, c_int64, c_void_p)
        self._encode.restype = c_int64

    def decode(
        self,
        batches: Sequence[tuple[BatchHeader, Bytes]],
        *,
        columns: tuple[str, ...],
        start: int,
        end: int | None,
    ) -> Decoded | None:
        """The records of batches, whose content is inflated; None where something about them is unusual."""
        size = sum(len(data) for _, data in batches)
        rows = sum(header.record_count for header, _ in batches)
        # No memory is set aside for a claim: a batch has no more records than there is room for in its bytes.
        if size > CONTENT_BYTES_MAX or any(
            len(data) < header.record_count * RECORD_BYTES_MIN for header, data in batches
        ):
            return None
        told = (_Batch * len(batches))(*(_Batch(*_told(header, data)) for header, data in batches))
        room = _RecordRoom(rows, size, columns)
        until = OFFSET_MAX if end is None else end
        found = self._decode(ctypes.addressof(told), len(told), start, until, HEADERS_PER_RECORD_MAX, room.lent)
        return None if found < 0 else room.taken(found)

    def decode_log(
        self, data: Bytes, *, columns: tuple[str, ...], start: int, end: int | None, bytes_max: int
    ) -> tuple[int, Decoded] | None:
        """Of batches as they came, checked here: those at the start of `data`, as many as have `bytes_max` of content.

        How many bytes they are, and their records. None where one is compressed, damaged, or unusual.
        """
        if not self._has_crc:
            return None
        until = OFFSET_MAX if end is None else end
        size, rows = c_int64(), c_int64()
        place = self._measure(
            address(data), len(data), start, until, bytes_max, ctypes.addressof(size), ctypes.addressof(rows)
        )
        if place < 0 or size.value > CONTENT_BYTES_MAX:
            return None
        room = _RecordRoom(rows.value, size.value, columns)
        found = self._decode_log(address(data), place, start, until, HEADERS_PER_RECORD_MAX, room.lent)
        return None if found < 0 else (place, room.taken(found))

    def encode(self, keys: pa.Array, values: pa.Array, tails: pa.Array | None) -> bytes:
        """The records of a batch; tails are header counts and headers as they are on the wire, None where all are 0."""
        told = [None if each is None else _cells(each) for each in (keys, values, tails)]
        size = sum(each[1] for each in told if each is not None) + len(values) * RECORD_BYTES_EXTRA
        room = np.empty(size, np.uint8)
        places = [None if each is None else ctypes.addressof(each[0]) for each in told]
        return room[: self._encode(*places, len(values), address(room))].tobytes()

    def json(self, values: pa.Array, fields: Sequence["Field"]) -> tuple[list[pa.Array], Numbers]:
        """The fields of values that are objects, and the rows that it could not read that way: all null in them."""
        rows = len(values)
        _, bounds, content = values.buffers()
        if content is None:  # all are null, or empty
            content = pa.py_buffer(b"")
        places = np.frombuffer(bounds, np.int32)[values.offset : values.offset + rows + 1]
        valid: Mask = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        rooms = [_FieldRoom(field, rows, int(places[-1] - places[0])) for field in fields]
        told = (_Field * len(rooms))()
        for room, each in zip(rooms, told, strict=True):
            room.lend(each)
        marks, left = np.empty(4 * len(rooms), np.int64), np.empty(rows, np.int64)
        lent = ctypes.addressof(told)
        count = self._json(
            content.address, address(places), address(valid), rows, lent, len(told), address(marks), address(left)
        )
        return [room.taken(each) for room, each in zip(rooms, told, strict=True)], left[:count]


class _RecordRoom:
    """For the columns of so many records, whose content has so many bytes."""

    def __init__(self, rows: int, size: int, columns: tuple[str, ...]) -> None:
        self._offsets, self._micros = empty(rows, np.int64), empty(rows, np.int64)
        self._kinds = empty(rows, np.int32)
        self._columns = _Columns(
            offsets=address(self._offsets), micros=address(self._micros), kinds=address(self._kinds)
        )
        self._key, self._value = (Room(rows, size) if name in columns else None for name in ("key", "value"))
        self._headers = _HeaderRoom(rows, size) if "headers" in columns else None
        if self._key is not None:
            self._key.lend(self._columns.key)
        if self._value is not None:
            self._value.lend(self._columns.value)
        if self._headers is not None:
            self._headers.lend(self._columns)

    @property
    def lent(self) -> int:
        """Where the kernel finds all of it, as long as this is held."""
        return ctypes.addressof(self._columns)

    def taken(self, rows: int) -> Decoded:
        told = self._columns
        return Decoded(
            rows,
            self._offsets[:rows],
            self._micros[:rows],
            self._kinds[:rows],
            None if self._key is None else self._key.taken(told.key, rows),
            None if self._value is None else self._value.taken(told.value, rows),
            None if self._headers is None else self._headers.taken(told, rows),
        )


class _HeaderRoom:
    def __init__(self, rows: int, size: int) -> None:
        self.headers_max = size // _HEADER_BYTES_MIN + 1
        self.bounds = np.zeros(rows + 1, np.int32)
        self.valid = np.zeros((rows + 7) // 8, np.uint8)
        self.names = Room(self.headers_max, size)
        self.values = Room(self.headers_max, size)

    def lend(self, columns: Any) -> None:  # noqa: ANN401 - a Structure
        columns.header_bounds, columns.header_valid = address(self.bounds), address(self.valid)
        columns.headers_max = self.headers_max
        self.names.lend(columns.header_name)
        self.values.lend(columns.header_value)

    def taken(self, columns: Any, rows: int) -> HeaderColumns:  # noqa: ANN401 - a Structure
        count = columns.header_count
        return HeaderColumns(
            self.bounds[: rows + 1],
            self.valid,
            columns.header_nulls,
            self.names.array(pa.binary(), count, columns.header_name.used, is_whole=True),
            self.values.array(pa.binary(), count, columns.header_value.used, is_whole=not columns.header_value.nulls),
        )


def _told(header: BatchHeader, data: Bytes) -> tuple[int, ...]:
    return (
        address(data),
        len(data),
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        int(header.is_log_append_time),
    )


def _cells(array: pa.Array) -> tuple[_Cells, int]:
    """A column of bytes, lent as long as the array is held; and how many bytes it has."""
    valid, bounds, content = array.buffers()
    places = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
    told = _Cells(
        address(places),
        None if content is None else content.address,
        None if valid is None else valid.address,
        array.offset,
    )
    return told, int(places[-1] - places[0])


# JSON


class Kind(NamedTuple):
    """How the kernel reads a field, with the least and the most that a whole number may be."""

    number: int
    least: int = 0
    most: int = 0


STRING: Final = Kind(0)
FLOAT: Final = Kind(1)
BOOLEAN: Final = Kind(3)
MAP: Final = Kind(5)


def whole(bits: int) -> Kind:
    return Kind(2, -(1 << bits), (1 << bits) - 1)


def moment(ms_max: int) -> Kind:
    return Kind(4, -ms_max, ms_max)


class Field(NamedTuple):
    name: bytes
    kind: Kind
    type_: pa.DataType


class _FieldRoom:
    def __init__(self, field: Field, rows: int, size: int) -> None:
        self._field = field
        self._rows = rows
        kind = field.kind
        self._text = Room(rows, size if kind == STRING else 0)
        self._numbers = np.zeros(0 if kind in (STRING, MAP) else rows, np.int64)
        entries_max, size = (size // _ENTRY_BYTES_MIN + 1, size) if kind == MAP else (0, 0)
        self._keys, self._values = Room(entries_max, size), Room(entries_max, size)

    def lend(self, told: Any) -> None:  # noqa: ANN401 - a Structure
        name, kind, _ = self._field
        told.name, told.name_size = name, len(name)
        told.kind, told.least, told.most = kind
        told.numbers = address(self._numbers)
        self._text.lend(told.text)
        self._keys.lend(told.entry_key)
        self._values.lend(told.entry_value)

    def taken(self, told: Any) -> pa.Array:  # noqa: ANN401 - a Structure
        rows, (_, kind, type_) = self._rows, self._field
        valid = pa.py_buffer(self._text.valid)
        if kind == STRING:
            return self._text.array(type_, rows, told.text.used)
        if kind == MAP:
            keys = self._keys.array(pa.string(), told.entries, told.entry_key.used, is_whole=True)
            values = self._values.array(pa.string(), told.entries, told.entry_value.used, is_whole=True)
            pairs = pa.StructArray.from_arrays([keys, values], fields=[type_.key_field, type_.item_field])
            return pa.Array.from_buffers(type_, rows, [valid, pa.py_buffer(self._text.bounds)], children=[pairs])
        read_as = pa.int64() if pa.types.is_integer(type_) else type_
        return pa.Array.from_buffers(read_as, rows, [valid, pa.py_buffer(self._numbers)]).cast(type_)


def load() -> Kernel | None:
    if os.environ.get(PURE, "0") not in ("", "0"):
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.millpond_interface.restype = c_int32
        return Kernel(library) if library.millpond_interface() == INTERFACE else None
    except (OSError, AttributeError):  # it was not built, for another machine, or of something else
        return None


KERNEL: Final = load()
