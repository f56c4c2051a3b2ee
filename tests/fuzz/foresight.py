"""What must come of a stream of bytes: which frames are answered, and where the connection ends.

Read with the codec's decoder, which has an oracle and a fuzz of its own; what is foreseen is what Kafka does: whatever
decodes is answered, and only what does not ends its connection. Pure.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millpond.api.kafka.served import SERVED
from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fetch import FetchRequest
from millpond.protocol.messages.headers import parse_request_header
from millpond.protocol.messages.join_group import JoinGroupRequest
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.registry import API_VERSIONS_KEY
from millpond.protocol.messages.sync_group import SyncGroupRequest
from tests.fuzz.values import STRANGE_TEXTS
from tests.fuzz.world import PARTITIONS, TOPICS

FRAME_BYTES_MAX = 104_857_600
PARTITIONS_MAX = PARTITIONS + 1
_CREATE_TOPICS, _ALTER_CONFIGS, _CREATE_PARTITIONS, _INCREMENTAL_ALTER_CONFIGS = 19, 33, 37, 44
_BROKER = 4
_OWN_NAMES = {*TOPICS, *STRANGE_TEXTS}


class Outcome(Enum):
    ANSWERED = "answered"
    MAY_WAIT = "answered, perhaps after a long while"
    SILENT = "not answered; the connection may end"
    CLOSED = "the connection ends"


@dataclass(frozen=True, slots=True)
class Foreseen:
    outcome: Outcome
    body: bytes
    key: int = -1
    version: int = -1
    """That the answer has."""
    correlation_id: int = 0
    message: Any = None

    @property
    def group(self) -> str:
        return str(getattr(self.message, "group_id", ""))


def foresee_stream(stream: bytes) -> list[Foreseen]:
    """Frame by frame, to the one that ends the connection or to the last that is whole."""
    frames: list[Foreseen] = []
    at = 0
    while at + 4 <= len(stream):
        (length,) = struct.unpack_from("!i", stream, at)
        if not 0 < length <= FRAME_BYTES_MAX:
            frames.append(Foreseen(Outcome.CLOSED, stream[at : at + 4]))
            break
        if at + 4 + length > len(stream):
            break
        frames.append(foresee(stream[at + 4 : at + 4 + length]))
        if frames[-1].outcome is Outcome.CLOSED:
            break
        at += 4 + length
    return frames


def foresee(body: bytes) -> Foreseen:
    view = memoryview(body)
    try:
        header, position = parse_request_header(view)
        api = SERVED.get(header.api_key)
        if api is None:
            return Foreseen(Outcome.CLOSED, body)
        if not api.serves(header.api_version):
            if api.key == API_VERSIONS_KEY:  # told, in version 0, which versions there are
                return Foreseen(Outcome.ANSWERED, body, api.key, 0, header.correlation_id)
            return Foreseen(Outcome.CLOSED, body)
        message, _ = decode(api.request_class, view, header.api_version, position)
    except MalformedMessage:
        return Foreseen(Outcome.CLOSED, body)
    return Foreseen(_outcome(message), body, api.key, header.api_version, header.correlation_id, message)


def _outcome(message: Any) -> Outcome:  # noqa: ANN401 - any request
    match message:
        case ProduceRequest(acks=0):
            return Outcome.SILENT
        case JoinGroupRequest() | SyncGroupRequest():
            return Outcome.MAY_WAIT
        case FetchRequest() if message.max_wait_ms > 50 and message.min_bytes > 0:
            return Outcome.MAY_WAIT
    return Outcome.ANSWERED


def is_allowed(foreseen: Foreseen) -> bool:
    """Not what an administrator may do and everybody would notice: thousands of partitions, settings of all brokers."""
    message = foreseen.message
    if message is None or getattr(message, "validate_only", False):
        return True
    if foreseen.key == _CREATE_TOPICS:
        return all(
            topic.num_partitions <= PARTITIONS_MAX
            and len(topic.assignments) <= PARTITIONS_MAX
            and topic.name in _OWN_NAMES
            for topic in message.topics
        )
    if foreseen.key == _CREATE_PARTITIONS:
        return all(topic.count <= PARTITIONS_MAX and len(topic.assignments or ()) <= 1 for topic in message.topics)
    if foreseen.key in (_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS):
        return all(
            each.resource_type != _BROKER and not each.resource_name.startswith("__") for each in message.resources
        )
    return True
