"""Messages of one partition that are being worked on, in any order: how far everything is done.

Invariant: everything before `done_to` is finished; the message at `done_to`, if there is one, is not.
Pure. Driven by processing.py.
"""

from collections import deque


class Progress:
    __slots__ = ("_begun", "_finished", "done_to")

    def __init__(self, first: int) -> None:
        self.done_to = first
        self._begun: deque[int] = deque()
        self._finished: set[int] = set()

    def __len__(self) -> int:
        """How many are being worked on."""
        return len(self._begun) - len(self._finished)

    def begin(self, offset: int) -> None:
        """Offsets rise; there may be gaps between them."""
        assert not self._begun or offset > self._begun[-1], "a partition is read in order"
        if not self._begun:
            self.done_to = offset
        self._begun.append(offset)

    def finish(self, offset: int) -> None:
        self._finished.add(offset)
        while self._begun and self._begun[0] in self._finished:
            first = self._begun.popleft()
            self._finished.discard(first)
            self.done_to = self._begun[0] if self._begun else first + 1
