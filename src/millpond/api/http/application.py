"""The HTTP door as an ASGI application: which paths there are, and what each answers.

    GET /metrics        Prometheus' text format
    GET /health         200 when ready, 503 when not; the body says why
    GET /health/live    200 while the process answers at all

A path that is not there is answered with 404, a method that it does not have with 405. A bug of ours is answered with
500 and told to `on_error`. Nothing of a request's body is ever read.
Driven by the ASGI server, once per request, on the broker's loop.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from millpond.broker.node import Node
from millpond.broker.operations.health import why_not_ready
from millpond.broker.operations.measure import Meter
from millpond.telemetry.exposition import CONTENT_TYPE

_JSON = "application/json"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Application:
    def __init__(self, node: Node, meter: Meter, *, on_error: Callable[[BaseException], None]) -> None:
        self._node = node
        self._meter = meter
        self._on_error = on_error
        self._routes: dict[str, dict[str, Callable[[], Awaitable[Reply]]]] = {
            "/metrics": {"GET": self._metrics},
            "/health": {"GET": self._health},
            "/health/live": {"GET": self._live},
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        method: str = scope["method"]
        try:
            reply = await self._answer(scope["path"], "GET" if method == "HEAD" else method)
        except Exception as error:
            self._on_error(error)
            reply = _refusal(500, "the broker failed to answer; its log says why")
        headers = [
            (b"content-type", reply.content_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            *reply.headers,
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else reply.body})

    async def _answer(self, path: str, method: str) -> Reply:
        methods = self._routes.get(path)
        if methods is None:
            return _refusal(404, f"nothing is at this path; there are {', '.join(sorted(self._routes))}")
        if method not in methods:
            allowed = ", ".join([*methods, "HEAD"])
            refusal = _refusal(405, f"this path takes {allowed}")
            return refusal._replace(headers=((b"allow", allowed.encode()),))
        return await methods[method]()

    async def _metrics(self) -> Reply:
        measured = await self._meter.measure()
        body = await asyncio.get_running_loop().run_in_executor(None, measured.render)
        return Reply(200, CONTENT_TYPE, body)

    async def _health(self) -> Reply:
        reasons = why_not_ready(self._node)
        return _json(503 if reasons else 200, {"live": True, "ready": not reasons, "why_not": reasons})

    async def _live(self) -> Reply:
        return _json(200, {"live": True})


def _json(status: int, document: object) -> Reply:
    return Reply(status, _JSON, json.dumps(document).encode() + b"\n")


def _refusal(status: int, message: str) -> Reply:
    return _json(status, {"error": message})
