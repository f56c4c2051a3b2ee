"""Messages of one key go out one at a time, in order; other keys do not wait for them.

Invariant: of the messages of a key that are not done, only the first is anybody's to hand out.
Pure; part of the ledger, in groups that are ordered by key.
"""

from collections import deque
from typing import NamedTuple

from millpond.core.delivery.states import Lane


class Behind(NamedTuple):
    offset: int
    lane: Lane


class KeyOrder:
    def __init__(self) -> None:
        self._key_of: dict[int, bytes] = {}
        """By offset, of those in front."""
        self._behind: dict[bytes, deque[Behind]] = {}
        """By key; there is an entry exactly while a message of that key is in front."""
        self._offsets_behind: set[int] = set()

    @property
    def size(self) -> int:
        """Messages that are in front of others of their key, or behind."""
        return len(self._key_of) + len(self._offsets_behind)

    def is_behind(self, offset: int) -> bool:
        return offset in self._offsets_behind

    def in_front(self, first: int, last: int) -> list[int]:
        """Which of these offsets are, in order."""
        if last - first < len(self._key_of):
            return [each for each in range(first, last + 1) if each in self._key_of]
        return sorted(each for each in self._key_of if first <= each <= last)

    def admit(self, offset: int, key: bytes | None, lane: Lane) -> bool:
        """Whether it is in front; otherwise it is kept here until those before it are done."""
        if key is None:
            return True
        behind = self._behind.get(key)
        if behind is None:
            self._key_of[offset] = key
            self._behind[key] = deque()
            return True
        behind.append(Behind(offset, lane))
        self._offsets_behind.add(offset)
        return False

    def finish(self, offset: int) -> Behind | None:
        """The one that is in front now that this one is done."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return None
        behind = self._behind[key]
        if not behind:
            del self._behind[key]
            return None
        following = behind.popleft()
        self._offsets_behind.discard(following.offset)
        self._key_of[following.offset] = key
        return following

    def trim(self, start: int) -> list[Behind]:
        """Those before `start` are done, all at once; returns who is in front instead."""
        fronts = []
        for offset in [each for each in self._key_of if each < start]:
            following = self.finish(offset)
            while following is not None and following.offset < start:
                following = self.finish(following.offset)
            if following is not None:
                fronts.append(following)
        return fronts
