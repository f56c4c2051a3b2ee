"""What the servicers work with, and how each of their calls is answered.

Made by server.py; nothing here decides anything.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.reading import Reading
from millpond.api.grpc.failures import Context, answering
from millpond.api.grpc.in_order import Sized
from millpond.api.grpc.limits import GrpcLimits
from millpond.api.grpc.memory import Memory
from millpond.broker.node import Node
from millpond.model.addresses import Address

Answer = TypeVar("Answer", bound=Sized)
Write = Callable[[Answer], Awaitable[None]]


class Calls:
    def __init__(
        self, node: Node, limits: GrpcLimits, *, kafka: Address, on_error: Callable[[BaseException], None]
    ) -> None:
        """`kafka` is where this broker's own Kafka port is reached."""
        self.node = node
        self.kafka = kafka
        self.limits = limits
        self.neighbours = Neighbours(kafka, node.clock, node.rng)
        self.producing = Producing(node, self.neighbours, on_error=on_error)
        self.reading = Reading(node, self.neighbours)
        self.requests_memory = Memory(limits.requests_bytes_max, wait_seconds=limits.memory_wait_seconds)
        self.answers_memory = Memory(limits.answers_bytes_max, wait_seconds=limits.memory_wait_seconds)
        self._on_error = on_error

    async def close(self) -> None:
        await self.producing.close()
        await self.neighbours.close()

    def answering(self, context: Context) -> AbstractAsyncContextManager[None]:
        """Around all that a call does that streams, or holds nothing worth counting."""
        return answering(context, self._on_error)

    @asynccontextmanager
    async def holding(self, request: Sized, context: Context) -> AsyncIterator[None]:
        """Around all that a call does whose request is in memory until it is answered."""
        async with answering(context, self._on_error), self.requests_memory.room(request.ByteSize()):
            yield

    def writing(self, write: Write[Answer]) -> Write[Answer]:
        """Answers that are written only where there is room for them, and held until they are taken."""

        async def write_held(answer: Answer) -> None:
            async with self.answers_memory.room(answer.ByteSize()):
                await write(answer)

        return write_held
