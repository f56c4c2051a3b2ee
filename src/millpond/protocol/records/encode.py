"""Records to a record batch, compressed and with its checksum.

Invariant: what is written here, `check_batch` and `decode_batch` take; what would break one of their bounds is refused.
Pure: timestamps are arguments. Driven by the producing doors, by compaction, and by tests.
"""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from millpond.model.errors import BatchTooLarge, InvalidRecord
from millpond.model.ids import (
    NO_EPOCH,
    NO_PRODUCER,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from millpond.model.ids import Sequence as SequenceNumber
from millpond.model.limits import INFLATED_BYTES_MAX, RECORDS_PER_BATCH_MAX
from millpond.protocol.compression import Codec, compress
from millpond.protocol.records import kernel
from millpond.protocol.records.header import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LENGTH_MAX,
    LENGTH_MIN,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from millpond.protocol.records.record import NewRecord, Record

NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = SequenceNumber(-1)
FIRST_OFFSET: Final = Offset(0)

_BEFORE_CHECKSUM: Final = struct.Struct("!qiibI")
_UNDER_CHECKSUM: Final = struct.Struct("!hiqqqhii")


def encode_values(
    values: Sequence[bytes],
    *,
    timestamp: TimestampMs,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: SequenceNumber = NO_SEQUENCE,
) -> bytes:
    """A batch of records that have a value and nothing else, all of one time: the fast way, for bulk."""
    _check_count(len(values))
    _check_times((), base_timestamp=timestamp)
    return seal(
        kernel.encode_values(values),
        codec,
        BatchHeader(
            base_offset=base_offset,
            length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=len(values) - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(values),
        ),
    )


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: SequenceNumber = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch of new records, the first at `base_offset` and the others after it without gaps."""
    _check_count(len(records))
    timestamps = [record.timestamp for record in records]
    _check_times(timestamps, base_timestamp=timestamps[0])
    return seal(
        kernel.encode_new(records, base_timestamp=timestamps[0]),
        codec,
        BatchHeader(
            base_offset=base_offset,
            length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=(TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
            last_offset_delta=len(records) - 1,
            base_timestamp=timestamps[0],
            max_timestamp=max(timestamps),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
    )


def encode_survivors(
    records: Sequence[Record],
    *,
    of: BatchHeader,
    codec: Codec | None = None,
    delete_horizon: TimestampMs | None = None,
) -> bytes:
    """What compaction kept of the batch `of`: these records, at the offsets and times they have, perhaps none.

    The batch still covers the offsets it did, and is still its producer's: base and last offset, leader epoch, the
    producer's three numbers and all attributes stay. `codec` changes the codec; `delete_horizon` is the time from
    which tombstones and markers in the batch may go, and stays once set.
    """
    attributes = of.attributes
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon
    elif of.has_delete_horizon or not records:
        base_timestamp = of.base_timestamp
    else:
        base_timestamp = records[0].timestamp
    _check_survivors(records, of)
    timestamps = [record.timestamp for record in records]
    _check_times(timestamps, base_timestamp=base_timestamp)
    if not records:
        codec = Codec.NONE  # nothing to pack, and nothing for a reader to unpack
    return seal(
        kernel.encode_placed(records, base_offset=of.base_offset, base_timestamp=base_timestamp),
        of.codec if codec is None else codec,
        of._replace(
            attributes=attributes & ~CODEC_MASK,
            base_timestamp=base_timestamp,
            max_timestamp=of.max_timestamp if of.is_log_append_time or not records else max(timestamps),
            record_count=len(records),
        ),
    )


def empty_batch(of: BatchHeader) -> bytes:
    """A batch without records in the place of one, so that its offsets stay taken and its producer remembered."""
    return encode_survivors((), of=of)


def _check_count(count: int) -> None:
    if count < 1:
        raise InvalidRecord("a batch of 0 records; a new batch has at least 1")
    if count > RECORDS_PER_BATCH_MAX:
        raise BatchTooLarge(f"a batch of {count} records; at most {RECORDS_PER_BATCH_MAX} are taken, send several")


def _check_times(timestamps: Sequence[TimestampMs], *, base_timestamp: TimestampMs) -> None:
    distance_max = kernel.TIMESTAMP_DISTANCE_MAX
    extremes = (min(timestamps), max(timestamps)) if timestamps else ()
    if abs(base_timestamp) > distance_max or any(abs(time - base_timestamp) > distance_max for time in extremes):
        raise InvalidRecord(
            f"timestamps {extremes} from base {base_timestamp}; neither base nor distance may pass {distance_max} ms"
        )


def _check_survivors(records: Sequence[Record], of: BatchHeader) -> None:
    """Survivors come from the batch they are said to come from; if not, the caller is broken, not its peer."""
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), "survivors must rise in offset"
    assert not offsets or of.base_offset <= offsets[0] <= offsets[-1] <= of.last_offset, "a survivor of another batch"


def seal(records: bytes, codec: Codec, header: BatchHeader) -> bytes:
    """The batch that `header` describes, apart from its codec bits, length and checksum, which are filled in here."""
    if len(records) > INFLATED_BYTES_MAX:
        raise BatchTooLarge(
            f"{len(records)} bytes of records; at most {INFLATED_BYTES_MAX} go in a batch, send several"
        )
    content = compress(codec, records)
    length = LENGTH_MIN + len(content)
    if length > LENGTH_MAX:
        raise BatchTooLarge(f"a batch of {length} bytes; at most {LENGTH_MAX} are taken, send several")
    try:
        covered = _UNDER_CHECKSUM.pack(header.attributes | codec, *header[6:])
        crc = crc32c(content, crc32c(covered))
        before = _BEFORE_CHECKSUM.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc)
    except struct.error as error:
        raise InvalidRecord(f"a number of the batch does not fit its field: {error} in {header}") from None
    return b"".join((before, covered, content))
