"""The HTTP server inside the broker's own loop, on sockets that were taken before.

Invariant: connections, and the memory of what they brought and has not been answered, are bounded; a connection past
its deadline is ended within TICK_SECONDS.
Loading this module loads what parses HTTP and JSON: do it last. Driven by app.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate

from millpond.api.http.connection import Handle, HttpConnection
from millpond.api.http.limits import HttpLimits
from millpond.model.ports import Clock
from millpond.net.closing import close_listeners
from millpond.telemetry.http import HttpFacts

TICK_SECONDS = 0.5
TURNS_TO_BEGIN = 3
"""Of the loop, from a connection's being accepted to its being known here."""


class HttpServer:
    def __init__(
        self,
        handle: Handle,
        limits: HttpLimits,
        clock: Clock,
        facts: HttpFacts,
        *,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.limits = limits
        self.facts = facts
        self.loop = asyncio.get_running_loop()
        self.on_error = on_error
        self.is_stopping = False
        self.date = b""
        self._handle = handle
        self._clock = clock
        self._connections: set[HttpConnection] = set()
        self._held_bytes = 0
        self._listening: list[asyncio.Server] = []
        self._all_gone = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None

    async def start(self, listeners: list[socket.socket]) -> None:
        """Takes over the sockets."""
        self._tick()
        for listener in listeners:
            server = await self.loop.create_server(lambda: HttpConnection(self, self._handle), sock=listener)
            self._listening.append(server)

    async def stop(self) -> None:
        """Answers what was asked, for a short while."""
        self.is_stopping = True
        await close_listeners(*self._listening)
        for _ in range(TURNS_TO_BEGIN):
            await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.shut()
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.grace_seconds):
                    await self._all_gone.wait()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn
        await asyncio.sleep(0)
        if self._ticking is not None:
            self._ticking.cancel()

    # The connections' side

    def admit(self, connection: HttpConnection) -> bool | None:
        """Whether there is room for it; None where there is not even room for a refusal, or no time."""
        self._connections.add(connection)
        self.facts.connections_open = len(self._connections)
        count, most = len(self._connections), self.limits.connections_max
        return None if count > 2 * most or self.is_stopping else count <= most

    def dismiss(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self.facts.connections_open = len(self._connections)
        if not self._connections and self.is_stopping:
            self._all_gone.set()

    def hold(self, size: int) -> bool:
        self._held_bytes += size
        return size <= 0 or self._held_bytes <= self.limits.memory_bytes_max

    def _tick(self) -> None:
        self.date = formatdate(self._clock.wall_ms() // 1000, usegmt=True).encode()
        now = self.loop.time()
        for connection in [each for each in self._connections if each.deadline <= now]:
            connection.time_is_up()
        self._ticking = self.loop.call_later(TICK_SECONDS, self._tick)
