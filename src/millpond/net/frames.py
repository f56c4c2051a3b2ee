"""Frames out of a stream of bytes: four bytes of length, big-endian and signed, then that many bytes.

    0        4                4+length
    | length | body           |

Bytes are read into a scratch buffer that all connections of a server share; whole frames are copied out of it, each
into memory of its own. A frame that is not whole yet gets its memory by and by, and is read straight into it.

Invariant: a body that was handed over is referred to by nothing here. No memory is taken because of a length alone:
a frame holds at most GROWTH times the bytes that came, and one small step.
Pure. Driven by connection.py: `room` and `arrived` take turns, then `next_frame` until None, then `settle`.
"""

from struct import Struct

from millpond.model.limits import KIB, MIB

LENGTH = Struct(">i")
LENGTH_BYTES = LENGTH.size
SCRATCH_BYTES = 64 * KIB
FIRST_STEP_BYTES = 4 * KIB
GROWTH = 16
"""So that a frame of a megabyte, whose first read brings 64 KiB, moves once and not five times."""
GROWTH_BYTES_MAX = MIB
"""Up to here memory grows by GROWTH, from here on it doubles."""

_unpack_length = LENGTH.unpack_from


class BadFrameLength(ValueError):
    """Not the length of a frame; what follows cannot be understood either."""


class FrameReader:
    __slots__ = ("_at", "_end", "_frame_bytes_max", "_have", "_need", "_partial", "_scratch", "_source", "_view")

    def __init__(self, scratch: bytearray, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = scratch
        self._view = memoryview(scratch)
        self._source = scratch
        """What is being read, from `_at` to `_end`: the scratch, or bytes that were kept from an earlier turn."""
        self._at = self._end = 0
        self._partial: bytearray | None = None
        """The body of a frame whose length has been read; never longer than `_need`."""
        self._have = self._need = 0

    @property
    def held_bytes(self) -> int:
        """Memory that belongs to this connection alone."""
        kept = 0 if self._source is self._scratch else len(self._source)
        return kept if self._partial is None else kept + len(self._partial)

    @property
    def mid_frame(self) -> bool:
        """The peer began a frame and has not sent the rest."""
        if self._partial is not None:
            return self._have < self._need
        return 0 < self._end - self._at < LENGTH_BYTES

    @property
    def holds_more(self) -> bool:
        """There are bytes that `next_frame` has not looked at."""
        return self._end - self._at >= LENGTH_BYTES or (self._partial is not None and self._have == self._need)

    def room(self, *, frugal: bool = False) -> memoryview:
        """Where the next bytes go; `frugal` takes no more memory than one read needs.

        Never resizes what it gave out before: somebody may still look at it.
        """
        partial = self._partial
        if partial is None or self._have == self._need:
            return self._view
        have = self._have
        if have == len(partial):
            grown = bytearray(min(self._need, have + FIRST_STEP_BYTES if frugal else self._step(have)))
            grown[:have] = partial
            self._partial = partial = grown
        return memoryview(partial)[have:]

    @staticmethod
    def _step(have: int) -> int:
        return max(FIRST_STEP_BYTES, 2 * have, min(GROWTH * have, GROWTH_BYTES_MAX))

    def arrived(self, size: int) -> None:
        """So many bytes are in the `room` given last."""
        if self._partial is not None and self._have < self._need:
            self._have += size
        elif self._at == self._end:
            self._source = self._scratch
            self._at, self._end = 0, size
        else:
            kept = self._source[self._at : self._end]
            kept += self._view[:size]
            self._source = kept
            self._at, self._end = 0, len(kept)

    def next_frame(self) -> memoryview | None:
        """A whole body, writable, or None while there is none; BadFrameLength when there never will be."""
        partial = self._partial
        if partial is not None:
            if self._have < self._need:
                return None
            self._partial = None
            return memoryview(partial)
        start = self._at + LENGTH_BYTES
        if start > self._end:
            return None
        length: int = _unpack_length(self._source, self._at)[0]
        if not 0 < length <= self._frame_bytes_max:
            raise BadFrameLength(f"a frame of {length} bytes; allowed is 1 to {self._frame_bytes_max}")
        stop = start + length
        if stop > self._end:
            # Only what is there: whether memory can be had for more is seen when more is to be read.
            self._partial = self._source[start : self._end]
            self._have, self._need = len(self._partial), length
            self._at = self._end
            return None
        self._at = stop
        return memoryview(self._source[start:stop])

    def settle(self) -> bool:
        """Keeps what has not been looked at, before the scratch goes to the next connection; whether it holds any."""
        if self._at == self._end:
            self._source = self._scratch
            self._at = self._end = 0
            return self._partial is not None
        if self._source is self._scratch:
            self._source = self._source[self._at : self._end]
            self._at, self._end = 0, len(self._source)
        return True

    def forget(self) -> None:
        """Drops everything that was received and not handed over."""
        self._partial = None
        self._source = self._scratch
        self._at = self._end = 0
