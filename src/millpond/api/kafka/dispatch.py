"""From a frame to its handler, and from the handler's answer to bytes.

A handler is `answer(node, request, context)`: a function that returns the response, or an awaitable for one that comes
later, or None where the client wants none. What it does before it returns happens in the order in which the connection
sent its requests.

Behaviour for what cannot be answered is Kafka's: an ApiVersions of an unknown version is told which there are, in
version 0; anything else that is unknown or malformed ends the connection, and nobody else notices.
Driven by net, for each frame.
"""

import struct
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, Protocol

from millpond.api.kafka.context import Context
from millpond.api.kafka.served import SERVED
from millpond.broker.node import Node
from millpond.model.errors import MalformedMessage
from millpond.model.ports import Buffer
from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import RequestHeader, parse_request_header, response_header_version
from millpond.protocol.messages.registry import API_VERSIONS_KEY

_UNSUPPORTED_VERSION: Final = 35
_HEAD: Final = struct.Struct("!i")
_HEAD_TAGGED: Final = struct.Struct("!ix")

Handler = Callable[[Node, Any, Context], "Message | Awaitable[Message] | None"]
Answer = list[Buffer]


class Connection(Protocol):
    peer: tuple[str, int]

    def close(self) -> None: ...

    def answer_alone(self) -> None: ...


class Dispatcher:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[int, Handler] = {}

    def handle(self, frame: memoryview, connection: Connection) -> Answer | Awaitable[Answer] | None:
        try:
            header, position = parse_request_header(frame)
            api = SERVED.get(header.api_key)
            if api is None or not api.serves(header.api_version):
                return self._unserved(header, connection)
            request, _ = decode(api.request_class, frame, header.api_version, position)
        except MalformedMessage:
            connection.close()
            return None
        handler = self._handlers.get(header.api_key) or self._load(header.api_key)
        context = _context(header, connection)
        answer = handler(self._node, request, context)
        if answer is None:
            return None
        if isinstance(answer, Awaitable):
            return _later(answer, header)
        return _frame(answer, header)

    def _unserved(self, header: RequestHeader, connection: Connection) -> Answer | None:
        if header.api_key != API_VERSIONS_KEY:
            connection.close()
            return None
        handler = self._handlers.get(API_VERSIONS_KEY) or self._load(API_VERSIONS_KEY)
        header = header._replace(api_version=0)
        response: Any = handler(self._node, None, _context(header, connection))
        response.error_code = _UNSUPPORTED_VERSION
        return _frame(response, header)

    def _load(self, key: int) -> Handler:
        module = import_module(f"millpond.api.kafka.handlers.{SERVED[key].module}")
        handler: Handler = module.answer
        self._handlers[key] = handler
        return handler


def _context(header: RequestHeader, connection: Connection) -> Context:
    return Context(header.api_version, header.client_id, connection.peer[0], connection.close, connection.answer_alone)


async def _later(answer: Awaitable[Message], header: RequestHeader) -> Answer:
    return _frame(await answer, header)


def _frame(message: Message, header: RequestHeader) -> Answer:
    parts = encode(message, header.api_version)
    is_tagged = response_header_version(header.api_key, header.api_version) == 1
    parts.insert(0, (_HEAD_TAGGED if is_tagged else _HEAD).pack(header.correlation_id))
    return parts
