"""What a log says of delayed messages: control batches that consumers skip, and batches of messages that came due.

A control batch holds one record. Its key has Kafka's form, so that every client knows it for a control record, and a
type of our own, so that none makes anything of it:

    key    i16 0, i16 type     19713 parked, 19714 carried, 19715 cancelled, 19716 rescheduled, 19717 checkpoint,
                               19718 put aside

    value  parked       u8 1, i64 now, i32 n, n * i64 due, the producer's batch as it was sent
           carried      u8 1, i32 n, n * i64 id, n * i64 due, a batch of these n records
           cancelled    u8 1, i32 n, n * i64 id
           rescheduled  u8 1, i32 n, n * i64 id, n * i64 due
           checkpoint   u8 1, i32 part, i32 parts, i32 n, n * i64 id, n * i64 due, n * i64 place
           put aside    u8 1, u32 checksum, i32 n, n * i64 id, n * i64 due, a batch of these n records

All big-endian. An id is the offset that the producer was told. A due moment is milliseconds since 1970, negative for
a schedule that goes on. A place is the offset of the control batch that holds the record now.

A parked batch covers as many offsets as it has records, and keeps its producer's id, epoch and sequence: so a batch
that is sent again is known again. The others cover one offset.

Of a batch that asks for a delay of some of its records only, these are put aside. What is left of it comes right behind
that note, as a batch that lacks them: it covers all offsets of the producer's, and keeps its numbers. A note counts
only if the next batch is the one with that checksum; otherwise the two were not both written, and the producer has not
been answered.

A checkpoint says what waited at its first part; other
batches may lie between its parts, so that nobody waits for it.

A batch of messages that came due is like any other, but for attribute bit 14, which no client may set, and headers that
say which messages they are (delay_headers.py).

Invariant: what is written here is read back the same. Pure. Driven by the broker's delays.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from millpond.core.delivery.delay_headers import headers_told, headers_untold, is_any_told, told
from millpond.model.errors import InvalidRecord
from millpond.model.ids import NO_EPOCH, NO_PRODUCER, Offset, ProducerEpoch, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.model.ports import Buffer
from millpond.protocol.compression import Codec
from millpond.protocol.records import (
    HEADER_BYTES,
    BatchHeader,
    NewRecord,
    Record,
    decode_batch,
    encode_batch,
    kernel,
    parse_header,
)
from millpond.protocol.records.encode import seal
from millpond.protocol.records.header import CONTROL, LOG_APPEND_TIME, MAGIC, MOVED

PARKED, CARRIED, CANCELLED, RESCHEDULED, CHECKPOINT, ASIDE = 19713, 19714, 19715, 19716, 19717, 19718
FORMAT: Final = 1

Numbers: TypeAlias = "array[int]"

_KEY: Final = struct.Struct("!hh")
_CHECKPOINT_KEY: Final = kernel.sized(_KEY.pack(0, CHECKPOINT))
_KEY_WITHIN_BYTES: Final = 16
"""Of a control batch's record: what stands before the key is small numbers, but for the record's length."""
_PARKED: Final = struct.Struct("!Bqi")
_COUNTED: Final = struct.Struct("!Bi")
_CHECKPOINT: Final = struct.Struct("!Biii")
_ASIDE: Final = struct.Struct("!BIi")


class Parked(NamedTuple):
    base_offset: Offset
    dues: Numbers
    batch: memoryview
    """As its producer sent it."""


class Carried(NamedTuple):
    place: Offset
    ids: Numbers
    dues: Numbers
    batch: memoryview


class Aside(NamedTuple):
    place: Offset
    ids: Numbers
    dues: Numbers
    batch: memoryview
    rest_checksum: int
    """Of the batch behind it, without which it does not count."""


class Cancelled(NamedTuple):
    ids: Numbers


class Rescheduled(NamedTuple):
    ids: Numbers
    dues: Numbers


class CheckpointPart(NamedTuple):
    part: int
    parts: int
    ids: Numbers
    dues: Numbers
    places: Numbers


class Moved(NamedTuple):
    """Delivered: each message, and when it comes next if it does."""

    messages: list[tuple[int, int | None]]


class Shelved(NamedTuple):
    """One record as its producer sent it, in bytes, and the header of the batch it came in."""

    content: bytes
    batch: BatchHeader

    def sent_at(self, timestamp_delta: int) -> int:
        header = self.batch
        return header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta

    def record(self) -> Record:
        header = self.batch
        return kernel.decode_one(
            self.content,
            0,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
        )


Fact = Parked | Carried | Aside | Cancelled | Rescheduled | CheckpointPart | Moved


# Writing


def parked_batch(batch: Buffer, dues: Iterable[int], *, now: int) -> bytes:
    of = parse_header(batch)
    numbers = array("q", dues)
    value = _PARKED.pack(FORMAT, now, len(numbers)) + _bytes(numbers) + bytes(batch)
    return _control(PARKED, value, now=now, of=of)


def carried_batch(
    records: Sequence[Record], ids: Sequence[int], dues: Sequence[int], *, codec: Codec, now: int
) -> bytes:
    value = _COUNTED.pack(FORMAT, len(ids)) + _columns(ids, dues) + _together(records, codec)
    return _control(CARRIED, value, now=now)


def aside_batch(
    records: Sequence[Record], ids: Sequence[int], dues: Sequence[int], *, rest: BatchHeader, codec: Codec, now: int
) -> bytes:
    """`rest` is of what is left of the producer's batch, as it will be appended next."""
    value = _ASIDE.pack(FORMAT, rest.crc, len(ids)) + _columns(ids, dues) + _together(records, codec)
    return _control(ASIDE, value, now=now)


def _together(records: Sequence[Record], codec: Codec) -> bytes:
    return encode_batch(
        [NewRecord(each.value, each.key, each.timestamp, each.headers) for each in records], codec=codec
    )


def cancelled_batch(ids: Sequence[int], *, now: int) -> bytes:
    return _control(CANCELLED, _COUNTED.pack(FORMAT, len(ids)) + _columns(ids), now=now)


def rescheduled_batch(ids: Sequence[int], dues: Sequence[int], *, now: int) -> bytes:
    return _control(RESCHEDULED, _COUNTED.pack(FORMAT, len(ids)) + _columns(ids, dues), now=now)


def checkpoint_batch(part: CheckpointPart, *, now: int) -> bytes:
    head = _CHECKPOINT.pack(FORMAT, part.part, part.parts, len(part.ids))
    return _control(CHECKPOINT, head + _columns(part.ids, part.dues, part.places), now=now)


def moved_batch(
    messages: Sequence[tuple[int, Shelved, int | None]], *, origin: bytes, codec: Codec, now: int, log_append_time: bool
) -> bytes:
    """Ids, records, and when they come next; `origin` is an id's topic and partition. Their time is now: a record's age
    in a log begins when it can be read, or retention would take it before anybody could.

    Keys, values and headers are laid into it as they are: nothing of them is decoded."""
    records = []
    for delta, (id_, shelved, next_at) in enumerate(messages):
        timestamp_delta, body, count, headers = kernel.split_record(shelved.content)
        if is_any_told(headers):
            count, headers = headers_untold(shelved.record().headers)
        own_count, own = headers_told(b"%b%d" % (origin, id_), shelved.sent_at(timestamp_delta), next_at)
        records.append(kernel.join_record(delta, body, count + own_count, headers + own))
    attributes = MOVED | (LOG_APPEND_TIME if log_append_time else 0)
    return seal(b"".join(records), codec, _header(len(records), attributes=attributes, now=now))


def _control(kind: int, value: bytes, *, now: int, of: BatchHeader | None = None) -> bytes:
    """In the place of the batch `of`: as many offsets, the same producer."""
    record = NewRecord(value, _KEY.pack(0, kind), TimestampMs(now))
    header = _header(1, attributes=CONTROL, now=now)
    if of is not None:
        header = header._replace(
            last_offset_delta=of.last_offset_delta,
            producer_id=of.producer_id,
            producer_epoch=of.producer_epoch,
            base_sequence=of.base_sequence,
        )
    return seal(kernel.encode_new([record], base_timestamp=TimestampMs(now)), Codec.NONE, header)


def _header(count: int, *, attributes: int, now: int) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(0),
        length=0,
        leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=TimestampMs(now),
        max_timestamp=TimestampMs(now),
        producer_id=NO_PRODUCER,
        producer_epoch=ProducerEpoch(-1),
        base_sequence=SequenceNumber(-1),
        record_count=count,
    )


# Reading


def fact_of(buffer: Buffer, position: int, header: BatchHeader) -> Fact | None:
    """What a batch says of delays; None where that is nothing."""
    if header.attributes & MOVED:
        return Moved([told(record.headers) for record in decode_batch(buffer, position)])
    if not header.is_control or not header.record_count:
        return None
    record = decode_batch(buffer, position)[0]
    if record.key is None or record.value is None or len(record.key) < _KEY.size:
        return None
    version, kind = _KEY.unpack_from(record.key)
    if version != 0 or not PARKED <= kind <= ASIDE:
        return None
    if record.value[0] != FORMAT:
        raise InvalidRecord(f"a note on delays at offset {record.offset} has format {record.value[0]}, not {FORMAT}")
    return _fact(kind, record.offset, memoryview(record.value))


def _fact(kind: int, offset: Offset, value: memoryview) -> Fact:
    if kind == PARKED:
        _, _, count = _PARKED.unpack_from(value)
        (dues,), rest = _numbers(value[_PARKED.size :], count, 1)
        return Parked(offset, dues, rest)
    if kind == CHECKPOINT:
        _, part, parts, count = _CHECKPOINT.unpack_from(value)
        (ids, dues, places), _ = _numbers(value[_CHECKPOINT.size :], count, 3)
        return CheckpointPart(part, parts, ids, dues, places)
    if kind == ASIDE:
        _, checksum, count = _ASIDE.unpack_from(value)
        (ids, dues), rest = _numbers(value[_ASIDE.size :], count, 2)
        return Aside(offset, ids, dues, rest, checksum)
    _, count = _COUNTED.unpack_from(value)
    columns, rest = _numbers(value[_COUNTED.size :], count, 1 if kind == CANCELLED else 2)
    if kind == CANCELLED:
        return Cancelled(*columns)
    return Rescheduled(*columns) if kind == RESCHEDULED else Carried(offset, columns[0], columns[1], rest)


def is_of_delays(attributes: int) -> bool:
    """By the attributes in its header alone: whether a batch may say something of delays."""
    return attributes & (CONTROL | MOVED) != 0


PlacedPart = tuple[Offset, int, int]
"""A part of a checkpoint: its offset, its number, and how many there are."""


def may_be_checkpoint(buffer: Buffer, position: int) -> bool:
    """Whether a control batch is a part of a checkpoint; a few others may pass for one."""
    begin = position + HEADER_BYTES
    return _CHECKPOINT_KEY in bytes(buffer[begin : begin + _KEY_WITHIN_BYTES])


def last_whole(parts: Iterable[PlacedPart]) -> Offset | None:
    """Where the last checkpoint begins of which all parts are there, one after another."""
    found: Offset | None = None
    begin, expected = Offset(0), -1
    for offset, part, count in parts:
        if part == 0:
            begin, expected = offset, 0
        expected = expected + 1 if part == expected else -1
        if expected == count:
            found = begin
    return found


def _columns(*columns: Sequence[int]) -> bytes:
    return b"".join(_bytes(array("q", column)) for column in columns)


def _bytes(numbers: Numbers) -> bytes:
    if sys.byteorder == "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(data: memoryview, count: int, columns: int) -> tuple[list[Numbers], memoryview]:
    """So many columns of numbers, and what follows them."""
    size = 8 * count
    found = []
    for column in range(columns):
        numbers = array("q")
        numbers.frombytes(data[column * size : (column + 1) * size])
        if sys.byteorder == "little":
            numbers.byteswap()
        found.append(numbers)
    return found, data[columns * size :]
