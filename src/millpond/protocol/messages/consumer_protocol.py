"""What consumers tell each other through JoinGroup and SyncGroup: subscriptions one way, assignments the other.

Both are opaque to a coordinator of the classic protocol, which needs to read them only to describe a group or to
take it over into the new protocol.

    byte  field
       0  version  i16   of what follows
       2  the subscription or assignment; no version is flexible

Behaviour: a reader takes a version it does not know as the newest it knows and ignores what is left over, so that
members of different ages can share a group.

Version notes:
    1  owned_partitions, for assigning with few moves    2  generation_id    3  rack_id. Assignments never changed

Driven by the group coordinator and by clients.
"""

import struct
from typing import ClassVar, Final, TypeVar

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.fields import Kind, array, data, int32, served, string, wire

M = TypeVar("M", "ConsumerProtocolSubscription", "ConsumerProtocolAssignment")


@wire
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@wire
class ConsumerProtocolSubscription:
    api_key: ClassVar[int] = -1
    versions: ClassVar[range] = served(0, 3)
    flexible_since: ClassVar[int | None] = None

    topics: list[str] = array(Kind.STRING)
    user_data: bytes | None = data(nullable_since=0, default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, since=1)
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = string(since=3, nullable_since=3, default=None)


@wire
class ConsumerProtocolAssignment:
    api_key: ClassVar[int] = -1
    versions: ClassVar[range] = served(0, 3)
    flexible_since: ClassVar[int | None] = None

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = data(nullable_since=0, default=None)


_VERSION: Final = struct.Struct("!h")


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    return b"".join([_VERSION.pack(version), *encode(subscription, version)])


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    return b"".join([_VERSION.pack(version), *encode(assignment, version)])


def decode_subscription(content: bytes) -> ConsumerProtocolSubscription:
    return _decode(ConsumerProtocolSubscription, content)


def decode_assignment(content: bytes) -> ConsumerProtocolAssignment:
    return _decode(ConsumerProtocolAssignment, content)


def _decode(declared: type[M], content: bytes) -> M:
    if len(content) < _VERSION.size:
        raise MalformedMessage(f"{declared.__name__} is cut short: it has {len(content)} bytes, its version alone two")
    (version,) = _VERSION.unpack_from(content)
    if version < 0:
        raise MalformedMessage(f"version of {declared.__name__} is {version}; it is at least 0")
    message, _ = decode(declared, memoryview(content), min(version, declared.versions[-1]), _VERSION.size)
    return message
