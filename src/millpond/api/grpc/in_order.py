"""A stream of requests, each begun when it is read and answered in its turn.

Invariant: answers come in the order of their requests; what is begun and not answered is no more than the limits say:
beyond that no further request is read, and gRPC's flow control lets the sender wait. All of it is in the memory that
calls share.
Driven by the servicers, one for each stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from millpond.api.grpc.limits import GrpcLimits
from millpond.api.grpc.memory import Memory


class Sized(Protocol):
    def ByteSize(self) -> int: ...  # noqa: N802 - protobuf's name


Request = TypeVar("Request", bound=Sized)
Response = TypeVar("Response")
Begin = Callable[[Request], Awaitable[asyncio.Future[Response]]]
"""Returns when the next request may be begun; the future has no exception."""


class InOrder(Generic[Request, Response]):
    def __init__(
        self, requests: AsyncIterable[Request], begin: Begin[Request, Response], limits: GrpcLimits, memory: Memory
    ) -> None:
        self._requests = requests
        self._begin = begin
        self._limits = limits
        self._memory = memory
        self._begun: deque[tuple[asyncio.Future[Response], int]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    async def run(self, write: Callable[[Response], Awaitable[None]]) -> None:
        reader = asyncio.get_running_loop().create_task(self._read())
        try:
            while self._begun or not reader.done():
                if not self._begun:
                    await self._wait_change()
                    continue
                answer, size = self._begun[0]
                await write(await answer)
                self._begun.popleft()
                self._bytes -= size
                self._memory.give(size)
                self._changed.set()
            reader.result()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self._memory.give(self._bytes)

    async def _read(self) -> None:
        try:
            async for request in self._requests:
                size = request.ByteSize()
                while self._is_full(size):
                    await self._wait_change()
                await self._memory.take(size)
                self._bytes += size
                self._begun.append((await self._begin(request), size))
                self._changed.set()
        finally:
            self._changed.set()

    def _is_full(self, more: int) -> bool:
        """One request alone always has room."""
        if not self._begun:
            return False
        return len(self._begun) >= self._limits.in_flight_max or self._bytes + more > self._limits.in_flight_bytes_max

    async def _wait_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
