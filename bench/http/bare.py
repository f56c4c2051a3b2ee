"""`python -m bench.http.bare starlette|asgi PORT`: an endpoint that reads a message and answers a place.

What a framework costs before anything is done with a request: Starlette and msgspec on uvicorn, with uvloop and
httptools; and uvicorn alone, with an application that is one function.
"""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Message(msgspec.Struct):
    topic: str
    value: str
    key: str | None = None


class Place(msgspec.Struct):
    partition: int
    offset: int


_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


async def produce(request: Request) -> Response:
    message = _decoder.decode(await request.body())
    body = _encoder.encode(Place(0, len(message.value)))
    return Response(body, media_type="application/json")


async def application(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    body = b""
    more = True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False)
    message = _decoder.decode(body)
    answer = _encoder.encode(Place(0, len(message.value)))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    bare: Any = Starlette(routes=[Route("/produce", produce, methods=["POST"])]) if kind == "starlette" else application
    uvicorn.run(
        bare, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error",
        lifespan="off",
    )  # fmt: skip


if __name__ == "__main__":
    main()
