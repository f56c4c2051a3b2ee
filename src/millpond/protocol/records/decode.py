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
from millpond.protocol.records.kernel import Make, decode_records
from millpond.protocol.records.record import Record


def decode_batch(buffer: Buffer, position: int = 0, *, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `position`, after its checksum was found right.

    Control records come like any others. A delete horizon needs no care: the deltas count from it, as from any base.
    """
    return _decode(buffer, position, inflated_bytes_max)


def decode_batch_as(make: Make, tail: tuple[Any, ...], buffer: Buffer, position: int = 0) -> list[Any]:
    """The same as something else: what `make` makes of offset, timestamp, key, value, headers and `tail`, as a tuple.

    It keeps the offset as its first item.
    """
    return _decode(buffer, position, INFLATED_BYTES_MAX, make=make, tail=tail)


def _decode(buffer: Buffer, position: int, inflated_bytes_max: int, **how: Any) -> list[Any]:  # noqa: ANN401
    header = check_batch(buffer, position)
    content = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    codec = header.codec
    data = bytes(content) if codec is Codec.NONE else decompress(codec, content, bytes_max=inflated_bytes_max)
    records = decode_records(
        data,
        count=header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.is_log_append_time else None,
        **how,
    )
    _check_offsets(records, header)
    return records


def _check_offsets(records: list[Any], header: BatchHeader) -> None:
    """Offsets rise, and stay within those the batch covers."""
    offsets = list(map(itemgetter(0), records))
    if offsets == list(range(header.base_offset, header.base_offset + len(records))):
        return  # without gaps, as producers send them; and check_batch saw that so many have room
    if offsets != sorted(set(offsets)):
        raise InvalidRecord("the offsets of the records do not rise one after another")
    if offsets[0] < header.base_offset or offsets[-1] > header.last_offset:
        raise InvalidRecord(
            f"offsets {offsets[0]} to {offsets[-1]} in a batch that covers {header.base_offset} to {header.last_offset}"
        )
