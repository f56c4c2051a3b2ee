"""Datagrams to and from everybody on a network who joined the same group.

    group = await join_group("239.255.90.92", 9092, interface="10.0.0.1", on_datagram=...)
    group.send(b"...")

Invariant: nothing that arrives or fails here raises; what cannot be sent is lost, as a datagram may be.
Driven by the event loop, as an asyncio protocol, and by broker/drivers/discovery.py; runs on asyncio, uvloop and the
simulator's loop alike. IPv4, and no further than the network itself: routers pass nothing on.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import cast

ANY_INTERFACE = "0.0.0.0"


class Multicast(asyncio.DatagramProtocol):
    def __init__(self, group: tuple[str, int], on_datagram: Callable[[bytes, str], None]) -> None:
        """Use `join_group`."""
        self._group = group
        self._on_datagram = on_datagram
        self._transport: asyncio.DatagramTransport
        self.trouble: OSError | None = None
        """Why the last datagram could not be sent."""

    def send(self, data: bytes) -> None:
        self.trouble = None
        try:
            self._transport.sendto(data, self._group)
        except OSError as error:
            self.trouble = error

    def close(self) -> None:
        self._transport.abort()

    # The event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's is none by name

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._on_datagram(data, addr[0])

    def error_received(self, exc: Exception) -> None:
        if isinstance(exc, OSError):
            self.trouble = exc


async def join_group(host: str, port: int, *, interface: str, on_datagram: Callable[[bytes, str], None]) -> Multicast:
    """`interface` is the address of one, or ANY_INTERFACE for the machine's own choice. Raises OSError.

    Several programs on one machine may join, if they run as the same user.
    """
    transport, multicast = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Multicast((host, port), on_datagram), local_addr=(host, port), family=socket.AF_INET, reuse_port=True
    )
    on, at = IPv4Address(interface).packed, IPv4Address(host).packed
    try:
        chosen = transport.get_extra_info("socket")
        chosen.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, on)
        chosen.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, at + on)
    except OSError:
        transport.abort()
        raise
    return multicast
