"""From a frame to its handler, and from the handler's answer to bytes.

A handler is `answer(node, request, context)`: a function that returns the response, or an awaitable for one that comes
later, or None where the client wants none. What it does before it returns happens in the order in which the connection
sent its requests.

Behaviour for what cannot be answered is Kafka's: an ApiVersions of an unknown version is told which there are, in
version 0; anything else that is unknown or malformed ends the connection, and nobody else notices. Until the broker is
open to clients, only other brokers are answered (api/cluster/door.py).
Driven by net, for each frame.
"""

import struct
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from millpond.api.cluster.door import ClusterDoor, Unwelcome
from millpond.api.kafka.context import Context
from millpond.api.kafka.served import SERVED
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.node import Node
from millpond.model.errors import ControllerUnavailable, MalformedMessage
from millpond.model.ports import Buffer
from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import RequestHeader, parse_request_header, response_header_version
from millpond.protocol.messages.registry import API_VERSIONS_KEY
from millpond.telemetry.requests import ApiFacts, FindErrors, RequestFacts, error_finder

_UNSUPPORTED_VERSION: Final = 35
_HEAD: Final = struct.Struct("!i")
_HEAD_TAGGED: Final = struct.Struct("!ix")

Handler = Callable[[Node, Any, Context], "Message | Awaitable[Message] | None"]
Answer = list[Buffer]


class Connection(Protocol):
    peer: tuple[str, int]
    extra: Any
    """A `Session`, once another broker has greeted."""

    def close(self) -> None: ...

    def answer_alone(self) -> None: ...

    def when_lost(self, then: Callable[[], object]) -> None: ...


class _Route(NamedTuple):
    handler: Handler
    facts: ApiFacts
    find_errors: FindErrors
    note_latency: Callable[[int], None]


class Dispatcher:
    def __init__(self, door: ClusterDoor | None = None, *, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Without a door, no other broker is let in. `now_ns` only measures how long answers take."""
        self.facts = RequestFacts()
        self._door = door
        self._node: Node | None = None
        self._now_ns = now_ns
        self._routes: dict[int, _Route] = {}

    def open(self, node: Node) -> None:
        """From now on clients are answered."""
        self._node = node

    def handle(self, frame: memoryview, connection: Connection) -> Answer | Awaitable[Answer | None] | None:
        began_ns = self._now_ns()
        try:
            header, position = parse_request_header(frame)
            api = SERVED.get(header.api_key)
            node = self._node
            if api is None or node is None or not api.serves(header.api_version):
                return self._unserved(header, frame, position, connection)
            request, _ = decode(api.request_class, frame, header.api_version, position)
        except MalformedMessage:
            self.facts.malformed += 1
            connection.close()
            return None
        route = self._routes.get(header.api_key) or self._load(header.api_key)
        answer = route.handler(node, request, _context(header, connection))
        if answer is None:
            route.facts.unanswered += 1
            return None
        if isinstance(answer, Awaitable):
            return self._later(answer, header, route, began_ns, connection)
        return self._finish(answer, header, route, began_ns)

    async def _later(
        self, answer: Awaitable[Message], header: RequestHeader, route: _Route, began_ns: int, connection: Connection
    ) -> Answer | None:
        try:
            return self._finish(await answer, header, route, began_ns)
        except ControllerUnavailable:
            # Not every API has words for it; a client whose connection ends does not know whether it was heard either.
            connection.close()
            return None

    def _finish(self, message: Message, header: RequestHeader, route: _Route, began_ns: int) -> Answer:
        parts = _frame(message, header)
        _, facts, find_errors, note_latency = route
        if codes := find_errors(message):
            facts.note_errors(codes)
        note_latency(self._now_ns() - began_ns)
        return parts

    def _unserved(
        self, header: RequestHeader, frame: memoryview, position: int, connection: Connection
    ) -> Answer | Awaitable[Answer | None] | None:
        if self._door is not None and header.api_key not in SERVED:
            return self._to_broker(self._door, header, frame, position, connection)
        self.facts.unserved += 1
        if header.api_key != API_VERSIONS_KEY or self._node is None:
            connection.close()
            return None
        route = self._routes.get(API_VERSIONS_KEY) or self._load(API_VERSIONS_KEY)
        header = header._replace(api_version=0)
        response: Any = route.handler(self._node, None, _context(header, connection))
        response.error_code = _UNSUPPORTED_VERSION
        return _frame(response, header)

    def _to_broker(
        self, door: ClusterDoor, header: RequestHeader, frame: memoryview, position: int, connection: Connection
    ) -> Answer | Awaitable[Answer | None] | None:
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

    def _load(self, key: int) -> _Route:
        api = SERVED[key]
        module = import_module(f"millpond.api.kafka.handlers.{api.module}")
        facts = self.facts.of(key, api.name)
        route = _Route(module.answer, facts, error_finder(api.response_class), facts.latencies.note)
        self._routes[key] = route
        return route


def _context(header: RequestHeader, connection: Connection) -> Context:
    return Context(
        header.api_version,
        header.client_id,
        connection.peer[0],
        connection.close,
        connection.answer_alone,
        connection.when_lost,
        connection.extra,
    )


def _frame(message: Message, header: RequestHeader) -> Answer:
    parts = encode(message, header.api_version)
    is_tagged = response_header_version(header.api_key, header.api_version) == 1
    parts.insert(0, (_HEAD_TAGGED if is_tagged else _HEAD).pack(header.correlation_id))
    return parts
