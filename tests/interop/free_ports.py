"""Ports that nobody listens on, for servers that must know each other's before they start."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """All are held until all are known, so that none comes twice."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in listeners]
