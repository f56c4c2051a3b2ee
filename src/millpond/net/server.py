"""A listening socket, and the connections that came through it.

    server = FrameServer(handle, NetworkLimits(), on_error=report)
    await server.start("127.0.0.1", 9092)
    ...
    await server.stop(grace_seconds=10)

Invariant: from `start` to the end of `stop` every connection is known here, and none beyond the limits is.
Driven by the composition root; runs on asyncio, uvloop and the simulator's loop alike.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Sequence

from millpond.net.answers import Answer, AnswerFuture, Later
from millpond.net.closing import close_listeners
from millpond.net.connection import Connection, Shared
from millpond.net.facts import CloseReason, NetworkFacts
from millpond.net.frames import SCRATCH_BYTES
from millpond.net.limits import NetworkLimits
from millpond.net.memory import MemoryBudget

BACKLOG = 1024
TURNS_TO_REFUSE = 4
"""Of the loop, within which a connection that was accepted at the last moment is made, refused and closed."""

Handle = Callable[[memoryview, Connection], Answer | Later | None]
"""Is given the body of a frame, writable and its own. Gives the pieces of the answer's body, or a coroutine, future or
promise for them, or None where no answer is to be sent. A future must be the request's alone: it is cancelled when the
connection ends, and a promise abandoned. Nothing may be raised; what is raised is a bug, and ends the connection."""


def _nothing(connection: Connection) -> None:
    pass


def _nothing_more(connection: Connection, reason: CloseReason) -> None:
    pass


class FrameServer:
    def __init__(
        self,
        handle: Handle,
        limits: NetworkLimits,
        *,
        on_error: Callable[[BaseException, Connection], None],
        on_connect: Callable[[Connection], None] = _nothing,
        on_disconnect: Callable[[Connection, CloseReason], None] = _nothing_more,
    ) -> None:
        """`on_error` is told of each bug in `handle` and the hooks; nobody else is."""
        self.facts = NetworkFacts()
        self._handle = handle
        self._limits = limits
        self._on_error = on_error
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._memory = MemoryBudget(limits.memory_bytes_max)
        self._listener: asyncio.Server | None = None
        self._stopping = False
        self._connections: dict[Connection, None] = {}
        self._per_peer: Counter[str] = Counter()
        self._orphans: set[AnswerFuture] = set()
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens."""
        assert self._listener is not None, "start it first"
        return [socket.getsockname()[:2] for socket in self._listener.sockets]

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    @property
    def memory_bytes(self) -> int:
        """In partly received frames and unanswered requests."""
        return self._memory.used_bytes

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    async def start(self, host: str | Sequence[str] | None, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Port 0 takes a free one."""
        assert self._listener is None, "a server starts once"
        loop = asyncio.get_running_loop()
        shared = Shared(
            loop=loop,
            limits=self._limits,
            facts=self.facts,
            memory=self._memory,
            scratch=bytearray(SCRATCH_BYTES),
            handle=self._handle,
            admit=self._admit,
            leave=self._leave,
            fail=self._on_error,
            orphans=self._orphans,
        )
        numbers = iter(range(1, 1 << 63))
        self._listener = await loop.create_server(
            lambda: Connection(next(numbers), shared), host, port, backlog=BACKLOG, ssl=tls
        )

    async def stop(self, grace_seconds: float) -> None:
        """Accepts nothing more, answers what was asked, then closes; aborts what is left after the grace.

        Handlers that were cancelled have as long again to come to their end.
        """
        assert self._listener is not None, "start it first"
        self._stopping = True
        await close_listeners(self._listener)
        for connection in self.connections:
            connection.finish(CloseReason.STOPPED)
        if not await self._all_gone_within(grace_seconds):
            for connection in self.connections:
                connection.abort()
            await self._all_gone.wait()
        if self._orphans:
            await asyncio.wait(list(self._orphans), timeout=grace_seconds)
        await self._listener.wait_closed()
        for _ in range(TURNS_TO_REFUSE):
            await asyncio.sleep(0)

    async def _all_gone_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._all_gone.wait()
        except TimeoutError:
            return False
        return True

    def _admit(self, connection: Connection) -> bool:
        limits, host = self._limits, connection.peer[0]
        full = len(self._connections) >= limits.connections_max
        if full or self._stopping or self._per_peer[host] >= limits.connections_per_peer_max:
            self.facts.connections_refused += 1
            return False
        self._connections[connection] = None
        self._all_gone.clear()
        self._per_peer[host] += 1
        self.facts.connections_open += 1
        self.facts.connections_total += 1
        try:
            self._on_connect(connection)
        except Exception as error:
            connection.finish(CloseReason.HANDLER_FAILED)
            self._on_error(error, connection)
        return True

    def _leave(self, connection: Connection, reason: CloseReason) -> None:
        del self._connections[connection]
        host = connection.peer[0]
        self._per_peer[host] -= 1
        if not self._per_peer[host]:
            del self._per_peer[host]
        self.facts.connections_open -= 1
        self.facts.closes[reason] += 1
        if not self._connections:
            self._all_gone.set()
        try:
            self._on_disconnect(connection, reason)
        except Exception as error:
            self._on_error(error, connection)
