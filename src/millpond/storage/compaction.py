"""Key compaction: of all records with one key, only the latest stays, and in the end not even that if it deletes.

A pass reads what was appended since the last one, notes the latest offset of each key there, and rewrites every
sealed segment from the log's start without the records that a later one replaces. What stays keeps its offset.

- A *tombstone* (a record with a key and no value) stays for a grace time after the first pass that met it, so that
  readers who saw the value learn of its end. The batch that holds it carries the end of its grace (attribute bit 6).
- Records without a key replace nothing and are replaced by nothing.
- Offsets leave no gaps: where whole batches vanish, an empty one takes their place. So every reader, and recovery,
  can still tell a missing batch from a compacted one.
- The newest batch of an idempotent producer stays at least as an empty one, with its sequence numbers.
- Neighbours that have become small are merged, as long as they fit one segment.

Invariant: after a pass, reading the log gives for each key the same latest record as before, tombstones out of
grace excepted. The rewritten file bears the name of the first segment it replaces and covers exactly the offsets of
all of them: so where a crash leaves some of the others behind, recovery sees the overlap and removes them.
`cleanable_segments` and `survivors` are pure; `rewrite` blocks on the disk, in a thread. Driven by log.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millpond.model.errors import LogCorrupted, MillpondError, RequestError
from millpond.model.ids import NO_PRODUCER, Offset, ProducerEpoch, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.model.limits import MIB
from millpond.model.ports import File, Filesystem
from millpond.model.values import dataclass
from millpond.protocol.records import (
    BatchHeader,
    Record,
    check_batch,
    decode_batch,
    empty_batch,
    encode_survivors,
)
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.index import SparseIndex
from millpond.storage.names import UNFINISHED
from millpond.storage.retention import SegmentFacts
from millpond.storage.scan import explain, scan_segment
from millpond.storage.settings import LogSettings

_OFFSETS_PER_SEGMENT_MAX = 2**31 - 1
_WRITE_BYTES = MIB


def cleanable_segments(
    segments: Sequence[SegmentFacts], settings: LogSettings, *, cleaned_to: Offset, synced_to: Offset, now_ms: int
) -> int:
    """How many segments, from the oldest, a pass would rewrite; 0 where it is not worth one yet.

    Never the growing one, none that is not on disk yet, none with a record younger than the compaction lag.
    """
    youngest = now_ms - settings.compaction_lag_ms_min
    count = 0
    for each in segments[:-1]:
        if each.next_offset > synced_to or (settings.compaction_lag_ms_min and each.max_timestamp > youngest):
            break
        count += 1
    total = sum(each.size for each in segments[:count])
    dirty = sum(each.size for each in segments[:count] if each.next_offset > cleaned_to)
    return count if total and dirty / total >= settings.compaction_dirty_ratio_min else 0


class Source(NamedTuple):
    """A sealed segment to read."""

    path: str
    base_offset: Offset
    content: memoryview
    epochs: LeaderEpochs
    """As they were when the pass began: a truncation may change the log's own meanwhile."""

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Checked as a read would: what rot has touched must not be rewritten with a fresh checksum."""
        position, expected = 0, self.base_offset
        while position < len(self.content):
            try:
                header = check_batch(self.content, position)
            except MillpondError as error:
                raise LogCorrupted(self.path, position, str(error)) from error
            epoch, _ = self.epochs.at(expected)
            if (header.base_offset, header.leader_epoch) != (expected, epoch):
                reason = explain(self.content, position, expected=expected, epoch=epoch)
                raise LogCorrupted(self.path, position, reason)
            yield position, header
            position, expected = position + header.size, header.next_offset


@dataclass(frozen=True, slots=True)
class LatestKeys:
    """The latest offset of each key from where the last pass ended up to `end`."""

    offsets: dict[bytes, Offset]
    end: Offset

    @classmethod
    def read(cls, sources: Sequence[Source], *, since: Offset, keys_max: int) -> "LatestKeys":
        offsets: dict[bytes, Offset] = {}
        end = since
        for source in sources:
            for position, header in source.batches():
                if header.next_offset <= since:
                    continue
                for record in _records(source.content, position, header):
                    if record.key is not None:
                        offsets[record.key] = record.offset
                end = header.next_offset
                if len(offsets) >= keys_max:
                    return cls(offsets, end)
        return cls(offsets, end)


def survivors(header: BatchHeader, records: Sequence[Record], latest: LatestKeys, *, now_ms: int) -> list[Record]:
    """The records of a batch that stay."""
    grace_over = header.has_delete_horizon and header.base_timestamp <= now_ms
    return [
        record
        for record in records
        if record.key is None
        or (
            record.offset >= latest.offsets.get(record.key, record.offset) and not (record.value is None and grace_over)
        )
    ]


@dataclass(slots=True)
class _Gap:
    """Offsets of batches that vanished, to be covered by one empty batch."""

    first: BatchHeader
    content: memoryview
    """Of the first."""
    last_offset: Offset
    max_timestamp: TimestampMs

    @classmethod
    def of(cls, header: BatchHeader, content: memoryview) -> "_Gap":
        return cls(header, content, header.last_offset, header.max_timestamp)

    def add(self, header: BatchHeader) -> None:
        self.last_offset = header.last_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def takes(self, header: BatchHeader) -> bool:
        return (
            header.leader_epoch == self.first.leader_epoch
            and header.last_offset - self.first.base_offset <= _OFFSETS_PER_SEGMENT_MAX
        )

    def batch(self) -> bytes | memoryview:
        was_a_gap = not self.first.record_count and self.first.producer_id == NO_PRODUCER
        if was_a_gap and self.first.last_offset == self.last_offset:
            return self.content  # of an earlier pass, and nothing has been added to it
        nobody = self.first._replace(
            attributes=0,
            last_offset_delta=self.last_offset - self.first.base_offset,
            base_timestamp=self.max_timestamp,
            max_timestamp=self.max_timestamp,  # so that retention still knows how old the place is
            producer_id=NO_PRODUCER,
            producer_epoch=ProducerEpoch(-1),
            base_sequence=SequenceNumber(-1),
        )
        return empty_batch(nobody)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one compaction pass goes by."""

    latest: LatestKeys
    producer_offsets: frozenset[Offset]
    """Last offsets of the producers' newest batches, whose headers stay."""
    now_ms: int
    tombstone_grace_ms: int

    def rewrite(self, source: Source) -> Iterator[bytes | memoryview]:
        """What stays of a segment, batch by batch; a view where a batch stays as it is."""
        gap: _Gap | None = None
        for position, header in source.batches():
            batch = self._batch(source.content, position, header)
            if batch is None:
                if gap is not None and gap.takes(header):
                    gap.add(header)
                    continue
                if gap is not None:
                    yield gap.batch()
                gap = _Gap.of(header, source.content[position : position + header.size])
                continue
            if gap is not None:
                yield gap.batch()
                gap = None
            yield batch
        if gap is not None:
            yield gap.batch()

    def _batch(self, content: memoryview, position: int, header: BatchHeader) -> bytes | memoryview | None:
        """The batch as it stays, or None where nothing of it does."""
        whole = content[position : position + header.size]
        records = _records(content, position, header)
        if not records and header.record_count:
            return whole
        kept = survivors(header, records, self.latest, now_ms=self.now_ms)
        if not kept:
            if header.last_offset not in self.producer_offsets:
                return None
            return empty_batch(header) if header.record_count else whole
        horizon = None
        # Below `end` older values of the tombstone's key are gone after this pass: its grace begins.
        if not header.has_delete_horizon and header.last_offset < self.latest.end and _has_tombstone(kept):
            horizon = TimestampMs(self.now_ms + self.tombstone_grace_ms)
        if horizon is None and len(kept) == len(records):
            return whole
        return encode_survivors(kept, of=header, delete_horizon=horizon)


def _records(content: memoryview, position: int, header: BatchHeader) -> list[Record]:
    """None of a control batch, which is nobody's to compact, and none of a batch that its producer wrote unreadably."""
    if header.is_control:
        return []
    try:
        return decode_batch(content, position)
    except RequestError:
        return []


def _has_tombstone(records: Sequence[Record]) -> bool:
    return any(record.value is None and record.key is not None for record in records)


def groups_to_merge(segments: Sequence[SegmentFacts], settings: LogSettings) -> list[slice]:
    """Runs of neighbours that fit one segment together."""
    groups: list[slice] = []
    start = size = 0
    for number, each in enumerate(segments):
        span = each.next_offset - segments[start].base_offset
        if number > start and (size + each.size > settings.segment_bytes or span > _OFFSETS_PER_SEGMENT_MAX):
            groups.append(slice(start, number))
            start, size = number, 0
        size += each.size
    return [*groups, slice(start, len(segments))]


def rewrite_group(
    filesystem: Filesystem, sources: Sequence[Source], by: Pass, *, index_interval: int
) -> SparseIndex | None:
    """Writes what stays of some neighbours beside the first of them, synced, and read back through a scan.

    Returns the new file's index, or None where everything stays as it is.
    """
    unfinished = sources[0].path + UNFINISHED
    file = filesystem.open(unfinished, create=True)
    try:
        file.truncate(0)
        changed = _write_batches(file, (batch for source in sources for batch in by.rewrite(source)))
        if len(sources) == 1 and not changed:
            filesystem.remove(unfinished)
            return None
        file.sync()
        index = SparseIndex(sources[0].base_offset)
        fault = scan_segment(file.map(), index, epochs=sources[0].epochs, index_interval=index_interval)
        assert fault is None, f"compaction of {sources[0].path} wrote at {index.log_bytes}: {fault}"
        return index
    finally:
        file.close()


def _write_batches(file: File, batches: Iterable[bytes | memoryview]) -> bool:
    """Whether any batch is other than it was."""
    changed = False
    size = waiting_bytes = 0
    waiting: list[bytes | memoryview] = []
    for batch in batches:
        changed = changed or not isinstance(batch, memoryview)
        waiting.append(batch)
        waiting_bytes += len(batch)
        if waiting_bytes >= _WRITE_BYTES:
            size += file.write(size, waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        file.write(size, waiting)
    return changed
