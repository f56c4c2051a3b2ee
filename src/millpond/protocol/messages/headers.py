"""What stands before every message: the request and response headers, and whole frames.

    request   v0  api_key i16, api_version i16, correlation_id i32
              v1  ... client_id nullable string
              v2  ... tagged fields; for every flexible version. client_id keeps its two-byte length even here,
                  because a broker has to read it before it knows whether it knows the version
    response  v0  correlation_id i32
              v1  ... tagged fields; for every flexible version but those of ApiVersions, whose answer a client
                  reads before it knows what the broker speaks

A frame is an i32 length, then the header, then the message.

Invariant: as for compiler.py, bad bytes raise `MalformedMessage` and nothing else.
Pure. Driven by the Kafka front door and by clients.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from millpond.model.errors import MalformedMessage
from millpond.model.ports import Buffer
from millpond.protocol.messages.compiler import encode, is_flexible
from millpond.protocol.messages.decoders import read_uvarint
from millpond.protocol.messages.encoders import EncoderWriter
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.registry import API_VERSIONS_KEY, APIS

_REQUEST: Final = struct.Struct("!hhih")
_REQUEST_V0: Final = struct.Struct("!hhi")
_REQUEST_FRAME: Final = struct.Struct("!ihhih")
_RESPONSE: Final = struct.Struct("!i")
_NEVER: Final = 1 << 15
"""Above every version."""
_FLEXIBLE_SINCE: Final = {
    api.key: _NEVER if api.flexible_since is None else api.flexible_since for api in APIS.values()
}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, also for ones newer than we serve; 1 for the others and for keys we do not know."""
    return 2 if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    api = APIS[api_key]
    return 1 if api_key != API_VERSIONS_KEY and api.is_flexible(api_version) else 0


def parse_request_header(frame: memoryview, *, header_version: int | None = None) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (its length taken off), and where the message starts.

    Works for keys and versions we do not serve as well: whether to go on is the caller's to decide.
    """
    api_key, version, number, client_id, position = split_request_header(frame, header_version=header_version)
    return RequestHeader(api_key, version, number, client_id), position


def split_request_header(
    frame: memoryview, *, header_version: int | None = None
) -> tuple[int, int, int, str | None, int]:
    """The same as plain values, which cost less: this runs for every request."""
    try:
        if header_version == 0:
            return *_REQUEST_V0.unpack_from(frame), None, _REQUEST_V0.size
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        client_id = None
        if length >= 0:
            if length > len(frame) - position:
                raise MalformedMessage(f"client_id claims {length} bytes; {len(frame) - position} are left")
            # A name for people: Kafka does not refuse one that is no UTF-8 either.
            client_id = frame[position : position + length].tobytes().decode(errors="replace")
            position += length
        # `request_header_version` once more, in line.
        if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) if header_version is None else header_version == 2:
            position = _skip_tags(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError):
        raise MalformedMessage(f"the request header is cut short: the frame has {len(frame)} bytes") from None
    return api_key, api_version, correlation_id, client_id, position


def parse_response_header(frame: memoryview, *, header_version: int) -> tuple[int, int]:
    """The correlation id, and where the message starts."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame)
        position = _RESPONSE.size if header_version == 0 else _skip_tags(frame, _RESPONSE.size)
    except (struct.error, IndexError):
        raise MalformedMessage(f"the response header is cut short: the frame has {len(frame)} bytes") from None
    return correlation_id, position


@cache
def response_encoder(declared: type[Any], version: int) -> Callable[[Any, int], list[Buffer]]:
    """What encodes a message of that class, and the header with its request's number before it; without the length.

    In as few buffers as `encode` makes: large records stay those they are.
    """
    writer = EncoderWriter(version=version, is_flexible=is_flexible(declared, version))
    return writer.compile_response(declared, is_tagged=response_header_version(declared.api_key, version) == 1)


def request_frame(message: Message, version: int, *, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """A whole request as it goes to the socket: length, header, message."""
    parts = encode(message, version)
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if is_flexible(message.__class__, version) else b""
    size = _REQUEST.size + len(name) + len(tags) + sum(map(len, parts))
    name_length = -1 if client_id is None else len(name)
    head = _REQUEST_FRAME.pack(size, message.api_key, version, correlation_id, name_length)
    return _with_head(head + name + tags, parts)


def _with_head(head: bytes, parts: list[Buffer]) -> list[Buffer]:
    """The first part of a message is never records, unless it is all there is: joining it copies little."""
    if not parts or not isinstance(parts[0], bytes):
        return [head, *parts]
    parts[0] = head + parts[0]
    return parts


def _skip_tags(frame: memoryview, position: int) -> int:
    """Passes over tagged fields, none of which we know in a header."""
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessage(f"a tagged field of the header claims {size} bytes and runs beyond the frame")
    return position
