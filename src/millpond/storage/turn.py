"""Whose turn it is at the files of a log: one at a time, in the order in which they asked.

As asyncio.Lock, and can be had without a task: a commit round is begun by a callback, some thousand times a second.
Invariant: between being let have the turn and `release` nobody else has it. Driven by commit.py and log.py.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class Turn:
    __slots__ = ("_is_taken", "_queue")

    def __init__(self) -> None:
        self._is_taken = False
        self._queue: deque[Callable[[], None]] = deque()

    def locked(self) -> bool:
        return self._is_taken

    def take(self, then: Callable[[], None]) -> None:
        """Calls `then` once it is the caller's turn: at once, or from the loop."""
        if self._is_taken:
            self._queue.append(then)
        else:
            self._is_taken = True
            then()

    def release(self) -> None:
        """The next one goes on in the loop's next turn, and the others that end in this one count for it."""
        if self._queue:
            asyncio.get_running_loop().call_soon(self._queue.popleft())
        else:
            self._is_taken = False

    async def acquire(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(partial(self._grant, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it had been granted already
                self.release()
            raise

    def _grant(self, granted: "asyncio.Future[None]") -> None:
        if granted.cancelled():
            self.release()
        else:
            granted.set_result(None)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()
