"""The sparse index of one segment: offset to position, and time to position, one entry every few kilobytes.

    byte  field           type, little-endian
       0  magic           4 bytes "MPIX"
       4  version         u32  1
       8  base offset     i64  of the segment
      16  next offset     i64  the offset after the segment's last
      24  log bytes       i64  size of the .log this index describes
      32  max timestamp   i64  largest in the segment
      40  entries         u32  count
      44  crc             u32  CRC-32C of bytes 0..43 and of everything from 48 on
      48  places          u64 each   offset minus base in the upper half, position in the lower
       …  timestamps      i64 each   largest timestamp from the segment's start through the batch at that place

Places ascend and timestamps never descend, so both columns are searched by `bisect`, in C, straight over the map.
An index of a segment that still grows lives in memory; it is written when the segment is sealed or the log closed, and
at checkpoints, so that recovery can begin where the last one was.

Invariant: an index that `load` returns belongs to that very .log file, whole; any other is refused and built anew
from the log. So no promise rests on an index file, and a stale or damaged one can never mislead a read.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right

from crc32c import crc32c

from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from millpond.model.ports import Filesystem
from millpond.storage.names import UNFINISHED

_HEAD = struct.Struct("<4sIqqqqI")
_CRC = struct.Struct("<I")
_ENTRIES_AT = _HEAD.size + _CRC.size
_MAGIC = b"MPIX"
_VERSION = 1
_POSITION_MASK = 0xFFFF_FFFF

assert _ENTRIES_AT % 8 == 0


class SparseIndex:
    """Carries the segment's facts (`next_offset`, `log_bytes`, `max_timestamp`) too: they live and die with it."""

    __slots__ = ("_places", "_timestamps", "base_offset", "log_bytes", "max_timestamp", "next_offset")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.log_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self._places: array[int] | memoryview = array("Q")
        self._timestamps: array[int] | memoryview = array("q")

    def __len__(self) -> int:
        return len(self._places)

    def add(self, offset: Offset, position: int) -> None:
        """The batch at `position` starts at `offset`; it must already be counted in `max_timestamp`."""
        assert isinstance(self._places, array)
        assert isinstance(self._timestamps, array)
        self._places.append((offset - self.base_offset) << 32 | position)
        self._timestamps.append(self.max_timestamp)

    def position_at_or_before(self, offset: Offset) -> tuple[Offset, int]:
        """The last known batch that starts at or before `offset`: its own offset and its position."""
        base_offset, places = self.base_offset, self._places
        entry = bisect_right(places, (offset - base_offset) << 32 | _POSITION_MASK) - 1
        if entry < 0:
            return base_offset, 0
        place = places[entry]
        return Offset(base_offset + (place >> 32)), place & _POSITION_MASK

    def position_before_time(self, timestamp: TimestampMs) -> tuple[Offset, int]:
        """The last known batch before which, itself included, everything is older than `timestamp`."""
        return self._place(bisect_left(self._timestamps, timestamp) - 1)

    def _place(self, entry: int) -> tuple[Offset, int]:
        if entry < 0:
            return self.base_offset, 0
        place = self._places[entry]
        return Offset(self.base_offset + (place >> 32)), place & _POSITION_MASK

    @property
    def last_position(self) -> int:
        """Position of the last batch known; the caller has seen that there is one."""
        return self._places[-1] & _POSITION_MASK

    def make_writable(self) -> None:
        """Brings a loaded index into memory, so that its segment can grow on."""
        self._places = array("Q", self._places.tobytes())
        self._timestamps = array("q", self._timestamps.tobytes())

    def rewind(self, position: int) -> None:
        """Goes back to the last known place before `position`; a scan from there finds the rest again."""
        assert isinstance(self._places, array)
        assert isinstance(self._timestamps, array)
        kept = len(self._places)
        while kept and self._places[kept - 1] & _POSITION_MASK >= position:
            kept -= 1
        self.max_timestamp = TimestampMs(self._timestamps[kept - 1]) if kept else NO_TIMESTAMP
        self.next_offset, self.log_bytes = self._place(kept - 1)
        del self._places[max(kept - 1, 0) :]
        del self._timestamps[max(kept - 1, 0) :]

    def save(self, filesystem: Filesystem, path: str, *, sync: bool = False) -> None:
        """A sync is worth it only at a checkpoint, where losing the index would mean to read the whole segment."""
        places, timestamps = self._places.tobytes(), self._timestamps.tobytes()
        facts = (self.base_offset, self.next_offset, self.log_bytes, self.max_timestamp, len(self._places))
        head = _HEAD.pack(_MAGIC, _VERSION, *facts)
        crc = crc32c(timestamps, crc32c(places, crc32c(head)))
        file = filesystem.open(path + UNFINISHED, create=True)
        try:
            file.truncate(0)
            file.write(0, (head, _CRC.pack(crc), places, timestamps))
            if sync:
                file.sync()
        finally:
            file.close()
        filesystem.rename(path + UNFINISHED, path)

    def copy(self, *, next_offset: Offset, log_bytes: int) -> "SparseIndex":
        """As it is now, to be saved while the segment grows on."""
        copied = SparseIndex(self.base_offset)
        copied.next_offset, copied.log_bytes, copied.max_timestamp = next_offset, log_bytes, self.max_timestamp
        copied._places, copied._timestamps = self._places[:], self._timestamps[:]
        return copied

    @classmethod
    def load(
        cls, filesystem: Filesystem, path: str, *, base_offset: Offset, log_bytes: int, or_shorter: bool = False
    ) -> "SparseIndex | None":
        """None where there is no index, or one that does not belong to a .log of that name and size.

        `or_shorter` takes one of an earlier moment too, when the .log was not as long yet.
        """
        if not filesystem.exists(path):
            return None
        file = filesystem.open(path)
        try:
            content = file.map()
        finally:
            file.close()
        if len(content) < _ENTRIES_AT:
            return None
        magic, version, base, next_offset, described_bytes, max_timestamp, count = _HEAD.unpack_from(content)
        if (magic, version, base) != (_MAGIC, _VERSION, base_offset):
            return None
        if described_bytes != log_bytes and not (or_shorter and described_bytes < log_bytes):
            return None
        entries = content[_ENTRIES_AT:]
        if len(entries) != count * 16:
            return None
        if crc32c(entries, crc32c(content[: _HEAD.size])) != _CRC.unpack_from(content, _HEAD.size)[0]:
            return None
        index = cls(base_offset)
        index.next_offset, index.log_bytes, index.max_timestamp = (
            Offset(next_offset),
            described_bytes,
            TimestampMs(max_timestamp),
        )
        index._places = entries[: count * 8].cast("Q")
        index._timestamps = entries[count * 8 :].cast("q")
        return index
