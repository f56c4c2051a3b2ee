"""From a frame to its handler, and from the handler's answer to bytes.

A handler is `answer(node, request, context)`: a function that returns the response, or an awaitable for one that comes
later, or a `Soon` for one that a callback makes, or None where the client wants none. What it does before it returns
happens in the order in which the connection sent its requests.

Behaviour for what cannot be answered is Kafka's: an ApiVersions of an unknown version is told which there are, in
version 0; anything else that is unknown or malformed ends the connection, and nobody else notices. Until the broker is
open to clients, only other brokers are answered (api/cluster/door.py).
Driven by net, for each frame.
"""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from typing import Any, Final

from millpond.api.cluster.door import ClusterDoor, Unwelcome
from millpond.api.kafka.context import Connection, Context
from millpond.api.kafka.served import SERVED
from millpond.api.kafka.soon import Soon
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.node import Node
from millpond.model.errors import ControllerUnavailable, MalformedMessage
from millpond.model.values import dataclass
from millpond.net.answers import Answer, Later, Promise
from millpond.protocol.messages.compiler import Decoder, decoder, encode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import RequestHeader, response_encoder, split_request_header
from millpond.protocol.messages.registry import API_VERSIONS_KEY
from millpond.telemetry.requests import ApiFacts, FindErrors, RequestFacts, error_finder

_UNSUPPORTED_VERSION: Final = 35
_HEAD: Final = struct.Struct("!i")
_new_tuple = tuple.__new__  # as a NamedTuple's own constructor, at half its cost: there is a Context for each request

Handler = Callable[[Node, Any, Context], "Message | Awaitable[Message] | Soon | None"]


@dataclass(slots=True)
class _Route:
    """One version of an API, with all that is looked up for each of its requests."""

    decode: Decoder
    handler: Handler
    response_class: type[Message]
    encode: Callable[[Any, int], Answer]
    """The response, with the request's number, by which the client knows what it is the answer to."""
    facts: ApiFacts
    find_errors: FindErrors
    note_latency: Callable[[int], None]


class Dispatcher:
    def __init__(self, door: ClusterDoor | None = None, *, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Without a door, no other broker is let in. `now_ns` only measures how long answers take."""
        self.facts = RequestFacts()
        self._door = door
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop
        """Held: Python 3.11 asks the system for the number of the process whenever it is asked for the running loop."""
        self._now_ns = now_ns
        self._routes: dict[tuple[int, int], _Route] = {}

    def open(self, node: Node) -> None:
        """From now on clients are answered."""
        self._node = node
        self._loop = asyncio.get_running_loop()

    def handle(self, frame: memoryview, connection: Connection) -> Answer | Later | None:
        began_ns = self._now_ns()
        try:
            api_key, version, number, client_id, position = split_request_header(frame)
            route, node = self._routes.get((api_key, version)) or self._load(api_key, version), self._node
            if route is None or node is None:
                header = RequestHeader(api_key, version, number, client_id)
                return self._unserved(header, frame, position, connection)
            request, _ = route.decode(frame, position)
        except MalformedMessage:
            self.facts.malformed += 1
            connection.close()
            return None
        answer = route.handler(node, request, _new_tuple(Context, (version, client_id, connection)))
        if isinstance(answer, route.response_class):
            return self._finish(answer, number, route, began_ns)
        if answer is None:
            route.facts.unanswered += 1
            return None
        if isinstance(answer, Soon):
            promise = Promise()
            if answer.wait(partial(self._make, answer, promise, number, route, began_ns, connection)):
                return promise
            answer = answer.make()
        if isinstance(answer, Awaitable):
            return self._later(answer, number, route, began_ns, connection)
        return self._finish(answer, number, route, began_ns)

    def _make(
        self,
        soon: Soon,
        promise: Promise,
        number: int,
        route: _Route,
        began_ns: int,
        connection: Connection,
        _: object,
    ) -> None:
        if promise.is_abandoned:
            return
        try:
            answer = soon.make()
            if not isinstance(answer, route.response_class):
                assert isinstance(answer, Awaitable)
                later = self._later(answer, number, route, began_ns, connection)
                task = self._loop.create_task(later)
                if isinstance(answer, Coroutine):  # where the connection goes before it begins, Python would warn of it
                    task.add_done_callback(lambda _: answer.close())
                _hand_on(task, promise)
                return
            made = self._finish(answer, number, route, began_ns)
        except Exception as error:  # a bug of ours; the others that are called with this one go on
            promise.fail(error)
        else:
            promise.keep(made)

    async def _later(
        self, answer: Awaitable[Message], number: int, route: _Route, began_ns: int, connection: Connection
    ) -> Answer | None:
        try:
            return self._finish(await answer, number, route, began_ns)
        except ControllerUnavailable:
            # Not every API has words for it; a client whose connection ends does not know whether it was heard either.
            connection.close()
            return None

    def _finish(self, message: Message, number: int, route: _Route, began_ns: int) -> Answer:
        parts = route.encode(message, number)
        if codes := route.find_errors(message):
            route.facts.note_errors(codes)
        route.note_latency(self._now_ns() - began_ns)
        return parts

    def _unserved(
        self, header: RequestHeader, frame: memoryview, position: int, connection: Connection
    ) -> Answer | Later | None:
        if self._door is not None and header.api_key not in SERVED:
            return self._to_broker(self._door, header, frame, position, connection)
        self.facts.unserved += 1
        if header.api_key != API_VERSIONS_KEY or self._node is None:
            connection.close()
            return None
        route = self._load(API_VERSIONS_KEY, 0)
        assert route is not None
        response: Any = route.handler(self._node, None, Context(0, header.client_id, connection))
        response.error_code = _UNSUPPORTED_VERSION
        return route.encode(response, header.correlation_id)

    def _to_broker(
        self, door: ClusterDoor, header: RequestHeader, frame: memoryview, position: int, connection: Connection
    ) -> Answer | Later | None:
        if connection.extra is None:
            connection.extra = Session()
        try:
            answer = door.handle(header.api_key, header.api_version, frame, position, connection.extra)
        except Unwelcome:
            connection.close()
            return None
        if answer is None:
            return None
        if isinstance(answer, Awaitable):
            return self._to_broker_later(answer, header, connection)
        return [_HEAD.pack(header.correlation_id), *encode(answer, header.api_version)]

    async def _to_broker_later(
        self, answer: Awaitable[Message], header: RequestHeader, connection: Connection
    ) -> Answer | None:
        try:
            return [_HEAD.pack(header.correlation_id), *encode(await answer, header.api_version)]
        except MalformedMessage:
            self.facts.malformed += 1
            connection.close()
            return None

    def _load(self, key: int, version: int) -> _Route | None:
        api = SERVED.get(key)
        if api is None or not api.serves(version):
            return None
        module = import_module(f"millpond.api.kafka.handlers.{api.module}")
        facts = self.facts.of(key, api.name)
        self._routes[key, version] = route = _Route(
            decoder(api.request_class, version),
            module.answer,
            api.response_class,
            response_encoder(api.response_class, version),
            facts,
            error_finder(api.response_class),
            facts.latencies.note,
        )
        return route


def _hand_on(task: "asyncio.Task[Answer | None]", promise: Promise) -> None:
    """What becomes of the task becomes of the promise; where that is abandoned, the task is cancelled."""

    def ended(task: "asyncio.Task[Answer | None]") -> None:
        if promise.is_abandoned:
            if not task.cancelled():
                task.exception()  # is nobody's any more; Python would complain of one that was never looked at
        elif task.cancelled():
            promise.fail(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            promise.fail(error)
        else:
            promise.keep(task.result())

    task.add_done_callback(ended)
    promise.when_abandoned(task.cancel)
