"""The first 61 bytes of a Kafka record batch, format v2: reading, checking and patching them in place.

    byte  field                  type
       0  baseOffset             i64   offset of the first record           ┐
       8  batchLength            i32   bytes that follow, from byte 12 on   │ outside the checksum, so that
      12  partitionLeaderEpoch   i32   stamped by the leader, -1 = unknown  │ a leader can stamp them
      16  magic                  i8    2                                    │ without reading the records
      17  crc                    u32   CRC-32C of bytes 21 to the end       ┘
      21  attributes             i16   bits 0-2  codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
                                       bit 3     timestamp type: 0 set by the producer, 1 by the log on append
                                       bit 4     part of a transaction
                                       bit 5     control batch: written by the broker, not by a user
                                       bit 6     baseTimestamp is a delete horizon, set by compaction
                                       bit 14    ours: delayed messages that came due, moved here by the leader
                                       bits 7-13, 15 unused, ignored
      23  lastOffsetDelta        i32   last offset of the batch, minus baseOffset
      27  baseTimestamp          i64   what the records' timestamp deltas count from, or the delete horizon
      35  maxTimestamp           i64   largest timestamp in the batch, or the append time
      43  producerId             i64   -1 = not idempotent
      51  producerEpoch          i16
      53  baseSequence           i32   sequence of the first record
      57  recordsCount           i32   at most lastOffsetDelta + 1; less where compaction took some out, even 0
      61  records                      see kernel.py; compressed as a whole where a codec is set

All numbers are big-endian.

Invariant: a header that `check_batch` returned describes bytes that lie within the buffer and fit their checksum.
Pure, and copies no large batch. Driven by produce and fetch for each batch, and by the log on recovery.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from millpond.model.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    MalformedBatch,
    UnsupportedCompression,
    UnsupportedMagic,
)
from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from millpond.model.ports import Buffer
from millpond.protocol.compression import Codec
from millpond.protocol.records.kernel import RECORD_BYTES_MIN

HEADER: Final = struct.Struct("!qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LENGTH_END: Final = 12
"""Bytes before batchLength starts counting."""
LENGTH_MIN: Final = HEADER_BYTES - LENGTH_END
LENGTH_MAX: Final = BATCH_BYTES_MAX - LENGTH_END
MAGIC: Final = 2

LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_START: Final = 21
"""First byte the checksum covers; it covers all from here to the end of the batch."""
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43

CODEC_MASK: Final = 0b0000_0111
LOG_APPEND_TIME: Final = 0b0000_1000
TRANSACTIONAL: Final = 0b0001_0000
CONTROL: Final = 0b0010_0000
DELETE_HORIZON: Final = 0b0100_0000
MOVED: Final = 1 << 14
_NOT_PRODUCED: Final = CONTROL | DELETE_HORIZON | MOVED

_CODEC_LAST: Final = max(Codec)
_I16: Final = struct.Struct("!h")
_I32: Final = struct.Struct("!i")
_U32: Final = struct.Struct("!I")
_I64: Final = struct.Struct("!q")
_PRODUCER: Final = struct.Struct("!qhi")

_VIEW_BYTES_MIN: Final = 1024
_unpack_from = HEADER.unpack_from
# What NamedTuple's own constructor does, without unpacking thirteen arguments first.
_new_tuple = tuple.__new__

assert HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The fields in wire order, and what they mean."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, this header included."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch's last, whether or not a record still has it."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number > _CODEC_LAST:
            raise UnsupportedCompression(f"compression codec is {number}; there are only 0 to {_CODEC_LAST}")
        return Codec(number)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`; the whole batch must lie within `buffer`. Leaves the checksum alone."""
    if len(buffer) - position < HEADER_BYTES:
        raise _unreadable(buffer, position)
    header = _new_tuple(BatchHeader, _unpack_from(buffer, position))
    length = header[1]
    if length < LENGTH_MIN or length > LENGTH_MAX or position + LENGTH_END + length > len(buffer) or header[3] != MAGIC:
        raise _unreadable(buffer, position)
    return header


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`, and checks the batch's checksum and that the header is possible at all.

    Records are not looked at: `decode_batch` does that. What only a producer must keep to is in `check_produced`.
    """
    # `parse_header` once more, in line: this runs for every batch that comes in.
    if len(buffer) - position < HEADER_BYTES:
        raise _unreadable(buffer, position)
    fields = HEADER.unpack_from(buffer, position)
    _, length, _, magic, crc, attributes, last_offset_delta, _, _, _, _, _, record_count = fields
    end = position + LENGTH_END + length
    if length < LENGTH_MIN or length > LENGTH_MAX or end > len(buffer) or magic != MAGIC:
        raise _unreadable(buffer, position)
    header = tuple.__new__(BatchHeader, fields)
    # To copy a few bytes is quicker than to make a view of them.
    source = buffer if length < _VIEW_BYTES_MIN else memoryview(buffer)
    if crc32c(source[position + CRC_START : end]) != crc:
        raise _corrupt(buffer, position, header)
    if (
        attributes & CODEC_MASK > _CODEC_LAST
        or record_count < 0
        or record_count > RECORDS_PER_BATCH_MAX
        or last_offset_delta < 0
        or record_count > last_offset_delta + 1
        or (not attributes & CODEC_MASK and record_count * RECORD_BYTES_MIN > length - LENGTH_MIN)
    ):
        raise _impossible(header)
    return header


def check_produced(header: BatchHeader) -> None:
    """Checks what a batch from a producer must keep to, beyond `check_batch`.

    Compaction may leave gaps between records and even batches without any; a producer may not send such.
    """
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, producer_epoch, base_sequence, record_count = (
        header
    )
    if (
        record_count < 1
        or last_offset_delta + 1 != record_count
        or attributes & _NOT_PRODUCED
        or (producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0))
        or (producer_id < 0 and attributes & TRANSACTIONAL)
    ):
        raise _not_produced(header)


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and checked header of each batch in a buffer of batches back to back; the last must be whole."""
    position, end = 0, len(buffer)
    while position < end:
        header = check_batch(buffer, position)
        yield position, header
        position += header.length + LENGTH_END


def stamp(buffer: Buffer, *, base_offset: Offset, leader_epoch: LeaderEpoch, position: int = 0) -> None:
    """Gives a batch its place in the log. Both fields lie outside the checksum, which stays true.

    Raises TypeError, and changes nothing, where the buffer cannot be written to.
    """
    _I64.pack_into(buffer, position, base_offset)
    _I32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, *, timestamp: TimestampMs, position: int = 0) -> None:
    """Makes `timestamp` the time of every record in a batch, as topics with log append time want; renews the checksum.

    baseTimestamp stays, and with it what the producer had set: the deltas in the records still count from it.
    """
    header = parse_header(buffer, position)
    _I16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _I64.pack_into(buffer, position + MAX_TIMESTAMP_AT, timestamp)
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + header.size])
    _U32.pack_into(buffer, position + CRC_AT, crc)


def stamp_producer(
    buffer: bytearray | memoryview, *, producer_id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence
) -> None:
    """Makes the batch at the start of `buffer` another one of an idempotent producer; renews the checksum."""
    header = parse_header(buffer, 0)
    _PRODUCER.pack_into(buffer, PRODUCER_AT, producer_id, epoch, base_sequence)
    _U32.pack_into(buffer, CRC_AT, crc32c(memoryview(buffer)[CRC_START : header.size]))


def _unreadable(buffer: Buffer, position: int) -> MalformedBatch | BatchTooLarge | UnsupportedMagic:
    """Why the bytes at `position` are no batch. Apart, so that the usual way through stays short."""
    left = len(buffer) - position
    # Magic has been at byte 16 since v0, and old batches can be shorter than our header: name the true reason.
    if left > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        (magic,) = struct.unpack_from("!b", buffer, position + MAGIC_AT)
        return UnsupportedMagic(
            f"magic of the batch at byte {position} is {magic}; only format v2 (magic {MAGIC}) is taken, "
            "which every Kafka client since 0.11 writes"
        )
    if left < HEADER_BYTES:
        return MalformedBatch(f"{left} bytes at byte {position}; a batch header alone has {HEADER_BYTES}")
    (length,) = _I32.unpack_from(buffer, position + 8)
    if length > LENGTH_MAX:
        return BatchTooLarge(
            f"batchLength at byte {position} is {length}; at most {LENGTH_MAX} is taken, send smaller batches"
        )
    return MalformedBatch(
        f"batchLength at byte {position} is {length}; here it can be {LENGTH_MIN} to {left - LENGTH_END}, "
        "or the batch is cut short"
    )


def _corrupt(buffer: Buffer, position: int, header: BatchHeader) -> CorruptBatch:
    computed = crc32c(memoryview(buffer)[position + CRC_START : position + header.size])
    return CorruptBatch(
        f"checksum of the batch at byte {position} is {header.crc:#010x}, but its bytes give {computed:#010x}"
    )


def _impossible(header: BatchHeader) -> InvalidRecord | UnsupportedCompression | BatchTooLarge:
    """Why a header with the right checksum still cannot be."""
    codec, count, last_delta = header.attributes & CODEC_MASK, header.record_count, header.last_offset_delta
    if codec > _CODEC_LAST:
        return UnsupportedCompression(f"compression codec is {codec}; there are only 0 to {_CODEC_LAST}")
    if count > RECORDS_PER_BATCH_MAX:
        return BatchTooLarge(f"recordsCount is {count}; at most {RECORDS_PER_BATCH_MAX} are taken in one batch")
    if last_delta < 0:
        return InvalidRecord(f"lastOffsetDelta is {last_delta}; it is at least 0")
    if count < 0 or count > last_delta + 1:
        return InvalidRecord(f"recordsCount is {count}; with lastOffsetDelta {last_delta} it is 0 to {last_delta + 1}")
    return InvalidRecord(
        f"recordsCount is {count}, but {header.length - LENGTH_MIN} bytes hold at most "
        f"{(header.length - LENGTH_MIN) // RECORD_BYTES_MIN} records"
    )


def _not_produced(header: BatchHeader) -> InvalidRecord:
    """What of the header no producer may say."""
    if header.is_control:
        return InvalidRecord("the batch is a control batch; only the broker writes those, clear attribute bit 5")
    if header.record_count < 1:
        return InvalidRecord(f"recordsCount is {header.record_count}; a produced batch has at least 1 record")
    if header.last_offset_delta + 1 != header.record_count:
        return InvalidRecord(
            f"lastOffsetDelta is {header.last_offset_delta} with {header.record_count} records; "
            f"in a produced batch it is recordsCount - 1, here {header.record_count - 1}"
        )
    if header.has_delete_horizon:
        return InvalidRecord("the batch has a delete horizon; only compaction sets one, clear attribute bit 6")
    if header.attributes & MOVED:
        return InvalidRecord("the batch says that the broker moved it here; clear attribute bit 14")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return InvalidRecord(
            f"producerId is {header.producer_id} with producerEpoch {header.producer_epoch} and baseSequence "
            f"{header.base_sequence}; with a producer id both are at least 0"
        )
    return InvalidRecord(f"a transactional batch has producerId {header.producer_id}; it must be at least 0")
