"""A real broker on a loopback socket, in a thread of its own; and a peer that speaks frames to it and waits.

Blocking clients and the broker then run side by side in one process. What the broker reports as a bug of its own, or
its loop would only have logged, fails the test when it ends.
"""

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import uvloop

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.broker.node import Node
from millpond.model.ports import Clock
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame, response_header_version
from millpond.protocol.messages.registry import APIS
from millpond.storage.filesystem import OsFilesystem

FACT_SECONDS_MAX = 15.0
NODE_ID = 1
SEED = 1

T = TypeVar("T")
Answer = Any
"""A response, or a part of one; each class has fields of its own."""


class MachineClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RunningBroker:
    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        self._loop = loop
        self._broker = broker
        self.port = broker.port
        self.address = f"127.0.0.1:{broker.port}"

    def do(self, work: Callable[[Node], Awaitable[T]]) -> T:
        """Runs it where the broker runs, and waits for it."""

        async def run() -> T:
            return await work(self._broker.node)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(FACT_SECONDS_MAX)

    def wait_until(self, fact: Callable[[Node], bool]) -> None:
        async def turn(node: Node) -> None:
            async with asyncio.timeout(FACT_SECONDS_MAX):
                while not fact(node):  # noqa: ASYNC110 - nobody tells when a fact changes
                    await asyncio.sleep(0)

        self.do(turn)


@contextmanager
def running(directory: Path, *, clock: Clock | None = None, **configs: str) -> Iterator[RunningBroker]:
    """`configs` are the broker's settings, with `_` for each dot."""
    unheeded: list[object] = []
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(lambda _, context: unheeded.append(context))
    thread = threading.Thread(target=loop.run_forever, name="broker")
    thread.start()
    try:
        settings = BrokerSettings(
            data_directory=str(directory),
            node_id=NODE_ID,
            port=0,
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )
        start = Broker.start(
            settings,
            filesystem=OsFilesystem(),
            clock=clock or MachineClock(),
            rng=random.Random(SEED),
            on_error=unheeded.append,
        )
        broker = asyncio.run_coroutine_threadsafe(start, loop).result(FACT_SECONDS_MAX)
        try:
            yield RunningBroker(loop, broker)
        finally:
            asyncio.run_coroutine_threadsafe(broker.stop(grace_seconds=1), loop).result(FACT_SECONDS_MAX)
            asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(FACT_SECONDS_MAX)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(FACT_SECONDS_MAX)
        loop.close()
    assert unheeded == []


class Reachable(Protocol):
    @property
    def port(self) -> int: ...


class Peer:
    """One connection. Sends messages, or any bytes; reads the answers in order."""

    def __init__(self, broker: Reachable) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), timeout=FACT_SECONDS_MAX)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id="peer")
        self.send_bytes(b"".join(frame))

    def send_bytes(self, content: bytes) -> None:
        self._socket.sendall(content)

    def ask(self, request: Message, version: int | None = None) -> Answer:
        """In the newest version, if none is named."""
        version = APIS[request.api_key].version_max if version is None else version
        self.send(request, version)
        return self.receive(request.api_key, version)

    def receive(self, api_key: int, version: int) -> Answer:
        """The answer to the last request sent."""
        frame = self.receive_frame()
        header_version = response_header_version(api_key, version)
        correlation_id, position = parse_response_header(frame, header_version=header_version)
        assert correlation_id == self._correlation_id
        response, end = decode(APIS[api_key].response_class, frame, version, position)
        assert end == len(frame), "bytes behind the answer"
        return response

    def receive_frame(self) -> memoryview:
        (size,) = struct.unpack("!i", self._read(4))
        return memoryview(self._read(size))

    def _read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            piece = self._socket.recv(size - len(content))
            assert piece, "the broker closed the connection"
            content += piece
        return content

    def wait_closed(self) -> bytes:
        """What still comes until the broker closes, gently or not."""
        rest = b""
        try:
            while piece := self._socket.recv(65536):
                rest += piece
        except ConnectionError:
            pass
        return rest
