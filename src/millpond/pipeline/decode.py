"""Record batches to an Arrow record batch, column by column: what a message costs is a few numpy operations' share.

The compiled kernel does it where there is one (kernel.py). Where there is none, and for whatever it leaves alone, it is
found for all records at once where they begin (boundaries.py), and from there on every field is read of all of them at
once. Keys and values are cut out by Arrow: their boundaries, in order, make one array over the bytes as they came, of
which every third element or so is a key or a value, and `take` copies those.

Invariant: `decode_batches` gives exactly the messages that `decode_batch` finds in the same bytes, or raises what it
raises. Whatever looks odd here is left to it. Pure. Driven by reading.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.errors import BatchTooLarge, MalformedBatch
from millpond.model.limits import HEADERS_PER_RECORD_MAX, MIB
from millpond.model.ports import Buffer
from millpond.pipeline.boundaries import records
from millpond.pipeline.columns import HEADER, TIMESTAMP, TYPES, arrow_schema
from millpond.pipeline.kernel import CONTENT_BYTES_MAX, KERNEL, Decoded
from millpond.pipeline.varints import VARLONG_BYTES_MAX, Bytes, Mask, Numbers, Unreadable, read
from millpond.protocol.compression import Codec, decompress
from millpond.protocol.records import HEADER_BYTES, BatchHeader, check_batch, decode_batch, parse_header
from millpond.protocol.records.kernel import TIMESTAMP_DISTANCE_MAX

_MICROSECONDS: Final = 1000
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS


Found = tuple[BatchHeader, Bytes]
"""A batch's header, and its records, inflated."""

PART_BYTES: Final = 32 * MIB
"""A part is as many batches as have so much content, or one: what was compressed well is much when it is inflated."""


def decode_batches(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    columns: tuple[str, ...],
    start: int = 0,
    end: int | None = None,
) -> pa.RecordBatch:
    """The messages of the batches in `data`, back to back, from offset `start` on and before `end`."""
    parts = _decoded(data, _Wanted(topic, partition, columns, start, end), CONTENT_BYTES_MAX)
    found = next(parts, None)
    if found is not None and next(parts, None) is not None:
        raise BatchTooLarge(f"the batches hold more than {CONTENT_BYTES_MAX} bytes; fetch fewer at a time")
    return _empty(columns) if found is None else found


def decode_in_parts(
    data: Buffer, *, topic: str, partition: int, columns: tuple[str, ...], start: int = 0, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The same, in as many record batches as keep each within bounds."""
    return _decoded(data, _Wanted(topic, partition, columns, start, end), PART_BYTES)


class _Wanted(NamedTuple):
    topic: str
    partition: int
    columns: tuple[str, ...]
    start: int
    end: int | None


def _decoded(data: Buffer, wanted: _Wanted, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """By the kernel, all of it at once; from the first batch on that it leaves alone, batch by batch."""
    place = 0
    if KERNEL is not None:
        whole = np.frombuffer(data, np.uint8)
        how: dict[str, Any] = {"columns": wanted.columns, "start": wanted.start, "end": wanted.end}
        while place < len(whole) and (found := KERNEL.decode_log(whole[place:], bytes_max=bytes_max, **how)):
            size, decoded = found
            if not size:  # the next one begins behind the end
                return
            yield _table(decoded, wanted)
            place += size
    rest = memoryview(data)[place:]
    for part in _parts(rest, wanted.start, wanted.end, bytes_max):
        yield _decode(rest, part, wanted)


def _parts(data: Buffer, start: int, end: int | None, bytes_max: int) -> Iterator[list[tuple[int, Found]]]:
    """Batches with something in them that is asked for, each with where it begins in `data`."""
    whole = np.frombuffer(data, np.uint8)
    part: list[tuple[int, Found]] = []
    size = 0
    for place, header in _before(data, end):
        if header.is_control or not header.record_count or header.last_offset < start:
            continue
        content = whole[place + HEADER_BYTES : place + header.size]
        if header.codec is not Codec.NONE:
            content = np.frombuffer(decompress(header.codec, content.data), np.uint8)
        if part and size + len(content) > bytes_max:
            yield part
            part, size = [], 0
        part.append((place, (header, content)))
        size += len(content)
    if part:
        yield part


def _before(data: Buffer, end: int | None) -> Iterator[tuple[int, BatchHeader]]:
    """Where each batch begins, and its header, checked; one that begins behind the end is not looked at."""
    place = 0
    while place < len(data) and (end is None or parse_header(data, place).base_offset < end):
        header = check_batch(data, place)
        yield place, header
        place += header.size


def _decode(data: Buffer, part: list[tuple[int, Found]], wanted: _Wanted) -> pa.RecordBatch:
    batches = [found for _, found in part]
    if KERNEL is not None:
        decoded = KERNEL.decode(batches, columns=wanted.columns, start=wanted.start, end=wanted.end)
        if decoded is not None:
            return _table(decoded, wanted)
    content = _Content.of(data, part)
    try:
        fields = _read_fields(content, with_headers="headers" in wanted.columns)
    except Unreadable:
        raise _reason(data, [place for place, _ in part]) from None
    rows = _rows(fields.offsets, wanted.start, wanted.end)
    return _Table(content, fields, wanted.topic, wanted.partition, rows).record_batch(wanted.columns)


def _table(decoded: Decoded, wanted: _Wanted) -> pa.RecordBatch:
    arrays = [_decoded_column(name, decoded, wanted.topic, wanted.partition) for name in wanted.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _decoded_column(name: str, decoded: Decoded, topic: str, partition: int) -> pa.Array:
    match name:
        case "key":
            return decoded.key
        case "value":
            return decoded.value
        case "topic":
            return pa.repeat(pa.scalar(topic), decoded.rows)
        case "partition":
            return pa.array(np.full(decoded.rows, partition, np.int32))
        case "offset":
            return pa.array(decoded.offsets)
        case "timestamp":
            return pa.array(decoded.micros).view(TIMESTAMP)
        case "timestampType":
            return pa.array(decoded.kinds)
        case _:
            assert name == "headers", name
            assert decoded.headers is not None
            bounds, valid, null_count, names, values = decoded.headers
            pairs = pa.StructArray.from_arrays([_text(names), values], fields=list(HEADER))
            buffers = [pa.py_buffer(valid), pa.py_buffer(bounds)]
            return pa.Array.from_buffers(TYPES["headers"], decoded.rows, buffers, null_count, children=[pairs])


def _empty(columns: tuple[str, ...]) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


def _reason(data: Buffer, places: Sequence[int]) -> Exception:
    """What the usual way has to say of batches that are unreadable here."""
    for place in places:
        try:
            decode_batch(data, place)
        except Exception as error:
            return error
    return MalformedBatch("records that one decoder reads and another does not: please report this, with the batch")


# Bytes, and where records begin in them


@dataclass(frozen=True, slots=True)
class _Content:
    """The records of several batches, inflated, in one array of bytes."""

    data: Bytes
    headers: list[BatchHeader]
    counts: Numbers
    starts: list[int]
    """Of each batch's records in `data`."""
    ends: list[int]

    @classmethod
    def of(cls, data: Buffer, part: Sequence[tuple[int, Found]]) -> "_Content":
        headers = [header for _, (header, _) in part]
        if all(header.codec is Codec.NONE for header in headers):
            whole: Bytes = np.frombuffer(data, np.uint8)
            starts = [place + HEADER_BYTES for place, _ in part]
            ends = [place + header.size for place, (header, _) in part]
        else:
            contents = [content for _, (_, content) in part]
            ends = np.cumsum([len(content) for content in contents]).tolist()
            whole, starts = np.concatenate(contents), [0, *ends[:-1]]
        counts = np.array([header.record_count for header in headers], np.int64)
        return cls(whole, headers, counts, starts, ends)

    def each(self, numbers: Sequence[int]) -> Numbers:
        """A number of each batch, for each of its records."""
        return np.repeat(np.array(numbers, np.int64), self.counts)


# The fields of all records


class _Headers(NamedTuple):
    """Of all records, in order."""

    counts: Numbers
    name_starts: Numbers
    name_ends: Numbers
    value_starts: Numbers
    value_ends: Numbers
    without_value: Mask


class _Fields(NamedTuple):
    timestamps_ms: Numbers
    offsets: Numbers
    key_starts: Numbers
    key_ends: Numbers
    without_key: Mask
    value_starts: Numbers
    value_ends: Numbers
    without_value: Mask
    headers: _Headers | None


def _read_fields(content: _Content, *, with_headers: bool) -> _Fields:
    data = content.data
    place, ends = records(data, content.starts, content.ends, content.counts.tolist())
    deltas_ms, place = read(data, place + 1, bytes_max=VARLONG_BYTES_MAX)
    _check((deltas_ms <= TIMESTAMP_DISTANCE_MAX) & (deltas_ms >= -TIMESTAMP_DISTANCE_MAX - 1))
    deltas, place = read(data, place)
    key_starts, key_ends, without_key = _read_bytes(data, place, ends)
    value_starts, value_ends, without_value = _read_bytes(data, key_ends, ends)
    header_counts, place = read(data, value_ends)
    headers = _read_headers(data, place, ends, header_counts) if with_headers or header_counts.any() else None
    if headers is None:
        _check(place == ends)
    offsets = content.each([header.base_offset for header in content.headers]) + deltas
    _check_offsets(content, deltas)
    return _Fields(
        _timestamps(content, deltas_ms),
        offsets,
        key_starts,
        key_ends,
        without_key,
        value_starts,
        value_ends,
        without_value,
        headers,
    )


def _check(holds: Any) -> None:  # noqa: ANN401 - an array of truths, or one
    if not np.all(holds):
        raise Unreadable


def _read_bytes(data: Bytes, place: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Mask]:
    """Where these fields begin and end, and which of them are null."""
    lengths, starts = read(data, place)
    missing = lengths < 0
    if missing.any():
        _check(lengths >= -1)
        lengths = np.where(missing, 0, lengths)
    stops = starts + lengths
    _check(stops <= ends)
    return starts, stops, missing


def _read_headers(data: Bytes, place: Numbers, ends: Numbers, counts: Numbers) -> _Headers:
    """The first header of all records that have one, then the second of those that have two, and so on."""
    _check((counts >= 0) & (counts <= HEADERS_PER_RECORD_MAX))
    rows: list[Numbers] = []
    found: list[tuple[Any, ...]] = []
    place = place.copy()
    having = np.flatnonzero(counts)
    for number in range(int(counts.max(initial=0))):
        having = having[counts[having] > number]
        limits = ends[having]
        name_starts, name_ends, without_name = _read_bytes(data, place[having], limits)
        _check(~without_name)
        value_starts, value_ends, without_value = _read_bytes(data, name_ends, limits)
        place[having] = value_ends
        rows.append(having)
        found.append((name_starts, name_ends, value_starts, value_ends, without_value))
    _check(place == ends)
    if not rows:
        nothing = np.zeros(0, np.int64)
        return _Headers(counts, nothing, nothing, nothing, nothing, np.zeros(0, np.bool_))
    order = np.argsort(np.concatenate(rows), kind="stable")
    columns = [np.concatenate(each)[order] for each in zip(*found, strict=True)]
    return _Headers(counts, *columns)


def _timestamps(content: _Content, deltas_ms: Numbers) -> Numbers:
    bases = [header.base_timestamp for header in content.headers]
    _check(max(map(abs, bases)) <= TIMESTAMP_DISTANCE_MAX)
    times = content.each(bases) + deltas_ms
    if any(header.is_log_append_time for header in content.headers):
        by_log = content.each([header.is_log_append_time for header in content.headers])
        times = np.where(by_log, content.each([header.max_timestamp for header in content.headers]), times)
    return times


def _check_offsets(content: _Content, deltas: Numbers) -> None:
    """They rise within each batch, and stay within what it covers."""
    _check((deltas >= 0) & (deltas <= content.each([header.last_offset_delta for header in content.headers])))
    rises = np.diff(deltas) > 0
    rises[np.cumsum(content.counts)[:-1] - 1] = True
    _check(rises)


def _rows(offsets: Numbers, start: int, end: int | None) -> slice:
    """Offsets rise within a batch, and from batch to batch in a log."""
    first = 0 if offsets[0] >= start else int(np.searchsorted(offsets, start))
    last = len(offsets) if end is None or offsets[-1] < end else int(np.searchsorted(offsets, end))
    return slice(first, max(first, last))


# Arrow


@dataclass(frozen=True, slots=True)
class _Table:
    content: _Content
    fields: _Fields
    topic: str
    partition: int
    wanted: slice

    def record_batch(self, columns: tuple[str, ...]) -> pa.RecordBatch:
        cut = self._cut(columns)
        arrays = [cut[name] if name in cut else self._column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    def _column(self, name: str) -> pa.Array:
        count = self.wanted.stop - self.wanted.start
        match name:
            case "topic":
                return pa.repeat(pa.scalar(self.topic), count)
            case "partition":
                return pa.array(np.full(count, self.partition, np.int32))
            case "offset":
                return pa.array(self.fields.offsets[self.wanted])
            case "timestamp":
                times = np.clip(self.fields.timestamps_ms[self.wanted], -_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX)
                return pa.array(times * _MICROSECONDS).view(TIMESTAMP)
            case "timestampType":
                kinds = self.content.each([header.is_log_append_time for header in self.content.headers])
                return pa.array(kinds[self.wanted].astype(np.int32))
            case _:
                assert name == "headers", name
                return self._headers()

    def _cut(self, columns: tuple[str, ...]) -> dict[str, pa.Array]:
        """Keys and values, as far as they are asked for."""
        fields, wanted = self.fields, self.wanted
        parts = {
            "key": (fields.key_starts[wanted], fields.key_ends[wanted], fields.without_key[wanted]),
            "value": (fields.value_starts[wanted], fields.value_ends[wanted], fields.without_value[wanted]),
        }
        asked = [name for name in ("key", "value") if name in columns]
        return dict(zip(asked, _pieces(self.content.data, [parts[name] for name in asked]), strict=True))

    def _headers(self) -> pa.Array:
        headers = self.fields.headers
        assert headers is not None
        bounds = np.concatenate(([0], np.cumsum(headers.counts)))
        mine = slice(int(bounds[self.wanted.start]), int(bounds[self.wanted.stop]))
        names, values = _pieces(
            self.content.data,
            [
                (headers.name_starts[mine], headers.name_ends[mine], np.zeros(mine.stop - mine.start, np.bool_)),
                (headers.value_starts[mine], headers.value_ends[mine], headers.without_value[mine]),
            ],
        )
        pairs = pa.StructArray.from_arrays([_text(names), values], fields=list(HEADER))
        places = (bounds[self.wanted.start : self.wanted.stop + 1] - mine.start).astype(np.int32)
        without = pa.array(headers.counts[self.wanted] == 0)
        return pa.ListArray.from_arrays(pa.array(places), pairs, mask=without)


def _text(names: pa.Array) -> pa.Array:
    try:
        return pc.cast(names, pa.string())
    except pa.ArrowInvalid:  # a name that is not UTF-8: Kafka never forbade it, Spark has no string for it
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _pieces(data: Bytes, parts: Sequence[tuple[Numbers, Numbers, Mask]]) -> list[pa.Array]:
    """Arrays of the bytes between starts and ends; the parts of one row lie in order, and rows one after another."""
    count = len(parts[0][0]) if parts else 0
    stride = 2 * len(parts)
    bounds = np.empty(count * stride + 1, np.int32)
    for number, (starts, ends, _) in enumerate(parts):
        bounds[2 * number : -1 : stride] = starts
        bounds[2 * number + 1 : -1 : stride] = ends
    bounds[-1] = bounds[-2] if count else 0
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    cut = []
    for number, (_, _, missing) in enumerate(parts):
        places = np.arange(2 * number, count * stride, stride, dtype=np.int32)
        cut.append(whole.take(pa.array(places, mask=missing if missing.any() else None)))
    return cut
