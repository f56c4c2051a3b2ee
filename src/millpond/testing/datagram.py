"""Datagrams on the simulated network: each finds its own way, or does not.

Invariant: a datagram arrives whole, unchanged, zero times or more; two may overtake each other. One sent to a group
goes its own way to each endpoint that has joined, the sender's included.
Driven by the program that opened the endpoint and by timers on the wire.
"""

import asyncio
import contextvars
import socket
from collections.abc import Callable
from ipaddress import IPv4Address

from millpond.model.ports import Buffer
from millpond.testing.hosts import Life
from millpond.testing.links import Links
from millpond.testing.transport import Address, SimSocket


class SimDatagramSocket(SimSocket):
    """The one option that means something lets an endpoint join a group."""

    def __init__(self, name: Address, peer: Address | None, groups: set[str]) -> None:
        super().__init__(name, peer)
        self._groups = groups

    def setsockopt(self, *option: object) -> None:
        match option:
            case (socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, bytes(value)):
                self._groups.add(str(IPv4Address(value[:4])))


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
        self.groups: set[str] = set()
        chosen = SimDatagramSocket(name, peer, self.groups)
        super().__init__({"sockname": name, "peername": peer, "socket": chosen})
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
        if addr is not None and _is_group(addr[0]):
            targets = [at for at, each in self._endpoints.items() if at[1] == addr[1] and addr[0] in each.groups]
        elif addr is not None:
            targets = [(self._resolve(addr[0]), addr[1])]
        elif self._peer is not None:
            targets = [self._peer]
        else:
            raise ValueError("an endpoint without a remote address needs one for each datagram")
        if not self.is_closing():
            for target in targets:
                self._send(data, target)

    def _send(self, data: Buffer, target: Address) -> None:
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


def _is_group(host: str) -> bool:
    try:
        return IPv4Address(host).is_multicast
    except ValueError:  # hosts have names here
        return False
