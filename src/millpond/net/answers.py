"""The answers of one connection, in the order of its requests.

Invariant: what `take_ready` gives out follows the order of `put`; an answer that is ready waits for those before it.
Driven by connection.py; promises also by whoever makes their answers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from millpond.model.ports import Buffer
from millpond.net.frames import LENGTH, LENGTH_BYTES
from millpond.net.memory import MemoryBudget

Answer = list[Buffer]
"""The pieces of one frame's body, in order; views must be of bytes."""

AnswerFuture = asyncio.Future[Answer | None]

_pack_length = LENGTH.pack


class Promise:
    """An answer that a call will bring. Who needs no task needs no future either, whose callback costs a turn of the
    loop, and more than all else that net does for a request."""

    # Of the class until they are set, as most are not: one is made for each request.
    is_done = False
    is_abandoned = False
    """Nobody wants it any more."""
    _answer: Answer | None = None
    _error: BaseException | None = None
    _then: "Callable[[Promise], object] | None" = None
    _on_abandon: Callable[[], object] | None = None

    def keep(self, answer: Answer | None) -> None:
        self._answer, self.is_done = answer, True
        if self._then is not None:
            self._then(self)

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.keep(None)

    def abandon(self) -> None:
        self.is_abandoned, self._then = True, None
        if self._on_abandon is not None:
            self._on_abandon()

    def when_done(self, then: "Callable[[Promise], object]") -> None:
        """For one that is not done yet."""
        self._then = then

    def when_abandoned(self, then: Callable[[], object]) -> None:
        self._on_abandon = then

    def result(self) -> Answer | None:
        if self._error is not None:
            raise self._error
        return self._answer


Later = Awaitable[Answer | None] | Promise
Waiting = AnswerFuture | Promise
"""For whom an answer in a queue waits."""


class Batch:
    """Answers that go out in one write."""

    __slots__ = ("frame_count", "pieces", "size_bytes")

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []
        self.frame_count = self.size_bytes = 0

    def add(self, answer: Answer) -> None:
        length = len(answer[0]) if len(answer) == 1 else sum(map(len, answer))
        self.pieces += _pack_length(length), *answer
        self.frame_count += 1
        self.size_bytes += length + LENGTH_BYTES


class AnswerQueue:
    """Its bytes count as memory from `put` on, until they are taken."""

    __slots__ = ("_held_bytes", "_memory", "waiting")

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self.waiting: deque[tuple[Waiting | Answer, int]] = deque()
        """For others to look whether there are any, and how many."""
        self._held_bytes = 0
        """By requests that wait for their answer, or answers for their turn."""

    def put(self, answer: Waiting | Answer, *, held_bytes: int) -> None:
        self.waiting.append((answer, held_bytes))
        self._held_bytes += held_bytes
        self._memory.used_bytes += held_bytes

    def is_first(self, answer: Waiting) -> bool:
        return bool(self.waiting) and self.waiting[0][0] is answer

    def take_ready(self, batch: Batch) -> Waiting | None:
        """Moves the answers whose turn it is. Raises what a handler raised, once those before it have been moved.

        Returns whose turn it is then.
        """
        waiting = self.waiting
        while waiting:
            answer, held_bytes = waiting[0]
            if not isinstance(answer, list) and not (answer.is_done if isinstance(answer, Promise) else answer.done()):
                return answer
            waiting.popleft()
            self._held_bytes -= held_bytes
            self._memory.used_bytes -= held_bytes
            ready = answer if isinstance(answer, list) else answer.result()
            if ready is not None:
                batch.add(ready)
        return None

    def take_all(self) -> list[tuple[Waiting, int]]:
        """Those that wait for a handler, with the bytes each one holds; nothing is left."""
        left = [(answer, held) for answer, held in self.waiting if not isinstance(answer, list)]
        self.waiting.clear()
        self._memory.used_bytes -= self._held_bytes
        self._held_bytes = 0
        return left
