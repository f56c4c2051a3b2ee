"""One HTTP/1.1 connection: requests in, bounded before they are kept, and one answer each, in order.

Invariants: a body's size is checked before any of it is kept, and what all connections keep is counted; a request that
is not whole in its time is refused; nothing is read while an answer is owed and a further request waits. After a
refusal that leaves the stream in doubt the connection ends, when its peer had time to read why.
Driven by the event loop's transport; calls `handle` with each whole request.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import httptools

from millpond.api.http.problems import problem
from millpond.api.http.replies import Reply, head_of

if TYPE_CHECKING:
    from millpond.api.http.server import HttpServer

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WRITE_BUFFER_BYTES: Final = 256 * 1024
_OVERHEAD_PER_BODY_BYTE: Final = 16
"""What a body in chunks of one byte takes besides, and some."""


class Request(NamedTuple):
    method: str
    path: str
    """As it was sent, with its escapes."""
    query: bytes
    headers: dict[bytes, bytes]
    """Names in lower case."""
    body: bytes
    keeps_alive: bool


Answer = Callable[[Reply], None]
Handle = Callable[[Request, Answer], "asyncio.Task[None] | None"]
"""Answers once, now or later; what works on it can be ended when the peer goes away."""


class HttpConnection(asyncio.Protocol):
    def __init__(self, server: "HttpServer", handle: Handle) -> None:
        self._server = server
        self._limits = server.limits
        self._handle = handle
        self._loop = server.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._waiting: deque[Request] = deque()
        self._answering: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_over = False
        """Whatever still comes is not looked at."""
        self._last_words: Reply | None = None
        """A refusal, to be said after the answers that are owed."""
        self._held_bytes = 0
        self.deadline = 0.0
        """When the server ends it; looked at now and then."""
        self._begin()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._rest()
        admitted = self._server.admit(self)
        if admitted is None:
            self._transport.abort()
        elif not admitted:
            self._refuse(problem(503, "too_many_connections", "as many as are allowed are here; come again later"))

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._server.dismiss(self)
        self._hold(-self._held_bytes)
        self._can_write.set()
        self._waiting.clear()
        for task in (self._task, self._streaming):
            if task is not None:
                task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # refused already
        except httptools.HttpParserError as error:
            if not self._is_over:
                self._refuse(problem(400, "no_http", f"this is no HTTP/1.1: {error}"))
            return
        if not self._is_within or self._is_over:
            return
        self._received_bytes += len(data)
        excess = self._received_bytes - self._body_bytes * _OVERHEAD_PER_BODY_BYTE
        if excess > self._limits.head_bytes_max + _OVERHEAD_PER_BODY_BYTE:
            self._refuse_head()

    def pause_writing(self) -> None:
        self._can_write.clear()
        self.deadline = self._loop.time() + self._limits.write_seconds

    def resume_writing(self) -> None:
        self._can_write.set()
        self._rest()
        self._next()

    # The parser's side

    def _begin(self) -> None:
        self._is_within = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._received_bytes = 0

    def on_message_begin(self) -> None:
        self._is_within = True
        if self._answering is None:
            self.deadline = self._loop.time() + self._limits.request_seconds

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        name = name.lower()
        self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes_max:
            self._refuse_head()

    def _refuse_head(self) -> None:
        most = self._limits.head_bytes_max
        self._refuse(problem(431, "head_too_large", f"the request's head has more than {most} bytes; send fewer"))

    def on_headers_complete(self) -> None:
        if self._is_over:
            return
        length = self._headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limits.body_bytes_max:
            self._refuse_body()
        elif self._headers.get(b"expect", b"").lower() == b"100-continue" and self._answering is None:
            self._transport.write(_CONTINUE)

    def on_body(self, data: bytes) -> None:
        if self._is_over:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.body_bytes_max:
            self._refuse_body()
        elif not self._hold(len(data)):
            self._refuse(problem(503, "busy", "too much is being received at this moment; send it again later"))
        else:
            self._body.append(data)

    def _refuse_body(self) -> None:
        most = self._limits.body_bytes_max
        self._refuse(problem(413, "body_too_large", f"the body has more than {most} bytes; send fewer at a time"))

    def on_message_complete(self) -> None:
        if self._is_over:
            return
        if self._parser.should_upgrade():
            self._refuse(problem(400, "no_upgrade", "no other protocol is spoken here; ask in HTTP/1.1 alone"))
            return
        path, _, query = self._url.partition(b"?")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        parser = self._parser
        request = Request(
            parser.get_method().decode("latin-1"),
            path.decode("latin-1"),
            query,
            self._headers,
            body,
            parser.should_keep_alive(),
        )
        self._begin()
        if self._answering is None and not self._waiting and self._can_write.is_set():
            self._start(request)
        else:
            self._waiting.append(request)
            self._transport.pause_reading()

    # Answering

    def _start(self, request: Request) -> None:
        self._answering = request
        self.deadline = float("inf")
        self._task = self._handle(request, self._answer)

    def _answer(self, reply: Reply) -> None:
        request, self._answering, self._task = self._answering, None, None
        if self._transport.is_closing():
            return
        assert request is not None, "answered twice"
        self._hold(-len(request.body))
        if reply.stream is not None:
            self._stream(reply, reply.stream, with_body=request.method != "HEAD")
            return
        is_last = not request.keeps_alive or self._server.is_stopping
        self._write(reply, with_body=request.method != "HEAD", is_last=is_last)
        if is_last:
            self._is_over = True
            self._transport.close()
        elif self._waiting:
            self._loop.call_soon(self._next)
        elif self._last_words is not None:
            self._part(self._last_words)
        else:
            self._rest()

    def _next(self) -> None:
        if self._waiting and self._answering is None and self._can_write.is_set() and not self._transport.is_closing():
            request = self._waiting.popleft()
            if not self._waiting:
                self._transport.resume_reading()
            self._start(request)

    def _write(self, reply: Reply, *, with_body: bool, is_last: bool) -> None:
        self._server.facts.answered[reply.status] += 1
        head = b"%bdate: %b\r\ncontent-length: %d\r\n" % (
            head_of(reply.status, reply.content_type),
            self._server.date,
            len(reply.body),
        )
        for name, value in reply.headers:
            head += f"{name}: {value}\r\n".encode("latin-1")
        end = b"connection: close\r\n\r\n" if is_last else b"\r\n"
        self._transport.write(head + end + reply.body if with_body else head + end)

    def _rest(self) -> None:
        """Until the next request begins."""
        if self._can_write.is_set() and self._answering is None:
            now, limits = self._loop.time(), self._limits
            self.deadline = now + (limits.request_seconds if self._is_within else limits.idle_seconds)

    def _hold(self, size: int) -> bool:
        """Counts memory; whether there is room for it."""
        self._held_bytes += size
        return self._server.hold(size)

    # Answers that go on

    def _stream(self, reply: Reply, content: AsyncIterator[bytes], *, with_body: bool) -> None:
        self._is_over = True
        self._server.facts.answered[reply.status] += 1
        head = head_of(reply.status, reply.content_type)
        self._transport.write(b"%bdate: %b\r\nconnection: close\r\n\r\n" % (head, self._server.date))
        if with_body:
            self._streaming = self._loop.create_task(self._write_all(content))
        else:
            self._transport.close()

    async def _write_all(self, content: AsyncIterator[bytes]) -> None:
        try:
            async for part in content:
                self._transport.write(part)
                await self._can_write.wait()
                if self._transport.is_closing():
                    break
        except Exception as error:
            self._server.on_error(error)
        finally:
            self._transport.close()

    # The end

    def _refuse(self, reply: Reply) -> None:
        """And no further request of this peer can be understood, or shall be."""
        if self._is_over:
            return
        self._is_over = True
        self._body = []
        if self._answering is None and not self._waiting:
            self._part(reply)
        else:
            self._last_words = reply

    def _part(self, reply: Reply) -> None:
        self._write(reply, with_body=True, is_last=True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.deadline = self._loop.time() + self._limits.linger_seconds

    def time_is_up(self) -> None:
        """Called by the server, when the deadline has passed."""
        if self._is_within and not self._is_over and self._can_write.is_set():
            seconds = self._limits.request_seconds
            self._refuse(problem(408, "too_slow", f"the request was not whole within {seconds:g} s; send it faster"))
        else:
            self._transport.abort()

    def shut(self) -> None:
        """Called by the server, which stops: what was asked is answered first."""
        if self._streaming is not None:
            self._streaming.cancel()
        elif self._answering is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
