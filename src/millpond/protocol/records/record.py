"""One record, as read from a batch and as handed in to be written to one.

Pure, frozen. Made by decode.py and by whoever produces; the bytes are drawn in kernel.py.
"""

from typing import NamedTuple

from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs

Headers = tuple[tuple[str, bytes | None], ...]
"""In the order written; names may repeat.

A name that is not UTF-8 is kept as `surrogateescape` has it: Kafka never forbade such names, and a log that rewrites
its batches must give back the very bytes it was given.
"""


class Record(NamedTuple):
    """A record in its place in the log."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record without a place yet: its offset will be that of its batch, plus its position in it."""

    value: bytes | None
    key: bytes | None = None
    timestamp: TimestampMs = NO_TIMESTAMP
    headers: Headers = ()
