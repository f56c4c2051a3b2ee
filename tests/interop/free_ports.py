"""Ports that nobody listens on, for servers that must know each other's before they start.

They are below those that Linux gives to outgoing connections: such a connection of a test beside this one could have
taken a port before its server does. Where a process begins to look depends on its number, so that two seldom meet.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

FIRST, LAST = 12_000, 32_000
APART = 97
"""Processes that are started together have numbers that follow each other."""


def free_ports(count: int) -> list[int]:
    """All are held until all are known, so that none comes twice."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            port = next(_candidates)
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:  # somebody listens there
                continue
            ports.append(port)
    return ports


def _all_from(start: int) -> Iterator[int]:
    while True:
        yield FIRST + start % (LAST - FIRST)
        start += 1


_candidates = _all_from(os.getpid() * APART)
