"""What a message's headers ask of queues: its priority, and how long it is worth delivering.

Pure. A header that makes no sense counts as if it were not there: the message is in the log already, and worth more
than its headers.
"""

import re
from collections.abc import Iterator
from typing import Final

from millpond.core.delivery.states import Lane
from millpond.model.ports import Buffer
from millpond.protocol.compression import Codec
from millpond.protocol.records import BatchHeader, Headers, Record, decode_batch

PRIORITY: Final = "millpond-priority"
TTL_MS: Final = "millpond-ttl-ms"

_NAMES: Final = {b"high": Lane.HIGH, b"normal": Lane.NORMAL, b"low": Lane.LOW}
_HAS_TTL: Final = re.compile(re.escape(TTL_MS.encode()))
_NUMBER_CHARS_MAX: Final = 15


def find(headers: Headers, name: str) -> bytes | None:
    """The last one of that name."""
    for each, value in reversed(headers):
        if each == name:
            return value
    return None


def lane_of(headers: Headers) -> Lane:
    """By name; or by number: 0 to 3 low, 4 to 6 normal, 7 to 9 high."""
    value = find(headers, PRIORITY) if headers else None
    if value is None:
        return Lane.NORMAL
    if len(value) == 1 and value.isdigit():
        number = int(value)
        return Lane.LOW if number < 4 else Lane.NORMAL if number < 7 else Lane.HIGH
    return _NAMES.get(value.lower(), Lane.NORMAL)


def ttl_ms(headers: Headers) -> int | None:
    value = find(headers, TTL_MS) if headers else None
    return int(value) if value is not None and value.isdigit() and len(value) <= _NUMBER_CHARS_MAX else None


def expired(buffer: Buffer, position: int, header: BatchHeader, *, wall_ms: int) -> Iterator[int]:
    """Offsets of a batch's messages that have outlived their time; without looking at each where none has any."""
    if header.codec is Codec.NONE and _HAS_TTL.search(buffer, position, position + header.size) is None:
        return
    for record in decode_batch(buffer, position):
        if is_expired(record, wall_ms=wall_ms):
            yield record.offset


def is_expired(record: Record, *, wall_ms: int) -> bool:
    span_ms = ttl_ms(record.headers)
    return span_ms is not None and record.timestamp + span_ms <= wall_ms
