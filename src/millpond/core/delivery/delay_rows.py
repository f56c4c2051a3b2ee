"""Rows of three numbers in order of their ids: delayed messages, as they are kept in memory.

A row is a message's id, when it is due (negative for a schedule, 0 once it is done with), and the offset of the
control batch that holds its record. Rows lie in chunks of arrays, 24 bytes each. A chunk lets go of its rows that are
done with when they are more than the others; so nothing costs more than one chunk's work, however many wait.

Invariants: ids ascend, and no chunk is empty.
Pure. Driven by delays.py.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final, TypeAlias

DONE: Final = 0
CHUNK_ROWS: Final = 4_096

Numbers: TypeAlias = "array[int]"


class Chunk:
    __slots__ = ("dues", "ids", "live", "places")

    def __init__(self, ids: Numbers, dues: Numbers, places: Numbers, live: int) -> None:
        self.ids, self.dues, self.places = ids, dues, places
        self.live = live
        """So many are not done with."""

    def copy(self) -> "Chunk":
        return Chunk(self.ids[:], self.dues[:], self.places[:], self.live)

    def columns(self) -> tuple[Numbers, Numbers, Numbers]:
        """Ids, dues and places of what is not done with."""
        ids, dues, places = self.ids, self.dues, self.places
        if self.live == len(ids):
            return ids, dues, places
        return array("q", compress(ids, dues)), array("q", filter(None, dues)), array("q", compress(places, dues))


Place = tuple[Chunk, int]
"""A row: its chunk, and its number there. Good until anything changes."""


class DelayRows:
    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []
        """The first id of each chunk."""
        self._count = 0

    def __len__(self) -> int:
        """Of those that are not done with."""
        return self._count

    def find(self, id_: int) -> Place | None:
        """None where there is none, or it is done with."""
        number = bisect_right(self._firsts, id_) - 1
        if number < 0:
            return None
        chunk = self._chunks[number]
        row = bisect_left(chunk.ids, id_)
        if row == len(chunk.ids) or chunk.ids[row] != id_ or chunk.dues[row] == DONE:
            return None
        return chunk, row

    def extend(self, ids: Sequence[int], dues: Numbers, places: Numbers) -> None:
        """Behind all that are here; none is done with."""
        begin = 0
        while begin < len(dues):
            if not self._chunks or len(self._chunks[-1].ids) >= CHUNK_ROWS:
                self._chunks.append(Chunk(array("q"), array("q"), array("q"), 0))
                self._firsts.append(ids[begin])
            chunk = self._chunks[-1]
            end = min(len(dues), begin + CHUNK_ROWS - len(chunk.ids))
            chunk.ids.extend(ids[begin:end])
            chunk.dues += dues[begin:end]
            chunk.places += places[begin:end]
            chunk.live += end - begin
            begin = end
            if len(chunk.ids) == CHUNK_ROWS:  # an array that has grown has room to grow on; this one will not
                chunk.ids, chunk.dues, chunk.places = chunk.ids[:], chunk.dues[:], chunk.places[:]
        self._count += len(dues)

    def insert(self, id_: int, due: int, place: int) -> None:
        """Among those that are here; there is none with that id."""
        if not self._chunks:
            self.extend([id_], array("q", [due]), array("q", [place]))
            return
        number = max(bisect_right(self._firsts, id_) - 1, 0)
        chunk = self._chunks[number]
        row = bisect_left(chunk.ids, id_)
        if row < len(chunk.ids) and chunk.ids[row] == id_:  # it was done with
            chunk.dues[row], chunk.places[row] = due, place
        else:
            chunk.ids.insert(row, id_)
            chunk.dues.insert(row, due)
            chunk.places.insert(row, place)
        chunk.live += 1
        self._count += 1
        self._firsts[number] = chunk.ids[0]
        if len(chunk.ids) > 2 * CHUNK_ROWS:
            self._split(number)

    def finish(self, at: Place) -> None:
        """A row that is done with."""
        chunk, row = at
        chunk.dues[row] = DONE
        chunk.live -= 1
        self._count -= 1
        if not chunk.live or len(chunk.ids) - chunk.live > max(CHUNK_ROWS // 16, chunk.live):
            self._tidy(chunk)

    def live_from(self, id_: int) -> Iterator[tuple[int, int, int]]:
        """Id, due moment and place of those that are not done with, from an id on. Nothing may change meanwhile."""
        first = max(bisect_right(self._firsts, id_) - 1, 0)
        for number in range(first, len(self._chunks)):
            chunk = self._chunks[number]
            begin = bisect_left(chunk.ids, id_) if number == first else 0
            for row in range(begin, len(chunk.ids)):
                due = chunk.dues[row]
                if due != DONE:
                    yield chunk.ids[row], due, chunk.places[row]

    def copies(self) -> list[Chunk]:
        """All of them, as they are now."""
        return [chunk.copy() for chunk in self._chunks]

    # Within

    def _tidy(self, chunk: Chunk) -> None:
        number = bisect_right(self._firsts, chunk.ids[0]) - 1
        if not chunk.live:
            del self._chunks[number], self._firsts[number]
            return
        chunk.ids, chunk.dues, chunk.places = chunk.columns()
        self._firsts[number] = chunk.ids[0]
        if number and len(self._chunks[number - 1].ids) + len(chunk.ids) <= CHUNK_ROWS:
            before = self._chunks[number - 1]
            before.ids += chunk.ids
            before.dues += chunk.dues
            before.places += chunk.places
            before.live += chunk.live
            del self._chunks[number], self._firsts[number]

    def _split(self, number: int) -> None:
        chunk = self._chunks[number]
        half = len(chunk.ids) // 2
        dues = chunk.dues[half:]
        behind = Chunk(chunk.ids[half:], dues, chunk.places[half:], len(dues) - dues.count(DONE))
        del chunk.ids[half:], chunk.dues[half:], chunk.places[half:]
        chunk.live -= behind.live
        self._chunks.insert(number + 1, behind)
        self._firsts.insert(number + 1, behind.ids[0])
        assert chunk.ids, "half of a chunk has rows"
