"""A listening socket of a simulated host, with the face of `asyncio.Server`.

Invariant: a server listens from its start to its `close`, on every address or on none, and knows every
connection it accepted that has not ended. `wait_closed` waits for those, as since CPython 3.12.
Driven by the program that created it and by `SimNetwork`, which brings connections.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Protocol

from millpond.testing.hosts import Life
from millpond.testing.transport import Address, SimSocket, SimTransport


class Listeners(Protocol):
    """Who answers at which address: the network."""

    def listen(self, server: "SimServer") -> None: ...
    def unlisten(self, server: "SimServer") -> None: ...


class SimServer(asyncio.AbstractServer):
    def __init__(
        self,
        listeners: Listeners,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        addresses: list[Address],
        life: Life | None,
    ) -> None:
        self._listeners = listeners
        self._loop = loop
        self._factory = factory
        self.addresses = addresses
        self.life = life
        self.context = contextvars.copy_context()
        self._serving = False
        self._closed = False
        self._forever: asyncio.Future[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._connections: dict[SimTransport, None] = {}

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return () if self._closed else tuple(map(SimSocket, self.addresses))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        if self._closed:
            raise RuntimeError("server is closed")
        if not self._serving:
            self._serving = True
            self._listeners.listen(self)
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError("server is already being awaited on serve_forever()")
        await self.start_serving()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._serving = False
        self._listeners.unlisten(self)
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        self._wake_waiters()

    async def wait_closed(self) -> None:
        if not self._closed or self._connections:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close_clients(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def abort_clients(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def accept(self, connection: SimTransport) -> None:
        """Runs on the server's host, as soon as its program gets round to it."""
        if self._closed or connection.gone:
            connection.abort()
            return
        self._connections[connection] = None
        connection.start(self._factory())

    def detach(self, connection: SimTransport) -> None:
        self._connections.pop(connection, None)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self._closed and not self._connections:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()
