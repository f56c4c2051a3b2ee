"""Peers for the tests of the network: a client that speaks frames, handlers, and three loops to run them on."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import uvloop

from millpond.net.answers import Answer, Promise
from millpond.net.connection import Connection
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer, Handle
from millpond.testing.simulation import simulate

LOOPS = ("simulated", "asyncio", "uvloop")
FACT_SECONDS_MAX = 10.0
NORMAL = NetworkLimits()

Scenario = Callable[[], Coroutine[Any, Any, None]]


def run(loop: str, scenario: Scenario, *, seed: int = 1) -> None:
    """Runs the scenario on this kind of loop; what the loop would only have logged is raised."""
    if loop == "simulated":
        simulate(seed, lambda sim: scenario())
        return
    unheeded: list[dict[str, Any]] = []
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unheeded.append(context))
        runner.run(scenario())
    assert unheeded == []


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(FACT_SECONDS_MAX):
        while not fact():  # noqa: ASYNC110 -- facts are plain numbers, and tell nobody when they change
            await asyncio.sleep(0.001)


def echo(frame: memoryview, connection: Connection) -> Answer:
    return [frame]


class Errors(list[tuple[BaseException, Connection]]):
    """What `on_error` was told."""

    def take(self, error: BaseException, connection: Connection) -> None:
        self.append((error, connection))


class Desk:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.open: dict[bytes, asyncio.Future[Answer | None]] = {}
        self.cancelled: list[bytes] = []

    def handle(self, frame: memoryview, connection: Connection) -> Awaitable[Answer | None]:
        return self._wait(bytes(frame))

    async def _wait(self, body: bytes) -> Answer | None:
        self.asked.append(body)
        self.open[body] = asyncio.get_running_loop().create_future()
        try:
            return await self.open[body]
        except asyncio.CancelledError:
            self.cancelled.append(body)
            raise

    def answer(self, body: bytes, answer: bytes | None = None) -> None:
        self.open.pop(body).set_result([body if answer is None else answer])


class PromisingDesk(Desk):
    """The same without a task."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[bytes, Promise] = {}  # type: ignore[assignment]

    def handle(self, frame: memoryview, connection: Connection) -> Promise:  # type: ignore[override]
        body = bytes(frame)
        self.asked.append(body)
        promise = self.open[body] = Promise()
        promise.when_abandoned(lambda: self.cancelled.append(body))
        return promise

    def answer(self, body: bytes, answer: bytes | None = None) -> None:
        self.open.pop(body).keep([body if answer is None else answer])


@asynccontextmanager
async def serving(
    handle: Handle, limits: NetworkLimits = NORMAL, errors: Errors | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FrameServer]:
    """A server that is stopped at the end; a bug in its handler fails the test unless it is asked for."""
    heard = Errors() if errors is None else errors
    server = FrameServer(handle, limits, on_error=heard.take)
    await server.start("127.0.0.1", 0, tls=tls)
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0)
    assert server.facts.connections_open == 0
    assert server.memory_bytes == 0
    if errors is None:
        assert heard == []


class Client:
    """Sends frames, or any bytes; reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(
        cls,
        server: FrameServer,
        *,
        host: str = "127.0.0.1",
        buffer_bytes: int = 65_536,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        return cls(*await asyncio.open_connection(host, server.port, limit=buffer_bytes, ssl=tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send(self, *bodies: bytes) -> None:
        self.writer.write(framed(*bodies))

    async def receive(self) -> bytes:
        async with asyncio.timeout(FACT_SECONDS_MAX):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def wait_end(self, seconds_max: float = FACT_SECONDS_MAX) -> bytes:
        """What still comes, until the server closes, gently or not."""
        rest = b""
        async with asyncio.timeout(seconds_max):
            try:
                while piece := await self.reader.read(65536):
                    rest += piece
            except OSError:
                pass
        return rest
