"""The simulated network: hosts by name, who listens where, and how a connection comes about.

Invariant: at most one server or datagram endpoint answers at an address. A name is its own address;
local names (none, `0.0.0.0`, `127.0.0.1`, `localhost`) mean the host whose code is running.
Driven by `SimLoop.create_server`, `create_connection` and `create_datagram_endpoint`, by a scenario's
faults, and by `SimHost` when a life ends.
"""

import asyncio
import contextvars
import errno
import os
import random
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from millpond.testing.datagram import SimDatagramTransport
from millpond.testing.flow import timed_out
from millpond.testing.hosts import HERE, OUTSIDE, Fate, Life, current_host
from millpond.testing.links import Links
from millpond.testing.server import SimServer
from millpond.testing.timed_loop import TimedLoop
from millpond.testing.trace import Trace
from millpond.testing.transport import Address, SimTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)
D = TypeVar("D", bound=asyncio.DatagramProtocol)

LOCAL_NAMES = frozenset({None, "", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"})
EPHEMERAL_PORT_MIN = 49_152


class SimNetwork:
    def __init__(self, loop: TimedLoop, rng: random.Random, trace: Trace) -> None:
        self._loop = loop
        self._links = Links(loop, rng, trace)
        self._trace = trace
        self._names = {OUTSIDE}
        self._listed: dict[str, list[str]] = {}
        self._servers: dict[Address, SimServer] = {}
        self._endpoints: dict[Address, SimDatagramTransport] = {}
        self._transports: dict[SimTransport, None] = {}
        self._connections = 0
        self._ports: dict[str, int] = {}
        self.set_conditions = self._links.set_conditions
        self.partition = self._links.partition
        self.cut_one_way = self._links.cut_one_way
        self.isolate = self._links.isolate
        self.heal = self._links.heal

    # --- Names and lives -------------------------------------------------------------------------

    def power_up(self, host: str) -> None:
        self._names.add(host)
        self._links.dark.discard(host)

    def end_life(self, life: Life, fate: Fate) -> None:
        """Closes what the life had open, with a reset for its peers (killed) or in silence (power cut)."""
        if fate is Fate.POWER_CUT:
            self._links.dark.add(life.host)
        for server in list(self._servers.values()):
            if server.life is life:
                self.unlisten(server)
        for endpoint in list(self._endpoints.values()):
            if endpoint.life is life:
                endpoint.vanish()
        for transport in [end for end in self._transports if end.life is life]:
            transport.crash(fate)
            del self._transports[transport]

    def abort_all(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    def vanish(self) -> None:
        """The simulation is over: nothing is open any more, and nobody needs to be told."""
        for transport in self._transports:
            transport.vanish()
        self._servers.clear()
        self._endpoints.clear()

    def resolve(self, name: str | bytes | None) -> str:
        if isinstance(name, bytes):
            name = name.decode()
        if name in LOCAL_NAMES or name is None:
            return current_host()
        if name not in self._names:
            raise socket.gaierror(socket.EAI_NONAME, f"no simulated host is called {name!r}")
        return name

    def name(self, name: str, hosts: Sequence[str]) -> None:
        """What the name server says from now on; nothing, and it does not know the name."""
        self._listed[name] = list(hosts)

    def look_up(self, name: str | bytes | None) -> list[str]:
        """A host's name is its own address here; other names stand for hosts, as `name` said."""
        if isinstance(name, str) and self._listed.get(name):
            return self._listed[name]
        return [self.resolve(name)]

    def _free_port(self, host: str) -> int:
        port = self._ports.get(host, EPHEMERAL_PORT_MIN)
        while (host, port) in self._servers or (host, port) in self._endpoints:
            port += 1
        self._ports[host] = port + 1 if port < 65_535 else EPHEMERAL_PORT_MIN
        return port

    # --- Servers ---------------------------------------------------------------------------------

    async def create_server(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None,
        port: int | None,
        *,
        start_serving: bool = True,
        **options: object,
    ) -> SimServer:
        _refuse_unsupported(options)
        await self._be_alive()
        here = current_host()
        names = [host] if host is None or isinstance(host, str) else host
        for name in names:
            if self.resolve(name) != here:
                raise OSError(errno.EADDRNOTAVAIL, f"{here} cannot listen at the address of {name}")
        address = (here, port or self._free_port(here))
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
        server = SimServer(self, self._loop, factory, addresses=[address], life=HERE.get())
        if start_serving:
            await server.start_serving()
        return server

    def listen(self, server: SimServer) -> None:
        for address in server.addresses:
            if address in self._servers:
                raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
            self._servers[address] = server
            self._trace.record("listen", host=address[0], port=address[1])

    def unlisten(self, server: SimServer) -> None:
        for address in server.addresses:
            if self._servers.get(address) is server:
                del self._servers[address]
                self._trace.record("unlisten", host=address[0], port=address[1])

    # --- Connections -----------------------------------------------------------------------------

    async def create_connection(
        self, factory: Callable[[], P], host: str | None, port: int | None, **options: object
    ) -> tuple[SimTransport, P]:
        _refuse_unsupported(options)
        await self._be_alive()
        here, there = current_host(), self.resolve(host)
        assert port is not None
        server = await self._shake_hands(here, (there, port))
        mine, theirs = self._make_ends((here, self._free_port(here)), server, (there, port))
        protocol = factory()
        made: asyncio.Future[None] = self._loop.create_future()
        mine.start(protocol)
        self._loop.call_soon(_settle, made)
        self._loop.call_soon(server.accept, theirs, context=server.context)
        try:
            await made
        except BaseException:
            mine.close()
            raise
        return mine, protocol

    async def _shake_hands(self, here: str, address: Address) -> SimServer:
        """Asks until an answer comes back: a listening server, or a refusal. Nobody answers for a dark machine."""
        there, links = address[0], self._links
        conditions = links.conditions(here, there)
        gives_up_at = self._loop.time() + conditions.connect_give_up_ms / 1000
        retransmit_seconds = conditions.retransmit_ms_min / 1000
        self._trace.record("connect", source=here, target=there, port=address[1])
        while True:
            await asyncio.sleep(links.delay_seconds(here, there))
            lost = links.lost(here, there) or links.lost(there, here)
            if links.passes(here, there) and links.passes(there, here) and not lost:
                break
            if self._loop.time() + retransmit_seconds >= gives_up_at:
                await asyncio.sleep(gives_up_at - self._loop.time())
                self._trace.record("connect timed out", source=here, target=there)
                raise timed_out()
            await asyncio.sleep(retransmit_seconds)
            retransmit_seconds *= 2
        server = self._servers.get(address)
        await asyncio.sleep(links.delay_seconds(there, here))
        if server is None or self._servers.get(address) is not server:
            self._trace.record("connect refused", source=here, target=there)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{os.strerror(errno.ECONNREFUSED)}: {address}")
        return server

    def _make_ends(self, name: Address, server: SimServer, address: Address) -> tuple[SimTransport, SimTransport]:
        def forget(transport: SimTransport) -> None:
            server.detach(transport)
            self._transports.pop(transport, None)

        mine = SimTransport(
            self._links, life=HERE.get(), context=contextvars.copy_context(), name=name, peer=address, forget=forget
        )
        theirs = SimTransport(
            self._links, life=server.life, context=server.context.copy(), name=address, peer=name, forget=forget
        )
        self._connections += 1
        self._trace.record("connected", connection=self._connections, source=name[0], target=address[0])
        mine.join(self._connections, theirs)
        self._transports[mine] = self._transports[theirs] = None
        return mine, theirs

    # --- Datagrams -------------------------------------------------------------------------------

    async def create_datagram_endpoint(
        self,
        factory: Callable[[], D],
        local: tuple[str, int] | None,
        remote: tuple[str, int] | None,
        **options: object,
    ) -> tuple[SimDatagramTransport, D]:
        _refuse_unsupported(options)
        await self._be_alive()
        here = current_host()
        name = (here, (local[1] if local else 0) or self._free_port(here))
        if name in self._endpoints:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {name}")
        peer = (self.resolve(remote[0]), remote[1]) if remote else None
        endpoint = SimDatagramTransport(
            self._links, self._endpoints, life=HERE.get(), name=name, peer=peer, resolve=self.resolve
        )
        protocol = factory()
        endpoint.start(protocol)
        await asyncio.sleep(0)
        return endpoint, protocol

    async def _be_alive(self) -> None:
        """Code whose life ended in the middle of its step gets no further than this."""
        life = HERE.get()
        if life is not None and not life.alive:
            await self._loop.create_future()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse_unsupported(options: dict[str, object]) -> None:
    if options.get("ssl"):
        raise NotImplementedError("the simulated network carries no TLS")
    if options.get("sock") is not None:
        raise NotImplementedError("the simulated network makes its own sockets")
