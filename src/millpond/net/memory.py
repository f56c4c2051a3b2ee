"""How much memory all connections of a server hold, and who waits until it is less.

Invariant: whoever takes more while `used_bytes` is above the limit waits, except for one at a time, who may finish the
frame it is in. Without it, frames that are each half received could fill the memory and wait for each other.
So memory stays below the limit, plus one read of each connection, plus one frame.
Driven by connection.py, on the loop.
"""

from typing import Protocol


class Holder(Protocol):
    """A connection, as far as memory goes."""

    def memory_granted(self) -> None:
        """It need not wait any more. Must return before it takes or gives back memory."""


class MemoryBudget:
    __slots__ = ("_bytes_max", "_exempt", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        self._waiting: dict[Holder, None] = {}
        """In the order they came."""
        self._exempt: Holder | None = None

    @property
    def exceeded(self) -> bool:
        return self.used_bytes > self._bytes_max

    def is_exempt(self, holder: Holder) -> bool:
        return self._exempt is holder

    def is_tight(self) -> bool:
        """Whether anybody waits, or may have to: else nobody needs to ask."""
        return self.used_bytes > self._bytes_max or bool(self._waiting) or self._exempt is not None

    def waits(self, holder: Holder, *, is_more: bool, mid_frame: bool, answering: bool) -> bool:
        """After `used_bytes` has changed: whether the holder has to wait; then `memory_granted` will be called.

        Whoever is neither in the middle of a frame nor waits for an answer gives back what it has by itself.
        """
        exempt = self._exempt is holder
        if exempt and not mid_frame and not answering:
            self._exempt = None
        elif exempt:
            if self.exceeded and not mid_frame:
                self._waiting[holder] = None  # one frame, and no second one
            if holder in self._waiting and not answering:
                self._exempt = None  # what came behind that frame waits as others do, and they may be first
        elif is_more and self.exceeded and (mid_frame or answering):
            self._waiting[holder] = None
        if self._waiting:
            self._wake()
            return holder in self._waiting
        return False

    def leave(self, holder: Holder, held_bytes: int = 0) -> None:
        """The holder takes nothing more, and gives back so much."""
        self._waiting.pop(holder, None)
        self.used_bytes -= held_bytes
        self.waits(holder, is_more=False, mid_frame=False, answering=False)

    def _wake(self) -> None:
        while self._waiting and not self.exceeded:
            self._next().memory_granted()
        if self._waiting and self._exempt is None:
            self._exempt = self._next()
            self._exempt.memory_granted()

    def _next(self) -> Holder:
        holder = next(iter(self._waiting))
        del self._waiting[holder]
        return holder
