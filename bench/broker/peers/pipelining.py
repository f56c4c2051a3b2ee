"""Many messages, each a request of its own, without waiting for one before the next is sent."""

from collections.abc import Callable

from bench.broker.driving import Conversation, drive
from bench.broker.processes import ServerProcess
from bench.broker.systems import Run

CONNECTIONS = 4
WINDOW = 512
_SECONDS_MAX = 2.5


def produce_pipelined(connect: Callable[[], Conversation], count: int, process: ServerProcess) -> Run:
    """`count` of them, or as many as a few seconds hold."""
    conversations = [connect() for _ in range(CONNECTIONS)]
    try:
        began = process.cpu_seconds()
        driven = drive(conversations, window=WINDOW, seconds=_SECONDS_MAX, requests_max=count)
        server = process.cpu_seconds() - began
    finally:
        for each in conversations:
            each.socket.close()
    return Run("pipelined", driven.requests, driven.seconds, driven.client_cpu_seconds, server)
