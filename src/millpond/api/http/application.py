"""The HTTP door's inside: finds the route of a request, calls it, and answers with what it returns or raises.

Invariant: every request is answered once. What is wrong with a request is answered with a problem; a bug of ours with
500, and it is told to `on_error`.
Driven by connection.py, once per request, on the broker's loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any

import msgspec

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.reading import Reading
from millpond.api.anywhere.refusals import Refusal
from millpond.api.http.connection import Answer, Request
from millpond.api.http.openapi import OpenApi
from millpond.api.http.problems import Blames, problem, reply_to
from millpond.api.http.replies import JSON, Reply
from millpond.api.http.routes import (
    cluster,
    consume,
    dead_letters,
    delays,
    documents,
    groups,
    health,
    produce,
    queues,
    subscribe,
    tail,
    topics,
)
from millpond.api.http.routing import Call, Found, Table, body_of, query_of
from millpond.api.http.services import Services
from millpond.broker.node import Node
from millpond.broker.operations.measure import Meter
from millpond.model.addresses import Address
from millpond.model.errors import MillpondError

ROUTES = (
    *produce.ROUTES,
    *consume.ROUTES,
    *subscribe.ROUTES,
    *tail.ROUTES,
    *topics.ROUTES,
    *groups.ROUTES,
    *queues.ROUTES,
    *dead_letters.ROUTES,
    *delays.ROUTES,
    *cluster.ROUTES,
    *health.ROUTES,
)


class Application:
    def __init__(
        self,
        node: Node,
        meter: Meter,
        *,
        kafka: Address,
        is_local: bool,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`kafka` is where this broker's own Kafka port is reached. A door that is local is reached by names of this
        machine alone: whoever asks for another was led here by a page that gave its own name this address."""
        neighbours = Neighbours(kafka, node.clock, node.rng)
        self._services = Services(
            node=node,
            meter=meter,
            neighbours=neighbours,
            producing=Producing(node, neighbours, on_error=on_error),
            reading=Reading(node, neighbours),
        )
        self._table = Table([*ROUTES, *documents.routes(OpenApi(ROUTES))])
        self._is_local = is_local
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()

    def handle(self, request: Request, answer: Answer) -> "asyncio.Task[None] | None":
        blames: Blames = {}
        try:
            if self._is_local and not _is_of_this_machine(request.headers.get(b"host", b"")):
                raise Refusal(421, "foreign_host", "this door is for this machine alone; ask localhost", field="host")
            found = self._table.find(request.method, request.path)
            if found.route.quick is None:
                return self._loop.create_task(self._call(found, request, answer))
            blames = found.route.blames
            work = found.route.quick(self._services, request, answer)
            return None if work is None else self._loop.create_task(self._finish(work, blames, answer))
        except Exception as error:
            answer(self._reply_to(error, blames))
            return None

    async def _call(self, found: Found, request: Request, answer: Answer) -> None:
        route = found.route
        assert route.handler is not None, route.path
        try:
            query = None if route.query is None else query_of(request, route.query)
            body = None if route.body is None else body_of(request, route)
            result = await route.handler(Call(self._services, request, found.names, query, body))
            if isinstance(result, Reply):
                reply = result
            else:
                reply = Reply(route.status, JSON, msgspec.json.encode(result) + b"\n")
        except Exception as error:
            reply = self._reply_to(error, route.blames)
        answer(reply)

    async def _finish(self, work: Coroutine[Any, Any, None], blames: Blames, answer: Answer) -> None:
        try:
            await work
        except Exception as error:
            answer(self._reply_to(error, blames))

    def _reply_to(self, error: Exception, blames: Blames) -> Reply:
        if isinstance(error, MillpondError | Refusal):
            return reply_to(error, blames)
        self._on_error(error)
        return problem(500, "internal_error", "the broker failed to answer; its log says why")

    async def close(self) -> None:
        await self._services.producing.close()
        await self._services.neighbours.close()


@lru_cache(64)
def _is_of_this_machine(host: bytes) -> bool:
    """Of HTTP/1.0 there may be none."""
    name = host.decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return not name or Address(name.lower(), 0).is_loopback
