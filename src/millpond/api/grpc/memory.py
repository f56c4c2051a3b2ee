"""How much memory the calls of the door hold together, and who waits until it is less.

Invariant: what is held is never more than the limit, unless one alone needs more; what waits for room, and is in memory
already, is no more than the limit either: beyond that, and after a while, whoever waits is told that the broker is
busy.
On the loop. Driven by all that reads requests and writes answers.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from millpond.api.anywhere.refusals import Refusal


class Memory:
    def __init__(self, bytes_max: int, *, wait_seconds: float) -> None:
        self._bytes_max = bytes_max
        self._wait_seconds = wait_seconds
        self.held_bytes = 0
        self.waiting_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """In the order in which they asked; `give` gives it back."""
        if not self._waiting and self._has_room(size):
            self.held_bytes += size
            return
        if self.waiting_bytes + size > self._bytes_max:
            raise _busy(self._bytes_max)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        self.waiting_bytes += size
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(size)  # it was granted at the last moment, and nobody is there to use it
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self.waiting_bytes -= size
                self._grant()
            if isinstance(error, TimeoutError):
                raise _busy(self._bytes_max) from None
            raise

    def give(self, size: int) -> None:
        self.held_bytes -= size
        self._grant()

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        await self.take(size)
        try:
            yield
        finally:
            self.give(size)

    def _has_room(self, size: int) -> bool:
        return not self.held_bytes or self.held_bytes + size <= self._bytes_max

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._has_room(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            self.waiting_bytes -= size
            if not turn.cancelled():  # who gave up goes in its next turn of the loop
                self.held_bytes += size
                turn.set_result(None)


def _busy(bytes_max: int) -> Refusal:
    return Refusal(503, "busy", f"the calls of this broker hold {bytes_max} bytes together; ask again a little later")
