"""Plain models of a log, and one life of the process that has it open, for the property tests beside this file.

The models know nothing of segments, indexes, documents or disks: a list of batches, a few numbers, dictionaries.
"""

import random
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.model.ports import Filesystem
from millpond.protocol.records import BatchHeader, Codec, NewRecord, Record, decode_batch, encode_batch, iter_batches
from millpond.storage.log import Appended, Log
from millpond.storage.retention import SegmentFacts
from millpond.storage.settings import LogSettings
from millpond.testing.disk import SimDisk
from millpond.testing.loop import Deadlock, SimLoop

T = TypeVar("T")

DIRECTORY = "orders-0"
READ_BYTES = 700
"""Small, so that reading everything takes many reads."""


class Process:
    """One life of a process with the log open, on a loop of its own; as a context it ends by a kill."""

    def __init__(self, disk: Filesystem, settings: LogSettings, *, seed: int = 0) -> None:
        self.log = Log.open(disk, DIRECTORY, settings)
        self.loop = SimLoop(seed)
        self._disk = disk
        weakref.finalize(self, self.loop.close)  # for tests that fail halfway: nothing is to hide their reason

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """PowerCut also where it befell a task that nobody waits for, or one that others would wait for for ever."""
        try:
            result = self.loop.run_until_complete(work)
        except Deadlock:
            self._disk.exists(DIRECTORY)
            raise
        self._disk.exists(DIRECTORY)  # says whether the power is still there
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function on the loop, as appends want it."""

        async def work() -> T:
            return function()

        return self.run(work())

    def keep(self, *batches: bytes, epoch: int = 0) -> list[Appended]:
        """Appends one after another and waits until all are kept."""

        async def work() -> list[Appended]:
            appended = [self.log.append(batch, leader_epoch=LeaderEpoch(epoch)) for batch in batches]
            await self.log.flush()
            return appended

        return self.run(work())

    def close(self) -> None:
        """In order."""
        try:
            self.run(self.log.close())
        finally:
            self.kill()

    def kill(self) -> None:
        self.log.abandon()
        if not self.loop.is_closed():
            self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def batch_of(
    records: Sequence[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    return encode_batch(
        records,
        codec=codec,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(producer_epoch),
        base_sequence=SequenceNumber(sequence),
    )


def batch_with(value: bytes, *, timestamp: int = 1) -> bytes:
    """A batch of one record."""
    return batch_of([NewRecord(value, timestamp=TimestampMs(timestamp))])


class WrittenBatch(NamedTuple):
    """A batch in its place, byte for byte as it must be read."""

    header: BatchHeader
    data: bytes

    @classmethod
    def at(cls, batch: bytes, *, base_offset: int, epoch: int) -> "WrittenBatch":
        placed = base_offset.to_bytes(8) + batch[8:12] + epoch.to_bytes(4) + batch[16:]
        [(_, header)] = iter_batches(placed)
        return cls(header, placed)

    @property
    def records(self) -> list[Record]:
        return decode_batch(self.data)


@dataclass(slots=True)
class ListModel:
    """A log as a list of batches. It forgets nothing below `start`: a producer's numbers go on from there."""

    batches: list[WrittenBatch] = field(default_factory=list)
    kept: int = 0
    """Everything below must survive whatever happens."""
    start: int = 0
    start_possible: int = 0
    """How far the start may have moved by something that a power cut left unfinished."""

    @property
    def next_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def served(self) -> list[WrittenBatch]:
        return [batch for batch in self.batches if batch.header.next_offset > self.start]

    def append(self, batch: bytes, *, epoch: int) -> WrittenBatch:
        written = WrittenBatch.at(batch, base_offset=self.next_offset, epoch=epoch)
        self.batches.append(written)
        return written

    def truncate(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= end]
        self.kept = min(self.kept, self.next_offset)
        self.start = self.start_possible = min(self.start, self.next_offset)

    def adopt(self, *, start: int, next_offset: int) -> None:
        """After a power cut: what was found, if it is something that may be found."""
        ends = {0, *(batch.header.next_offset for batch in self.batches)}
        assert next_offset in ends, f"the log ends at {next_offset}, within a batch; batches end at {sorted(ends)}"
        assert next_offset >= self.kept, f"the log ends at {next_offset}; all below {self.kept} was kept"
        assert self.start <= start <= max(self.start_possible, self.start), (self.start, start, self.start_possible)
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= next_offset]
        self.kept = next_offset
        self.start = self.start_possible = start

    def remembered(self, producer: int) -> list[WrittenBatch]:
        """The batches of a producer that a retry must be recognised by: five at most, of its newest epoch."""
        own = [batch for batch in self.batches if batch.header.producer_id == producer]
        newest = [batch for batch in own if batch.header.producer_epoch == own[-1].header.producer_epoch]
        return [batch for batch in newest[-5:] if batch.header.base_offset >= self.start]

    def next_sequence(self, producer: int) -> int:
        own = [batch.header for batch in self.batches if batch.header.producer_id == producer]
        # Near the end of the circle, so that it wraps soon.
        return (own[-1].base_sequence + own[-1].record_count) % 2**31 if own else 2**31 - 9

    def producer_epoch(self, producer: int) -> int:
        own = [batch.header.producer_epoch for batch in self.batches if batch.header.producer_id == producer]
        return own[-1] if own else 0


def read_all(log: Log, *, start: int | None = None, bytes_max: int = READ_BYTES) -> bytes:
    """Everything from an offset to the end, in as many reads as it takes."""
    parts, offset = [], log.start_offset if start is None else Offset(start)
    while offset < log.next_offset:
        found = log.read(offset, bytes_max=bytes_max)
        assert found.next_offset > offset, f"reading at {offset} leads nowhere"
        parts.append(bytes(found.data))
        offset = found.next_offset
    return b"".join(parts)


def facts_of(log: Log) -> list[SegmentFacts]:
    return log.segments.facts()


def headers_in(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_batches(data)]


def records_in(data: bytes) -> Iterator[Record]:
    for position, _ in iter_batches(data):
        yield from decode_batch(data, position)


def names_on(disk: Filesystem, suffix: str) -> list[str]:
    """The files of the log whose names end so, oldest first."""
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(suffix)]


def expired_by_trying(segments: Sequence[SegmentFacts], settings: LogSettings, *, start: int, now_ms: int) -> int:
    """How many leading segments may go, by trying every number of them, the largest first."""

    def may_go(count: int) -> bool:
        gone, left = segments[:count], segments[count:]
        if left and gone[-1].next_offset <= start:
            return True
        if not settings.delete:
            return False
        if settings.retention_bytes is not None and left and sum(s.size for s in left) >= settings.retention_bytes:
            return True
        if settings.retention_ms is None or gone[-1].max_timestamp < 0:
            return False
        return all(s.max_timestamp < now_ms - settings.retention_ms for s in gone)

    return next((count for count in range(len(segments), 0, -1) if may_go(count)), 0)


def contents_of(disk: Filesystem) -> dict[str, bytes]:
    """Every file of the log."""
    found = {}
    for path in names_on(disk, ""):
        file = disk.open(path)
        found[path] = file.read(0, file.size())
        file.close()
    return found


def contents_after(batches: Sequence[bytes], settings: LogSettings, *, orderly: bool) -> dict[str, bytes]:
    """What a process leaves on disk that kept these, and was closed in order or killed."""
    disk = SimDisk(random.Random(0))
    process = Process(disk, settings)
    process.keep(*batches)
    if orderly:
        process.close()
    else:
        process.kill()
    return contents_of(disk)


def disk_with(contents: Mapping[str, bytes]) -> SimDisk:
    """A disk on which these files are, and nothing else, for good."""
    disk = SimDisk(random.Random(0))
    disk.make_directory(DIRECTORY)
    for path, content in contents.items():
        file = disk.open(path, create=True)
        file.write(0, (content,))
        file.sync()
        file.close()
    disk.sync_directory(DIRECTORY)
    disk.sync_directory("/")
    return disk


def flipped(content: bytes, *, position: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return bytes(changed)
