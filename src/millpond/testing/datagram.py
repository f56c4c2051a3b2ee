"""Datagrams on the simulated network: each finds its own way, or does not.

Invariant: a datagram arrives whole, unchanged, zero times or more; two may overtake each other.
Driven by the program that opened the endpoint and by timers on the wire.
"""

import asyncio
import contextvars
from collections.abc import Callable

from millpond.model.ports import Buffer
from millpond.testing.hosts import Life
from millpond.testing.links import Links
from millpond.testing.transport import Address, SimSocket


class SimDatagramTransport(asyncio.DatagramTransport):
    def __init__(
        self,
        links: Links,
        endpoints: "dict[Address, SimDatagramTransport]",
        *,
        life: Life | None,
        name: Address,
        peer: Address | None,
        resolve: Callable[[str | None], str],
    ) -> None:
        super().__init__({"sockname": name, "peername": peer, "socket": SimSocket(name, peer)})
        self._links = links
        self._endpoints = endpoints
        self._context = contextvars.copy_context()
        self._name = name
        self._peer = peer
        self._resolve = resolve
        self._protocol: asyncio.DatagramProtocol | None = None
        self.life = life

    def start(self, protocol: asyncio.DatagramProtocol) -> None:
        self._endpoints[self._name] = self
        self._protocol = protocol
        self._links.loop.call_soon(protocol.connection_made, self, context=self._context)

    def sendto(self, data: Buffer, addr: Address | None = None) -> None:  # type: ignore[override]
        target = self._peer if addr is None else (self._resolve(addr[0]), addr[1])
        if target is None:
            raise ValueError("an endpoint without a remote address needs one for each datagram")
        if self.is_closing():
            return
        links, source = self._links, self._name[0]
        if links.lost(source, target[0]):
            links.trace.record("datagram lost", source=source, target=target[0])
            return
        twice = links.rng.random() < links.conditions(source, target[0]).duplicate_chance
        for _ in range(2 if twice else 1):
            when = links.loop.true_time() + links.delay_seconds(source, target[0])
            links.at(when, self._arrive, bytes(data), target)

    def _arrive(self, data: bytes, target: Address) -> None:
        receiver = self._endpoints.get(target)
        if receiver is None or not self._links.passes(self._name[0], target[0]):
            return
        assert receiver._protocol is not None
        self._links.trace.record("datagram", data, source=self._name[0], target=target[0], bytes=len(data))
        receive = receiver._protocol.datagram_received
        self._links.loop.call_soon(receive, data, self._name, context=receiver._context)

    def is_closing(self) -> bool:
        return self._endpoints.get(self._name) is not self

    def close(self) -> None:
        if not self.is_closing():
            del self._endpoints[self._name]
            assert self._protocol is not None
            self._links.loop.call_soon(self._protocol.connection_lost, None, context=self._context)

    def abort(self) -> None:
        self.close()

    def vanish(self) -> None:
        self._endpoints.pop(self._name, None)

    def get_write_buffer_size(self) -> int:
        return 0
