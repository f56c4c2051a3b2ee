"""What a queue reads of its partition's log: to look at messages, and to hand them out.

Consumers that take one message at a time come for neighbours. So where more wait than one of them wants, a few that
come next are read along and copied, and the way through the log's index is gone once for all of them. What was looked
at because nothing else was left is what comes next as well.

Invariant: what is given out was checked when it was read, is below the high watermark, and in the segment that holds it
now: what compaction has replaced since is read again.
Driven by queue_partition.py, in one epoch of the partition's leader; it never asks for what the log has lost.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.core.delivery.headers import NEITHER, Mentioned, mentioned, mentions_none
from millpond.model.ids import Offset
from millpond.model.limits import MIB
from millpond.protocol.records import LENGTH_END, BatchHeader, Record, decode_batch, parse_header
from millpond.storage.segment import Segment, Slice

LOOKED_AT_BYTES_MAX: Final = MIB
"""Looked at in one go."""
READ_BYTES_A_MESSAGE: Final = 256
"""Read for each further message that is wanted: for one, its batch, and not all that waits behind it."""
AHEAD_BYTES: Final = 8 * 1024
"""Read along where more wait than are wanted."""
DECODED_MAX: Final = 8
"""Batches whose records are at hand, for those who take them one by one."""
MENTIONED_MAX: Final = 1_000
"""Batches of which it is known whether any message has a time to live."""
HEADERS_COUNTED_MAX: Final = 1_000
"""Batches that are looked through to tell how many messages there are where some are parked."""


class Batch(NamedTuple):
    """One that was read, and what it takes to hand out messages of it without a second look."""

    first: int
    last: int
    content: memoryview
    header: BatchHeader
    mentioned: Mentioned


class QueueReader:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._ahead: list[Batch] = []
        """Those that were read along."""
        self._ahead_in: Segment | None = None
        self._ahead_first = self._ahead_end = 0
        self._at = 0
        """Those that come next are from this one on."""
        self._decoded: OrderedDict[int, list[Record]] = OrderedDict()
        self._mentions: OrderedDict[int, Mentioned] = OrderedDict()
        """By base offset."""

    def read(self, first: int, *, wanted: int, ready: int, bytes_max: int) -> Iterable[Batch]:
        """Batches from the one that holds an offset on: one at least, and perhaps fewer, or more, than are wanted."""
        if self._ahead_first <= first < self._ahead_end:
            if self._ahead_in is self._partition.log.segments.holding(Offset(first)):
                return self._from_ahead(first)
            self._forget_ahead()
        size = min(bytes_max, 1 + (wanted - 1) * READ_BYTES_A_MESSAGE)
        if size >= AHEAD_BYTES or ready <= wanted:
            return self._batches(self._partition.read(Offset(first), bytes_max=size).data)
        part = self._partition.read(Offset(first), bytes_max=AHEAD_BYTES)
        return self._keep_ahead(first, part) if part.data else ()

    def look(self, first: int, *, is_next: bool) -> Iterable[Batch]:
        """As much as is looked at in one go; perhaps because nothing that was looked at is left to hand out."""
        part = self._partition.read(Offset(first), bytes_max=LOOKED_AT_BYTES_MAX)
        if is_next and 0 < len(part.data) <= AHEAD_BYTES:
            return self._keep_ahead(first, part)
        return self._batches(part.data)

    def _keep_ahead(self, first: int, part: Slice) -> list[Batch]:
        # A copy, so that a segment that is deleted meanwhile is not held for those that nobody takes.
        data = bytes(part.data)
        self._ahead, self._at = list(self._batches(memoryview(data), is_plain=mentions_none(data))), 0
        self._ahead_in = self._partition.log.segments.holding(Offset(first))
        self._ahead_first, self._ahead_end = self._ahead[0].first, part.next_offset
        return self._ahead

    def _from_ahead(self, first: int) -> list[Batch]:
        ahead, at = self._ahead, self._at
        if first < ahead[at].first:  # one that was handed out before, and came back
            at = 0
        while ahead[at].last < first:
            at += 1
        self._at = at
        return ahead[at:]

    def _forget_ahead(self) -> None:
        self._ahead, self._ahead_in, self._ahead_first, self._ahead_end = [], None, 0, 0

    def _batches(self, data: memoryview, *, is_plain: bool = False) -> Iterator[Batch]:
        """`is_plain` where those that are not compressed mention nothing."""
        for content, header in batches_in(data):
            told = NEITHER if is_plain and not header.is_compressed else self._mentioned(content, header)
            yield Batch(header.base_offset, header.last_offset, content, header, told)

    def _mentioned(self, content: memoryview, header: BatchHeader) -> Mentioned:
        found = self._mentions.get(header.base_offset)
        if found is None:
            found = self._mentions[header.base_offset] = mentioned(content, header)
            if len(self._mentions) > MENTIONED_MAX:
                self._mentions.popitem(last=False)
        return found

    def decode(self, base: int, batch: memoryview) -> list[Record]:
        records = self._decoded.get(base)
        if records is None:
            records = self._decoded[base] = decode_batch(batch)
            if len(self._decoded) > DECODED_MAX:
                self._decoded.popitem(last=False)
        return records


def parked_runs(partition: Partition, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Offsets of notes on delayed messages, and of those that were put aside of a batch, where a topic has any; of the
    first so many batches."""
    at, seen = max(first, partition.log.start_offset), 0
    while partition.config.delay and at < end and seen < HEADERS_COUNTED_MAX:
        part = partition.read(Offset(at), bytes_max=LOOKED_AT_BYTES_MAX)
        for content, header in batches_in(part.data):
            seen += 1
            if header.is_control:
                yield max(at, header.base_offset), min(header.last_offset, end - 1)
            elif header.record_count <= header.last_offset_delta:
                there = {each.offset for each in decode_batch(content)}
                missing = range(max(at, header.base_offset), min(header.last_offset, end - 1) + 1)
                yield from ((each, each) for each in missing if each not in there)
        if part.next_offset <= at:
            return
        at = part.next_offset


def batches_in(data: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Each with its header; the log has checked them."""
    at, end = 0, len(data)
    while at < end:
        header = parse_header(data, at)
        following = at + LENGTH_END + header.length
        yield data[at:following], header
        at = following
