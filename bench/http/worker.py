"""`python -m bench.http.worker PORT CONNECTIONS SECONDS`: asks the same again and again, and counts the answers.

Reads the request from its standard input. Each connection has one request on its way at a time. Prints how many were
answered in how many seconds, as JSON. Stops by itself.
"""

import asyncio
import json
import sys
import time

import uvloop

_LENGTH = b"content-length: "


class Asking(asyncio.Protocol):
    answered = 0
    is_over = False

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._received = b""
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none by name
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        start = head.lower().index(_LENGTH) + len(_LENGTH)
        if len(rest) < int(head[start:].split(b"\r\n", 1)[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._received[:1_000].decode(errors="replace"))
        self._received = b""
        if not Asking.is_over:
            Asking.answered += 1
            self._transport.write(self._request)


async def ask(request: bytes, port: int, connections: int, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Asking(request), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    Asking.is_over = True
    return time.perf_counter() - began


def main() -> None:
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    took = uvloop.run(ask(sys.stdin.buffer.read(), port, connections, seconds))
    print(json.dumps({"answered": Asking.answered, "seconds": took}))


if __name__ == "__main__":
    main()
