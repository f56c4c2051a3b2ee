"""One HTTP connection: what it bounds, what it refuses, and that answers come in order."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from millpond.api.http.connection import Answer, Request
from millpond.api.http.limits import HttpLimits
from millpond.api.http.replies import Reply
from millpond.api.http.server import HttpServer
from millpond.telemetry.http import HttpFacts
from millpond.testing.clock import ManualClock

SECONDS_MAX = 30
CHUNKED = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
LIMITS = HttpLimits(head_bytes_max=2_000, body_bytes_max=10_000, memory_bytes_max=25_000)


class World:
    """A server that says what it was asked, and holds back answers to `/wait` until told."""

    def __init__(self, limits: HttpLimits) -> None:
        self.held: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self.errors: list[BaseException] = []
        self.server = HttpServer(self.handle, limits, ManualClock(wall_ms=0), HttpFacts(), on_error=self.errors.append)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        await self.server.start([listener])

    def handle(self, request: Request, answer: Answer) -> None:
        if request.path == "/stream":
            answer(Reply(200, "text/plain", stream=self.endless()))
            return
        said = f"{request.method} {request.path} {len(request.body)}".encode()
        reply = Reply(200, "text/plain", said)
        if request.path == "/wait":
            self.held.put_nowait(lambda: answer(reply))
        else:
            answer(reply)

    async def endless(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer


def run(work: Callable[[World], Coroutine[Any, Any, None]], limits: HttpLimits = LIMITS) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            world = World(limits)
            await world.start()
            try:
                await work(world)
            finally:
                for writer in world.writers:
                    writer.transport.abort()
                await world.server.stop()
            assert world.errors == []

    asyncio.run(main())


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - what is waited for is not the test's to tell of
        await asyncio.sleep(0.01)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def ask(world: World, content: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await world.connect()
    writer.write(content)
    answered = await read_answer(reader)
    writer.close()
    return answered


def test_answers_come_in_the_order_of_the_requests() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(
            b"GET /wait HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nPOST /c HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
        )
        answer = await world.held.get()
        answer()
        said = [(await read_answer(reader))[2] for _ in range(3)]
        assert said == [b"GET /wait 0", b"GET /b 0", b"POST /c 3"]
        writer.write(b"GET /d HTTP/1.1\r\n\r\n")
        assert (await read_answer(reader))[2] == b"GET /d 0"

    run(work)


def test_a_request_may_come_byte_by_byte() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        for byte in b"POST /a?q HTTP/1.1\r\nX: y\r\nContent-Length: 2\r\n\r\nok":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await read_answer(reader))[2] == b"POST /a 2"

    run(work)


def test_a_body_in_chunks() -> None:
    async def work(world: World) -> None:
        content = CHUNKED + b"1\r\nx\r\n" * 9_000 + b"0\r\n\r\n"
        assert (await ask(world, content))[2] == b"POST /a 9000"

    run(work)


def test_whoever_waits_to_be_told_to_go_on_is_told() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await read_answer(reader))[2] == b"POST /a 2"

    run(work)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"POST /a HTTP/1.1\r\ncontent-length: 10001\r\n\r\n", 413, b"body_too_large"),
        (b"POST /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 10001\r\n\r\n", 413, b"body_too_large"),
        (CHUNKED + b"ff\r\n%b\r\n" % (b"x" * 255) * 40, 413, b"body_too_large"),
        (b"GET /a HTTP/1.1\r\nX: " + b"y" * 100_000, 431, b"head_too_large"),
        (b"GET /" + b"y" * 100_000, 431, b"head_too_large"),
        (b"GET /a HTTP/1.1\r\n" + b"X: y\r\n" * 2_000 + b"\r\n", 431, b"head_too_large"),
        (CHUNKED + b"0\r\nX: " + b"y" * 100_000, 431, b"head_too_large"),
        (b"POST /a HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, b"no_http"),
        (b"POST /a HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400, b"no_http"),
        (b"GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 400, b"no_upgrade"),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 400, b"no_upgrade"),
    ],
)  # fmt: skip
def test_what_is_too_much_or_no_http_is_refused_and_the_connection_ends(
    content: bytes, status: int, code: bytes
) -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(content)
        answered = await read_answer(reader)
        assert (answered[0], answered[1]["connection"]) == (status, "close")
        assert code in answered[2]
        assert await reader.read() == b""

    run(work)


def test_what_was_asked_before_is_answered_before_a_refusal() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
        (await world.held.get())()
        assert (await read_answer(reader))[2] == b"GET /wait 0"
        assert (await read_answer(reader))[0] == 400
        assert await reader.read() == b""

    run(work)


def test_a_request_that_is_too_slow_is_told_so() -> None:
    async def work(world: World) -> None:
        for begun in (b"GET /a HT", b"POST /a HTTP/1.1\r\ncontent-length: 5\r\n\r\nab"):
            status, _, body = await ask(world, begun)
            assert status == 408
            assert b"too_slow" in body

    run(work, HttpLimits(request_seconds=0.05))


def test_a_connection_that_asks_nothing_is_ended() -> None:
    async def work(world: World) -> None:
        reader, _ = await world.connect()
        assert await reader.read() == b""

    run(work, HttpLimits(idle_seconds=0.05))


def test_a_peer_that_takes_nothing_is_ended() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not world.server._connections)
        writer.transport.abort()

    run(work, HttpLimits(write_seconds=0.05))


def test_more_than_all_may_hold_is_refused() -> None:
    async def work(world: World) -> None:
        waiting = []
        for _ in range(2):
            reader, writer = await world.connect()
            writer.write(b"POST /wait HTTP/1.1\r\ncontent-length: 10000\r\n\r\n" + b"x" * 10_000)
            waiting.append((reader, writer, await world.held.get()))
        large = b"POST /a HTTP/1.1\r\ncontent-length: 10000\r\n\r\n" + b"x" * 10_000
        status, _, body = await ask(world, large)
        assert status == 503
        assert b"busy" in body
        for reader, writer, answer in waiting:
            answer()
            assert (await read_answer(reader))[0] == 200
            writer.close()
        await until(lambda: len(world.server._connections) == 0)
        assert (await ask(world, large))[0] == 200

    run(work)


def test_more_connections_than_allowed_are_told_to_come_later() -> None:
    async def work(world: World) -> None:
        there = [await world.connect() for _ in range(2)]
        status, _, body = await ask(world, b"")
        assert status == 503
        assert b"too_many_connections" in body
        for _, writer in there:
            writer.close()
        while (await ask(world, b"GET /a HTTP/1.1\r\n\r\n"))[0] != 200:
            pass

    run(work, HttpLimits(connections_max=2, linger_seconds=0.05))


@pytest.mark.parametrize("head", [b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1\r\nconnection: close\r\n\r\n"])
def test_a_peer_that_wants_one_answer_gets_one(head: bytes) -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(head)
        assert (await read_answer(reader))[1]["connection"] == "close"
        assert await reader.read() == b""

    run(work)


def test_a_peer_that_goes_away_is_no_matter() -> None:
    async def work(world: World) -> None:
        _, writer = await world.connect()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        answer = await world.held.get()
        writer.transport.abort()
        await until(lambda: not world.server._connections)
        answer()
        assert (await ask(world, b"GET /a HTTP/1.1\r\n\r\n"))[0] == 200

    run(work)


def test_a_server_that_stops_answers_first() -> None:
    async def work(world: World) -> None:
        reader, writer = await world.connect()
        idle, _ = await world.connect()
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
        answer = await world.held.get()
        stopping = asyncio.ensure_future(world.server.stop())
        assert await idle.read() == b""
        answer()
        assert (await read_answer(reader))[1]["connection"] == "close"
        await stopping

    run(work)
