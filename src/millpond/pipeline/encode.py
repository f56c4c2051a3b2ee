"""Arrow columns to record batches: the counterpart of decode.py, column by column as well.

The compiled kernel does it where there is one (kernel.py). Where there is none, what stands before, between and behind
key and value of a record is laid out of all records at once; then Arrow takes head, key, middle, value and tail in
turn, and what it copies together are the records of a batch.

Invariant: `encode_rows` writes the bytes that `encode_batch` would write of the same records.
Pure: the time is an argument. Driven by sink.py and tokens.py.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.errors import InvalidRecord
from millpond.model.ids import NO_EPOCH, NO_PRODUCER, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import RECORDS_PER_BATCH_MAX
from millpond.pipeline.columns import HEADER
from millpond.pipeline.kernel import KERNEL, RECORD_BYTES_EXTRA
from millpond.pipeline.varints import Bytes, Mask, Numbers, lay_out, widths
from millpond.protocol.compression import Codec
from millpond.protocol.records import BatchHeader
from millpond.protocol.records.encode import FIRST_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, seal
from millpond.protocol.records.header import MAGIC

_NULL_LENGTH: Final = -1


class Origin(NamedTuple):
    """Who sends a batch, and the number of its first record."""

    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: Sequence = NO_SEQUENCE


NOBODY: Final = Origin()


def lengths_of(array: pa.Array) -> Numbers:
    """-1 where it is null."""
    lengths = pc.binary_length(array).fill_null(_NULL_LENGTH)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def encode_rows(
    keys: pa.Array,
    values: pa.Array,
    headers: pa.Array | None,
    *,
    timestamp: TimestampMs,
    codec: Codec,
    origin: Origin = NOBODY,
) -> bytes:
    """One batch of these rows, in their order; all have the one time. At least one row."""
    count = len(values)
    tails = None if headers is None or not len(headers.flatten()) else _tails(headers)
    return seal(
        _records(keys, values, tails) if KERNEL is None else KERNEL.encode(keys, values, tails),
        codec,
        BatchHeader(
            base_offset=FIRST_OFFSET,
            length=0,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=origin.producer_id,
            producer_epoch=origin.producer_epoch,
            base_sequence=origin.base_sequence,
            record_count=count,
        ),
    )


def _records(keys: pa.Array, values: pa.Array, tails: pa.Array | None) -> bytes:
    count = len(values)
    if tails is None:
        tails = _binary(np.zeros(count, np.uint8), np.ones(count, np.int64))
    heads, middles = _around(lengths_of(keys), lengths_of(values), lengths_of(tails))
    parts = [heads, keys.fill_null(b""), middles, values.fill_null(b""), tails]
    turn = (np.arange(count)[:, None] + count * np.arange(len(parts))[None, :]).ravel()
    together = pa.concat_arrays(parts).take(pa.array(turn))
    content = together.buffers()[2]
    found: bytes = b"" if content is None else content.to_pybytes()[: int(_ends(together)[-1])]
    return found


def _ends(array: pa.Array) -> Any:  # noqa: ANN401 - an array of numbers
    return np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1]


def _around(key_lengths: Numbers, value_lengths: Numbers, tail_sizes: Numbers) -> tuple[pa.Array, pa.Array]:
    """What stands before each key, and between it and the value."""
    deltas = np.arange(len(key_lengths), dtype=np.int64)
    # Two fields are a single byte here: attributes and timestamp delta.
    sizes = (
        2
        + widths(deltas)
        + widths(key_lengths)
        + np.maximum(key_lengths, 0)
        + widths(value_lengths)
        + np.maximum(value_lengths, 0)
        + tail_sizes
    )
    zeros = np.zeros(len(deltas), np.int64)
    return _joined([sizes, zeros, zeros, deltas, key_lengths]), _joined([value_lengths])


def _joined(numbers: list[Numbers]) -> pa.Array:
    """As varints, those of one row behind each other."""
    laid = [lay_out(each) for each in numbers]
    rows: Bytes = np.concatenate([each for each, _ in laid], axis=1)
    mine: Mask = np.concatenate([each for _, each in laid], axis=1)
    return _binary(rows[mine], mine.sum(axis=1))


def _binary(data: Bytes, sizes: Numbers) -> pa.Array:
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    return pa.BinaryArray.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _tails(headers: pa.Array) -> pa.Array:
    """Header count and headers of each row."""
    count = len(headers)
    counts = np.asarray(pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    pairs = headers.flatten()
    names, values = pairs.field("key").cast(pa.binary()), pairs.field("value")
    parts = [
        _joined([counts]),
        _joined([lengths_of(names)]),
        names,
        _joined([lengths_of(values)]),
        values.fill_null(b""),
    ]
    total = len(pairs)
    starts = np.cumsum(counts) - counts
    # The count of each row, then four pieces for each of its headers.
    turn = np.empty(count + 4 * total, np.int64)
    count_places = np.arange(count) + 4 * starts
    is_count = np.zeros(len(turn), np.bool_)
    is_count[count_places] = True
    turn[is_count] = np.arange(count)
    pieces = count + np.arange(total)[:, None] + total * np.arange(4)[None, :]
    turn[~is_count] = pieces.ravel()
    together = pa.concat_arrays(parts).take(pa.array(turn))
    ends = _ends(together)
    bounds = ends[np.append(count_places, len(turn))]
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(np.ascontiguousarray(bounds)), together.buffers()[2]]
    )


def row_sizes(keys: pa.Array, values: pa.Array, headers: pa.Array | None) -> Numbers:
    """A little more than they take."""
    sizes = np.maximum(lengths_of(keys), 0) + np.maximum(lengths_of(values), 0)
    if headers is None:
        return sizes
    pairs = headers.flatten()
    each = np.maximum(lengths_of(pairs.field("key").cast(pa.binary())), 0)
    each = each + np.maximum(lengths_of(pairs.field("value")), 0) + 10
    rows = headers.value_parent_indices().to_numpy(zero_copy_only=False)
    return sizes + np.bincount(rows, weights=each, minlength=len(values)).astype(np.int64)


def cut_by_size(sizes: Numbers, *, bytes_max: int) -> Iterator[slice]:
    """Rows in a row that fit in a batch together; a row that is larger has one alone."""
    ends = np.cumsum(sizes + RECORD_BYTES_EXTRA)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        stop = min(stop, start + RECORDS_PER_BATCH_MAX)
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])


def check_headers(headers: pa.Array) -> pa.Array:
    """As `HEADER` has them, each with a name."""
    cast = headers.cast(pa.list_(HEADER))
    if cast.flatten().field("key").null_count:
        raise InvalidRecord("a header has no name; it may be empty, but not null")
    return cast
