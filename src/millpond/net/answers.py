"""The answers of one connection, in the order of its requests.

Invariant: what `take_ready` gives out follows the order of `put`; an answer that is ready waits for those before it.
Driven by connection.py.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence

from millpond.model.ports import Buffer
from millpond.net.frames import LENGTH, LENGTH_BYTES

Answer = list[Buffer] | tuple[Buffer, ...]
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

    def add(self, answer: Sequence[Buffer]) -> None:
        length = sum(map(len, answer))
        pieces = self.pieces
        pieces.append(_pack_length(length))
        pieces.extend(answer)
        self.frame_count += 1
        self.size_bytes += length + LENGTH_BYTES


class AnswerQueue:
    __slots__ = ("_waiting", "held_bytes")

    def __init__(self) -> None:
        self._waiting: deque[tuple[AnswerFuture | Answer, int]] = deque()
        self.held_bytes = 0
        """By requests that wait for their answer, or answers for their turn."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, answer: AnswerFuture | Answer, *, held_bytes: int) -> None:
        self._waiting.append((answer, held_bytes))
        self.held_bytes += held_bytes

    def is_first(self, answer: AnswerFuture) -> bool:
        return bool(self._waiting) and self._waiting[0][0] is answer

    def take_ready(self, batch: Batch) -> AnswerFuture | None:
        """Moves the answers whose turn it is. Raises what a handler raised, once those before it have been moved.

        Returns whose turn it is then.
        """
        waiting = self._waiting
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
        left = [(answer, held) for answer, held in self._waiting if isinstance(answer, asyncio.Future)]
        self._waiting.clear()
        self.held_bytes = 0
        return left
