"""What a message's headers ask of queues: its priority, and how long it is worth delivering.

Pure. A header that makes no sense counts as if it were not there: the message is in the log already, and worth more
than its headers.
"""

import re
from typing import Final, NamedTuple

from millpond.core.delivery.states import Lane
from millpond.model.errors import RequestError
from millpond.model.limits import INFLATED_BYTES_MAX
from millpond.model.ports import Buffer
from millpond.protocol.compression import decompress
from millpond.protocol.records import HEADER_BYTES, BatchHeader, Headers, Record
from millpond.protocol.records.header import CODEC_MASK

PRIORITY: Final = "millpond-priority"
TTL_MS: Final = "millpond-ttl-ms"

_NAMES: Final = {b"high": Lane.HIGH, b"normal": Lane.NORMAL, b"low": Lane.LOW}
_MENTIONED: Final = re.compile(b"%b|%b" % (PRIORITY.encode(), TTL_MS.encode()))
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


class Mentioned(NamedTuple):
    """Which of these names a batch holds, as a header or by chance."""

    priority: bool
    ttl: bool


NEITHER: Final = Mentioned(priority=False, ttl=False)


def mentions_none(batches: Buffer) -> bool:
    """Of those that are not compressed, all at once."""
    return _MENTIONED.search(batches) is None


def mentioned(batch: Buffer, header: BatchHeader) -> Mentioned:
    """Without decoding any record: of most batches that is all there is to know."""
    if header.is_control:
        return NEITHER  # it holds no messages
    if header.attributes & CODEC_MASK:
        try:
            batch = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], bytes_max=INFLATED_BYTES_MAX)
        except RequestError:
            return NEITHER  # nobody can read it
    found = {each[0] for each in _MENTIONED.finditer(batch)} if _MENTIONED.search(batch) else ()
    return Mentioned(PRIORITY.encode() in found, TTL_MS.encode() in found) if found else NEITHER


def expires_ms(record: Record, *, ttl_ms_max: int) -> int | None:
    """When it is worth nothing any more; a life beyond the cap ends there."""
    span_ms = ttl_ms(record.headers)
    return None if span_ms is None else record.timestamp + min(span_ms, ttl_ms_max)


def is_expired(record: Record, *, wall_ms: int, ttl_ms_max: int) -> bool:
    end_ms = expires_ms(record, ttl_ms_max=ttl_ms_max)
    return end_ms is not None and end_ms <= wall_ms
