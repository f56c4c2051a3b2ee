"""One file of a log, from its base offset on: batches back to back, and the sparse index that finds them.

The last segment of a log grows; the others are sealed and never change. Reads are views over a map of the file
where that is possible: always in a sealed segment; in the growing one for all but its newest bytes, which are
read into memory of their own until they are worth another map.

Invariant: `size` and `next_offset` count whole batches only, and offsets in it have no gaps. The file of the one that
grows may be longer: what is behind `size` is blank then, written with zeros, or the rest of an append that failed.
Blocks on the disk. Driven by log.py, on the loop; only `file.sync` and `finish` may run in another thread.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from millpond.model.errors import LogCorrupted, MillpondError, RequestError
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import KIB, MIB
from millpond.model.ports import Buffer, File, Filesystem
from millpond.protocol.records import HEADER_BYTES, LENGTH_END, BatchHeader, decode_batch, parse_header
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.index import SparseIndex
from millpond.storage.names import INDEX, LOG, UNFINISHED, offset_file
from millpond.storage.scan import explain, scan_around_damage, scan_segment

_FRONT = struct.Struct("!qiibI2xi")
"""base offset, length, epoch, magic, crc, last offset delta"""

_PLACE = struct.Struct("!qi4xb6xi")
"""base offset, length, magic, last offset delta: what leads from a batch to the next"""
_CRC_START = 21
_LENGTH_MIN = HEADER_BYTES - LENGTH_END
_UNMAPPED_BYTES_MAX = MIB
"""How far the growing segment may outrun its map before it is mapped anew."""
_COPY_BYTES = 4 * MIB
_RESERVED_BYTES_MAX = 32 * MIB
"""Of disk space ahead of the growing segment; as much as it has, at first. None before it has grown to a mebibyte, so
that a thousand small partitions take no space that they do not need."""

_BLANK_BYTES_MIN = 256
_BLANK_BYTES_MAX = 256 * KIB
_BLANK = bytes(_BLANK_BYTES_MAX)
"""Written ahead of small batches, as much as there is already: a sync of what fills it has nothing to note elsewhere
(docs/decisions/0031)."""

_SMALL_BATCH_BYTES = 32 * KIB
"""Larger ones cost more to write twice than to sync."""


_new_tuple = tuple.__new__  # as a NamedTuple's own constructor, at half its cost: there is a slice for each read


class Slice(NamedTuple):
    """Whole batches, as they lie on disk. The first may begin before the offset asked for."""

    data: memoryview
    next_offset: Offset
    """Where to go on reading."""


class Segment:
    __slots__ = (
        "_ahead",
        "_directory",
        "_epochs",
        "_file",
        "_filesystem",
        "_index",
        "_index_due",
        "_index_interval",
        "_map",
        "_places",
        "base_offset",
        "is_sealed",
        "next_offset",
        "path",
        "size",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        base_offset: Offset,
        *,
        next_offset: Offset,
        epochs: LeaderEpochs,
        index_interval: int,
        size: int | None = None,
    ) -> None:
        """A sealed segment whose file is there already. Nothing of it is opened before it is needed."""
        self.path = f"{directory}/{offset_file(base_offset, LOG)}"
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = filesystem.size(self.path) if size is None else size
        self.is_sealed = True
        self._directory = directory
        self._filesystem = filesystem
        self._epochs = epochs
        self._file: File | None = None
        self._map = memoryview(b"")
        self._places: dict[int, int] = {}
        """Where the last read began and ended: from there the next one goes on, or another reader of the same tail."""
        self._ahead = _BLANK_BYTES_MIN
        """Up to where it grows before more is made ready ahead of it."""
        self._index: SparseIndex | None = None
        self._index_interval = index_interval
        self._index_due = 0

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes, next {self.next_offset})"

    @classmethod
    def create(
        cls,
        filesystem: Filesystem,
        directory: str,
        base_offset: Offset,
        *,
        epochs: LeaderEpochs,
        index_interval: int,
    ) -> "Segment":
        """An empty segment that can grow. Its name is durable after a `sync_directory`."""
        segment = cls.planned(filesystem, directory, base_offset, epochs=epochs, index_interval=index_interval)
        segment.make()
        return segment

    @classmethod
    def planned(
        cls,
        filesystem: Filesystem,
        directory: str,
        base_offset: Offset,
        *,
        epochs: LeaderEpochs,
        index_interval: int,
    ) -> "Segment":
        """The same without a file, which it needs before it can grow: see `make`."""
        segment = cls(
            filesystem,
            directory,
            base_offset,
            next_offset=base_offset,
            epochs=epochs,
            index_interval=index_interval,
            size=0,
        )
        segment._index = SparseIndex(base_offset)
        segment.is_sealed = False
        return segment

    def make(self) -> None:
        file = self._filesystem.open(self.path, create=True)
        try:
            file.truncate(0)
        except OSError:
            file.close()
            self._filesystem.remove(self.path)
            raise
        self._file = file

    # Facts

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._filesystem.open(self.path)
        return self._file

    @property
    def index_path(self) -> str:
        return f"{self._directory}/{offset_file(self.base_offset, INDEX)}"

    @property
    def index(self) -> SparseIndex:
        """Loaded on first use; built anew from the log where there is none to be trusted."""
        if self._index is None:
            index = SparseIndex.load(
                self._filesystem, self.index_path, base_offset=self.base_offset, log_bytes=self.size
            )
            if index is None:
                index = SparseIndex(self.base_offset)
                scan_around_damage(
                    self._whole(), index, file=self.path, epochs=self._epochs, index_interval=self._index_interval
                )
            self._index = index
        return self._index

    @property
    def max_timestamp(self) -> TimestampMs:
        return self.index.max_timestamp

    # Growing

    def append(self, data: Buffer, header: BatchHeader, *, base_offset: Offset) -> None:
        """One batch, already stamped. After an OSError the segment is as it was; its file may have a torn tail."""
        index = self._index
        file = self._file
        assert index is not None and file is not None and not self.is_sealed  # noqa: PT018 - one check on the hot path
        position = self.size
        if position >= self._ahead:
            self._reach_ahead(file, len(data))
        file.write(position, (data,))
        if header.max_timestamp > index.max_timestamp:
            index.max_timestamp = header.max_timestamp
        if position >= self._index_due:
            index.add(base_offset, position)
            self._index_due = position + self._index_interval
        self.size = position + header.length + LENGTH_END
        self.next_offset = Offset(base_offset + header.last_offset_delta + 1)

    def _reach_ahead(self, file: File, batch_bytes: int) -> None:
        size = self.size
        if batch_bytes <= _SMALL_BATCH_BYTES:
            self._ahead = size + min(size, _BLANK_BYTES_MAX)
            with suppress(OSError):  # the batch may still fit; where it does not, its own write says why
                file.write(size, (_BLANK[: self._ahead - size],))
        elif size >= MIB:
            ahead = min(size, _RESERVED_BYTES_MAX)
            file.reserve(size, ahead)
            self._ahead = size + ahead

    def discard_torn_tail(self) -> None:
        """Removes what a failed append may have left behind the last whole batch."""
        if self._file is not None:
            self._file.truncate(self.size)
            self._ahead = _BLANK_BYTES_MIN

    def seal(self) -> None:
        self.is_sealed = True

    def give_back(self) -> None:
        """What the file has ahead of what was written; the next sync makes that durable."""
        if self._ahead > self.size >= _BLANK_BYTES_MIN:
            self.file.truncate(self.size)
            self._ahead = _BLANK_BYTES_MIN

    def unseal(self) -> None:
        """Lets a segment grow on: the last one after a restart, or the one that a truncation made the last."""
        index = self.index
        index.make_writable()
        self._index_due = index.last_position + self._index_interval if len(index) else 0
        self.is_sealed = False
        self.file  # noqa: B018 - appends find it open

    def adopt_index(self, index: SparseIndex) -> None:
        """An index that was built with the file."""
        assert (index.log_bytes, index.next_offset) == (self.size, self.next_offset)
        self._index = index

    def index_so_far(self) -> SparseIndex:
        """A copy that can be saved in a thread while the segment grows on."""
        return self.index.copy(next_offset=self.next_offset, log_bytes=self.size)

    def finish(self) -> None:
        """Once it is sealed, or its log is closed: a growing one's index would be stale at once."""
        index = self.index
        index.next_offset, index.log_bytes = self.next_offset, self.size
        index.save(self._filesystem, self.index_path)

    # Cutting

    def place_to_cut(self, end: Offset) -> tuple[Offset, int]:
        """Where the last batch ends that has no offset of `end` or above: the next offset, and the position.

        LogCorrupted where damage hides it.
        """
        offset, position = self.index.position_at_or_before(end)
        while position < self.size:
            # Read, not mapped: a file that nobody mapped can be cut in place.
            base, length, _, _, _, delta = _FRONT.unpack(self.file.read(position, _FRONT.size))
            if base != offset or length < _LENGTH_MIN or delta < 0:
                raise LogCorrupted(self.path, position, f"no batch begins here, though offset {offset} should")
            if base + delta >= end:
                break
            offset, position = Offset(base + delta + 1), position + length + LENGTH_END
        return offset, position

    def truncate(self, offset: Offset, position: int) -> None:
        """Cuts at a place that `place_to_cut` found. The file is synced, names are not.

        Views handed out earlier stay readable: a file that was mapped is replaced by a copy of its front instead of
        being cut, since reading a map beyond the end of its file kills the process.
        """
        self.remove_index_file()
        if len(self._map):
            self._replace_by_front(position)
        else:
            self.file.truncate(position)
            self.file.sync()
        self.size, self.next_offset = position, offset
        self._ahead = _BLANK_BYTES_MIN
        self._places = {}
        self._rewind_index()

    def end_at(self, index: SparseIndex, *, doubtful_from: int) -> None:
        """Takes over what a scan of the file found: it ends where the scan did, and is synced. Nobody may read yet.

        What lies behind `doubtful_from` is written once more: after a sync that failed, the page cache shows bytes
        that are not on disk and that no later sync would write.
        """
        self.close()
        file = self.file
        file.truncate(index.log_bytes)  # also where it ends there: it may have space reserved
        for position in range(doubtful_from, index.log_bytes, _COPY_BYTES):
            file.write(position, (file.read(position, min(_COPY_BYTES, index.log_bytes - position)),))
        file.sync()
        self.close_file()
        self.size, self.next_offset, self._index = index.log_bytes, index.next_offset, index
        self._places = {}

    def _replace_by_front(self, size: int) -> None:
        copy = self._filesystem.open(self.path + UNFINISHED, create=True)
        try:
            copy.truncate(0)
            for position in range(0, size, _COPY_BYTES):
                copy.write(position, (self.file.read(position, min(_COPY_BYTES, size - position)),))
            copy.sync()
        finally:
            copy.close()
        self.close()
        self._filesystem.rename(self.path + UNFINISHED, self.path)

    def _rewind_index(self) -> None:
        index = self.index
        index.make_writable()
        index.rewind(self.size)
        content = memoryview(self.file.read(index.log_bytes, self.size - index.log_bytes))
        fault = scan_segment(content, index, origin=index.log_bytes, epochs=None, index_interval=self._index_interval)
        assert fault is not None or (index.log_bytes, index.next_offset) == (self.size, self.next_offset)
        # From damage it is less than an index interval to the end; reads walk over it.
        index.log_bytes, index.next_offset = self.size, self.next_offset

    # Reading

    def read(self, start: Offset, *, bytes_max: int, until: Offset, verify: bool) -> Slice:  # noqa: C901 - one walk
        """Batches from the one that holds `start`, as many as fit, but at least one; none that reaches `until`."""
        expected: int = start
        position = self._places.get(start, -1)
        if position < 0:
            expected, position = self.index.position_at_or_before(start)
        # The batch wanted begins less than an index interval behind the place that the index knows.
        view = self._view(position, self._index_interval + (max(HEADER_BYTES, bytes_max)))
        seen, room = len(view), self.size - position
        expected, begin = _pass_over(view, expected, start, room)
        first, end = expected, begin
        stop = begin + bytes_max
        written_epoch, epoch_end = self._epochs.at(expected)
        unpack = _FRONT.unpack_from
        while end < room:
            if end + HEADER_BYTES > seen:
                if end > begin:
                    break
                view = self._view(position, end + HEADER_BYTES)
                seen = len(view)
                if end + HEADER_BYTES > seen:
                    raise self._corrupted(view, end, position, expected)
            base, length, epoch, magic, crc, delta = unpack(view, end)
            behind, following = end + length + LENGTH_END, base + delta + 1
            if base != expected or length < _LENGTH_MIN or behind > room or delta < 0 or magic != 2:
                if end > begin:
                    break  # what is whole is served; who asks for this one is told
                raise self._corrupted(view, end, position, expected)
            if following <= start:  # before what was asked for
                begin = end = behind
                stop = begin + bytes_max
                expected = following
                continue
            if end > begin and (behind > stop or following > until):
                break
            if behind > seen:
                view = self._view(position, behind)
                seen = len(view)
            if verify:
                if expected >= epoch_end:
                    written_epoch, epoch_end = self._epochs.at(expected)
                if epoch != written_epoch or crc32c(view[end + _CRC_START : behind]) != crc:
                    if end > begin:
                        break
                    raise self._corrupted(view, end, position, expected)
            if following > until:
                break  # whole, and not to be seen yet
            end = behind
            expected = following
        if end > begin and first == start:
            self._places = {start: position + begin, expected: position + end}
        return _new_tuple(Slice, (view[begin:end], expected))

    def position_of(self, offset: Offset) -> int:
        """Where the batch begins that holds an offset; of one that was read before, checksums unseen."""
        _, position = self.index.position_at_or_before(offset)
        while position < self.size:
            base, length, _, _, _, delta = _FRONT.unpack(self._view(position, _FRONT.size))
            if base + delta >= offset:
                break
            position += length + LENGTH_END
        return position

    def read_at(self, position: int, size: int) -> memoryview:
        """So many bytes, as they are: whoever asks knows what lies there, and how to tell damage."""
        return self._view(position, size)

    def first_since(self, timestamp: TimestampMs, *, start: Offset) -> tuple[Offset, TimestampMs] | None:
        """The first record at or behind `start` that is not older than `timestamp`."""
        if timestamp > self.max_timestamp:
            return None
        offset, position = self.index.position_before_time(timestamp)
        content = self._whole()
        for at, header in self._headers(content, position, offset):
            if header.max_timestamp < timestamp or header.next_offset <= start:
                continue
            for record_offset, record_timestamp in _times(content, at, header):
                if record_offset >= start and record_timestamp >= timestamp:
                    return record_offset, record_timestamp
        return None

    def headers(self, start: Offset) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from the one that holds `start` to the end, checksums unseen."""
        offset, position = self.index.position_at_or_before(start)
        for at, header in self._headers(self._whole(), position, offset):
            if header.next_offset > start:
                yield at, header

    def content(self) -> memoryview:
        return self._whole()

    def _headers(self, content: memoryview, position: int, expected: Offset) -> Iterator[tuple[int, BatchHeader]]:
        while position < self.size:
            header = self._header_in(content, position, expected)
            yield position, header
            expected, position = header.next_offset, position + header.size

    def _header_in(self, content: memoryview, position: int, expected: Offset) -> BatchHeader:
        try:
            header = parse_header(content, position)
        except MillpondError as error:
            raise LogCorrupted(self.path, position, str(error)) from error
        if header.base_offset != expected:
            raise LogCorrupted(self.path, position, f"offset {header.base_offset} stands where {expected} comes next")
        return header

    def _corrupted(self, view: memoryview, at: int, position: int, expected: int) -> LogCorrupted:
        reason = explain(view, at, expected=expected, epoch=self._epochs.at(expected)[0])
        return LogCorrupted(self.path, position + at, reason)

    def _view(self, position: int, size: int) -> memoryview:
        end = position + size
        if end > self.size:
            end = self.size
        if end > len(self._map):
            if not self.is_sealed and self.size - len(self._map) < _UNMAPPED_BYTES_MAX:
                data = self.file.read(position, end - position)
                if len(data) < end - position:
                    raise self._cut_short(position + len(data))
                return memoryview(data)
            self._whole()
        return self._map[position:end]

    def _whole(self) -> memoryview:
        if len(self._map) < self.size:
            was_open = self._file is not None
            self._map = self.file.map(self.size)
            if not was_open:
                self.close_file()  # the map is enough
            if len(self._map) < self.size:
                raise self._cut_short(len(self._map))
        return self._map[: self.size]

    def _cut_short(self, position: int) -> LogCorrupted:
        return LogCorrupted(self.path, position, f"the file ends here, though {self.size} bytes were written")

    # Ending

    def close(self) -> None:
        """Views handed out earlier stay readable."""
        self.close_file()
        self._map = memoryview(b"")

    def close_file(self) -> None:
        """For a sealed segment, once nobody syncs it any more; it is opened again where that is needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove_files(self) -> None:
        """Blocking, and may take long for a large file; the names are gone for good after a `sync_directory`."""
        self.remove_index_file()
        self._filesystem.remove(self.path)

    def remove_index_file(self) -> None:
        if self._filesystem.exists(self.index_path):
            self._filesystem.remove(self.index_path)


def _pass_over(view: memoryview, expected: int, start: Offset, room: int) -> tuple[int, int]:
    """From one batch to the next, while they end before `start`: the offset that comes next then, and its place.

    Stops before anything that cannot be a batch, or is not all in view: whoever reads it sees to that.
    """
    at, last = 0, len(view) - HEADER_BYTES
    unpack = _PLACE.unpack_from
    while at <= last:
        base, length, magic, delta = unpack(view, at)
        following = base + delta + 1
        if following > start:
            break
        behind = at + length + LENGTH_END
        if base != expected or length < _LENGTH_MIN or behind > room or delta < 0 or magic != 2:
            break
        at, expected = behind, following
    return expected, at


def _times(content: memoryview, position: int, header: BatchHeader) -> list[tuple[Offset, TimestampMs]]:
    """Offset and time of each record; of a batch whose producer wrote its records unreadably, the header's."""
    try:
        return [(record.offset, record.timestamp) for record in decode_batch(content, position)]
    except RequestError:
        return [(header.base_offset, header.max_timestamp)]
