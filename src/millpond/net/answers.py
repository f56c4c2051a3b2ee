"""The answers of one connection, in the order of its requests.

Invariant: what `take_ready` gives out follows the order of `put`; an answer that is ready waits for those before it.
Driven by connection.py.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable

from millpond.model.ports import Buffer
from millpond.net.frames import LENGTH, LENGTH_BYTES

Answer = list[Buffer]
"""The pieces of one frame's body, in order; views must be of bytes."""

Later = Awaitable[Answer | None]
AnswerFuture = asyncio.Future[Answer | None]

_pack_length = LENGTH.pack


class Batch:
    """Answers that go out in one write."""

    __slots__ = ("frame_count", "pieces", "size_bytes")

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []
        self.frame_count = 0
        self.size_bytes = 0

    def add(self, answer: Answer) -> None:
        length = len(answer[0]) if len(answer) == 1 else sum(map(len, answer))
        self.pieces += _pack_length(length), *answer
        self.frame_count += 1
        self.size_bytes += length + LENGTH_BYTES


class AnswerQueue:
    __slots__ = ("held_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[AnswerFuture | Answer, int]] = deque()
        """For others to look whether there are any, and how many."""
        self.held_bytes = 0
        """By requests that wait for their answer, or answers for their turn."""

    def put(self, answer: AnswerFuture | Answer, *, held_bytes: int) -> None:
        self.waiting.append((answer, held_bytes))
        self.held_bytes += held_bytes

    def is_first(self, answer: AnswerFuture) -> bool:
        return bool(self.waiting) and self.waiting[0][0] is answer

    def take_ready(self, batch: Batch) -> AnswerFuture | None:
        """Moves the answers whose turn it is. Raises what a handler raised, once those before it have been moved.

        Returns whose turn it is then.
        """
        waiting = self.waiting
        while waiting:
            answer, held_bytes = waiting[0]
            if isinstance(answer, asyncio.Future):
                if not answer.done():
                    return answer
                waiting.popleft()
                self.held_bytes -= held_bytes
                if (late := answer.result()) is not None:
                    batch.add(late)
            else:
                waiting.popleft()
                self.held_bytes -= held_bytes
                batch.add(answer)
        return None

    def take_all(self) -> list[tuple[AnswerFuture, int]]:
        """Those that wait for a handler, with the bytes each one holds; nothing is left."""
        left = [(answer, held) for answer, held in self.waiting if isinstance(answer, asyncio.Future)]
        self.waiting.clear()
        self.held_bytes = 0
        return left
