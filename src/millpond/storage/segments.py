"""The segments of one log, in order of their offsets; the last one grows.

Invariant: base offsets ascend strictly, there is at least one segment once a log is open, and only the last is not
sealed. Changes here are of the list alone: files come and go by the hands of log.py and recovery.py.
"""

from bisect import bisect_right
from collections.abc import Iterator

from millpond.model.ids import Offset
from millpond.model.ports import Filesystem
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.retention import SegmentFacts
from millpond.storage.segment import Segment


class Segments:
    __slots__ = ("_bases", "_index_interval", "_list", "active", "directory", "epochs", "filesystem")

    def __init__(self, filesystem: Filesystem, directory: str, epochs: LeaderEpochs, *, index_interval: int) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.epochs = epochs
        self._index_interval = index_interval
        self._list: list[Segment] = []
        self._bases: list[Offset] = []
        self.active: Segment
        """The last one."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._list

    @property
    def first_offset(self) -> Offset:
        return self._bases[0]

    def existing(self, base_offset: Offset, *, next_offset: Offset) -> Segment:
        """A sealed segment for a file that is there; not in the list yet."""
        return Segment(
            self.filesystem,
            self.directory,
            base_offset,
            next_offset=next_offset,
            epochs=self.epochs,
            index_interval=self._index_interval,
        )

    def create(self, base_offset: Offset) -> Segment:
        """A new, empty last segment. Its name is durable after a `sync_directory`."""
        segment = Segment.create(
            self.filesystem, self.directory, base_offset, epochs=self.epochs, index_interval=self._index_interval
        )
        self.append(segment)
        return segment

    def plan(self, base_offset: Offset) -> None:
        """The first segment of a log that has no files yet."""
        self.append(
            Segment.planned(
                self.filesystem, self.directory, base_offset, epochs=self.epochs, index_interval=self._index_interval
            )
        )

    def append(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1], (segment, self._bases)
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def holding(self, offset: Offset) -> Segment:
        """The segment that `offset` is in, or would be."""
        return self._list[bisect_right(self._bases, offset) - 1]

    def facts(self) -> list[SegmentFacts]:
        return [SegmentFacts(each.base_offset, each.next_offset, each.size, each.max_timestamp) for each in self._list]

    def first(self, count: int) -> list[Segment]:
        return self._list[:count]

    def wholly_before(self, offset: Offset) -> list[Segment]:
        """Those that hold nothing at or behind `offset`; never the last."""
        return [each for each in self._list[:-1] if each.next_offset <= offset]

    def from_on(self, offset: Offset) -> list[Segment]:
        """Those that begin at or behind `offset`; never the first."""
        return [each for each in self._list[1:] if each.base_offset >= offset]

    def remove(self, segments: list[Segment]) -> None:
        self._list = [each for each in self._list if each not in segments]
        self._bases = [each.base_offset for each in self._list]
        self.active = self._list[-1]

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Puts one in the place of some neighbours."""
        first = self._list.index(old[0])
        self._list[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]

    def close(self) -> None:
        for segment in self._list:
            segment.close()
