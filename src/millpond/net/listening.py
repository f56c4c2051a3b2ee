"""An address taken before anybody is let in: found out at once whether it can be had, used when the rest is ready.

Driven by app, for doors that are slow to load.
"""

import asyncio
import socket

BACKLOG = 128


async def reserve(host: str, port: int) -> list[socket.socket]:
    """Bound and not listening: who connects is refused until `open_door`. Port 0 takes a free one.

    A name that stands for several addresses takes them all. Raises OSError where one cannot be had.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    taken: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in found:
            listener = socket.socket(family, kind, protocol)
            taken.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            same_port = (address[0], taken[0].getsockname()[1] or port, *address[2:])
            listener.bind(same_port)
    except OSError:
        let_go(taken)
        raise
    return taken


def open_door(listeners: list[socket.socket]) -> None:
    """From now on connections wait in the kernel until somebody takes them."""
    for listener in listeners:
        listener.listen(BACKLOG)


async def wait_caller(listeners: list[socket.socket], *, seconds_max: float) -> None:
    """Returns when somebody has connected to an open door, or after so long."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    timer = loop.call_later(seconds_max, called.set)
    for listener in listeners:
        loop.add_reader(listener, called.set)
    try:
        await called.wait()
    finally:
        timer.cancel()
        for listener in listeners:
            loop.remove_reader(listener)


def let_go(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()
