"""Messages to bytes and back: the front door of the codec.

    parts = encode(MetadataResponse(brokers=[...]), 12)
    request, end = decode(MetadataRequest, frame, 12, position)

The functions behind it are written and compiled once per class and version, on first use, from the declarations in
this package; encoders.py and decoders.py write them. Who uses one again and again holds on to it: `encoder`, `decoder`.

Invariant: whatever bytes a peer sends, `decode` returns a message or raises `MalformedMessage`, nothing else.
Pure. Driven by the front doors and the clients.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from millpond.model.errors import MalformedMessage
from millpond.model.ports import Buffer
from millpond.protocol.messages.decoders import DecoderWriter
from millpond.protocol.messages.encoders import EncoderWriter
from millpond.protocol.messages.fields import Message

__all__ = ["MalformedMessage", "decode", "decoder", "encode", "encoder", "is_flexible"]

M = TypeVar("M", bound=Message)
Encoder = Callable[[Any], list[Buffer]]
Decoder = Callable[[memoryview | bytes, int], tuple[Any, int]]

_encoders: Final[dict[tuple[type[Any], int], Encoder]] = {}
_decoders: Final[dict[tuple[type[Any], int], Decoder]] = {}


def encode(message: Message, version: int) -> list[Buffer]:
    """The message in as few buffers as copying no large records allows; without header and frame length."""
    return encoder(message.__class__, version)(message)


def decode(declared: type[M], buffer: memoryview, version: int, position: int = 0) -> tuple[M, int]:
    """The message that starts at `position`, and where it ends. Records are views of `buffer`, all else is copied.

    Bytes behind the end are the caller's to judge; Kafka ignores them.
    """
    found: tuple[M, int] = decoder(declared, version)(buffer, position)
    return found


def encoder(declared: type[Any], version: int) -> Encoder:
    """What `encode` does with a message of that class."""
    made = _encoders.get((declared, version))
    if made is None:
        made = EncoderWriter(version=version, is_flexible=is_flexible(declared, version)).compile(declared)
        _encoders[declared, version] = made
    return made


def decoder(declared: type[Any], version: int) -> Decoder:
    """What `decode` does for that class."""
    made = _decoders.get((declared, version))
    if made is None:
        made = DecoderWriter(version=version, is_flexible=is_flexible(declared, version)).compile(declared)
        _decoders[declared, version] = made
    return made


def is_flexible(declared: type[Message], version: int) -> bool:
    """Whether this version has compact lengths and tagged fields."""
    assert version in declared.versions, (
        f"{declared.__name__} has no version {version}; the registry says which there are"
    )
    return declared.flexible_since is not None and version >= declared.flexible_since
