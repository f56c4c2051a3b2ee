"""A record batch to its records.

Invariant: whatever the bytes, either all records of a batch are returned or an error of our tree is raised, and no
more memory is used than the bytes there, or `inflated_bytes_max`, can justify.
Pure. Driven by readers that need records rather than batches: compaction, the HTTP door, the delivery of queues.
"""

from operator import itemgetter
from typing import Any

from millpond.model.errors import InvalidRecord
from millpond.model.limits import INFLATED_BYTES_MAX
from millpond.model.ports import Buffer
from millpond.protocol.compression import Codec, decompress
from millpond.protocol.records.header import HEADER_BYTES, BatchHeader, check_batch
from millpond.protocol.records.kernel import decode_records, decode_rows
from millpond.protocol.records.record import Record


def decode_batch(buffer: Buffer, position: int = 0, *, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `position`, after its checksum was found right.

    Control records come like any others. A delete horizon needs no care: the deltas count from it, as from any base.
    """
    return decode_records(decode_batch_rows(buffer, position, inflated_bytes_max=inflated_bytes_max))


def decode_batch_rows(
    buffer: Buffer, position: int = 0, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
) -> list[tuple[Any, ...]]:
    """The same as tuples, for who makes something else of them: offset, timestamp, key, value, headers."""
    header = check_batch(buffer, position)
    content = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    codec = header.codec
    data = bytes(content) if codec is Codec.NONE else decompress(codec, content, bytes_max=inflated_bytes_max)
    rows = decode_rows(
        data,
        count=header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.is_log_append_time else None,
    )
    _check_offsets(rows, header)
    return rows


def _check_offsets(rows: list[tuple[Any, ...]], header: BatchHeader) -> None:
    """Offsets rise, and stay within those the batch covers."""
    offsets = list(map(itemgetter(0), rows))
    if offsets == list(range(header.base_offset, header.base_offset + len(rows))):
        return  # without gaps, as producers send them; and check_batch saw that so many have room
    if offsets != sorted(set(offsets)):
        raise InvalidRecord("the offsets of the records do not rise one after another")
    if offsets[0] < header.base_offset or offsets[-1] > header.last_offset:
        raise InvalidRecord(
            f"offsets {offsets[0]} to {offsets[-1]} in a batch that covers {header.base_offset} to {header.last_offset}"
        )
