"""When things are due, by key: moving a deadline later, as every heartbeat does, costs no more than a dict entry.

Invariant: each key that has a deadline has one live entry in the heap, at or before that deadline.
Pure; every machine of this room keeps one, and so does the registry for its groups.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    __slots__ = ("_at", "_heap", "_pushes", "_queued")

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}  # where the key's live heap entry is
        self._heap: list[tuple[int, int, Key]] = []
        self._pushes = 0  # breaks ties, so that keys need no order and equal times come first in, first out

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def clear(self, key: Key) -> None:
        self._at.pop(key, None)

    def next(self) -> int | None:
        self._settle()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: int) -> Key | None:
        """The key whose time came first, and has come; its deadline is cleared."""
        first = self.next()
        if first is None or first > now:
            return None
        _, _, key = heappop(self._heap)
        del self._queued[key], self._at[key]
        return key

    def _push(self, key: Key, at_ms: int) -> None:
        self._pushes += 1
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, self._pushes, key))

    def _settle(self) -> None:
        """Brings the first entry of the heap to where its key is really due."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if self._queued.get(key) == at_ms and self._at.get(key) == at_ms:
                return
            heappop(self._heap)
            if self._queued.get(key) == at_ms:
                del self._queued[key]
                if key in self._at:
                    self._push(key, self._at[key])
