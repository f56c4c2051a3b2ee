"""What one simulated file holds: what everybody reads, what a power cut leaves, and the changes in between.

Invariant: `durable` with every change of `pending` applied in order is what a sync makes durable; it equals `current`
unless a sync failed since the last crash, when `current` shows bytes that no later sync will write.
Pure apart from the `Rng` handed in. Driven by testing/disk.py.

How a sector survives. The drive writes whole sectors of 512 bytes from the page cache, each one when it likes. So a
sector found after a power cut is a picture of the file after *some* of its pending changes, always the first so many,
and each sector has its own number. One that was never written reads as what was there before, or as zeros. The size is
metadata and moves on its own: between the durable one and the newest.
"""

import weakref
from typing import Literal

from millpond.model.ports import Rng

SECTOR_BYTES = 512

CrashMode = Literal["random", "lose", "keep"]
"""What becomes of un-synced changes: anything the operating system allows, none of them, all of them."""

_Write = tuple[int, bytes]
_Change = _Write | int
"""A write (position, bytes), or a truncate to a size."""


class _Mapped(bytearray):
    """The bytes behind a map. A subclass, because only a subclass of bytearray takes weak references."""


class Contents:
    """An inode: it outlives its name, and all handles to it share it."""

    __slots__ = ("_diverged", "_maps", "current", "durable", "linked", "pending")

    def __init__(self) -> None:
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[_Change] = []
        self.linked = True
        """Whether a directory names it: bytes without a name are not counted against the capacity."""
        self._diverged = False
        self._maps: list[weakref.ref[_Mapped]] = []

    def write(self, position: int, data: bytes) -> None:
        if data:
            _apply(self.current, (position, data))
            self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        if size < len(self.current):
            mapped_bytes = max((len(m) for ref in self._maps if (m := ref()) is not None), default=0)
            assert size >= mapped_bytes, f"would SIGBUS: shrinking to {size} a file of which {mapped_bytes} are mapped"
        _apply(self.current, size)
        self.pending.append(size)

    def map(self, size: int | None = None) -> memoryview:
        """A copy of now. The copy lives as long as its views, which is how `truncate` knows of them."""
        mapped = _Mapped(self.current if size is None else self.current[:size])
        if not mapped:
            return memoryview(b"")
        self._maps = [ref for ref in self._maps if ref() is not None]
        self._maps.append(weakref.ref(mapped))
        return memoryview(mapped).toreadonly()

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def fail_sync(self) -> None:
        """As Linux does: the pages are marked clean, so nothing will ever write them, and reads still find them.

        A cut is metadata and stays pending: a journal that loses some stops the file system instead.
        """
        self._diverged = self._diverged or bool(self.pending)
        self.pending = [change for change in self.pending if isinstance(change, int)]

    def rot(self, position: int, bit: int) -> None:
        """Flips a bit wherever it is kept: read now, written by the next sync, or found after a crash."""
        mask = 1 << bit
        self.current[position] ^= mask
        if position < len(self.durable):
            self.durable[position] ^= mask
        for index, change in enumerate(self.pending):
            if not isinstance(change, int) and change[0] <= position < change[0] + len(change[1]):
                data = bytearray(change[1])
                data[position - change[0]] ^= mask
                self.pending[index] = (change[0], bytes(data))

    def drop_maps(self) -> None:
        """For when the process that made them is gone, whatever of it is still in memory here."""
        self._maps.clear()

    def crash(self, rng: Rng, mode: CrashMode) -> None:
        self.drop_maps()
        self.linked = True
        if self.pending:
            self._survive(rng, mode)
            self.pending.clear()
        elif not self._diverged:
            return
        self._diverged = False
        self.current = bytearray(self.durable)

    def _survive(self, rng: Rng, mode: CrashMode) -> None:
        lot = rng.randrange(0, 8) if mode == "random" else None
        if mode == "keep" or lot == 0:
            self.sync()
        elif mode == "lose" or lot == 1:
            pass
        elif lot in (2, 3, 4):
            self._survive_as_prefix(rng)
        else:
            self._survive_by_sector(rng)

    def _survive_as_prefix(self, rng: Rng) -> None:
        """The first so many changes, and of the next write the first so many bytes."""
        whole = rng.randrange(0, len(self.pending))
        for change in self.pending[:whole]:
            _apply(self.durable, change)
        torn = self.pending[whole]
        if not isinstance(torn, int):
            position, data = torn
            if kept := rng.randrange(0, len(data) + 1):
                _apply(self.durable, (position, data[:kept]))

    def _survive_by_sector(self, rng: Rng) -> None:
        """Each sector as of its own moment, each truncate or not; then the size, which may lie."""
        changes = len(self.pending)
        loss = rng.random()
        moments: dict[int, int] = {}
        size_min = len(self.durable)
        for number, change in enumerate(self.pending):
            if isinstance(change, int):
                if rng.random() >= loss:
                    _apply(self.durable, change)
                    size_min = min(size_min, change)
                continue
            position, data = change
            end = position + len(data)
            for sector in range(position // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1):
                moment = moments.get(sector)
                if moment is None:
                    # Mostly all or nothing: with many small writes a uniform draw would hardly ever give either.
                    whole = changes if rng.random() >= loss else 0
                    moment = moments[sector] = whole if rng.random() < 0.75 else rng.randrange(0, changes + 1)
                if number < moment:
                    first = max(position, sector * SECTOR_BYTES)
                    last = min(end, (sector + 1) * SECTOR_BYTES)
                    _apply(self.durable, (first, data[first - position : last - position]))
        if rng.random() < 0.5:
            size_max = max(len(self.durable), len(self.current))
            _apply(self.durable, rng.randrange(size_min, size_max + 1))


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, int):
        if change <= len(content):
            del content[change:]
        else:
            content.extend(bytes(change - len(content)))
    else:
        position, data = change
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
