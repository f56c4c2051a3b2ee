"""One message of Millpond's queues at a time, by frames encoded beforehand, as the other systems' clients do it.

A request acknowledges what the one before it brought, and asks for the next: so does RabbitMQ's consumer that may have
one message unacknowledged, except that its acknowledgement is never answered, and this one by the next message.
Invariant: every answer is looked at, and one that refuses anything ends the run.
"""

import struct

from bench.broker.driving import MARK, connect
from bench.broker.kafka_wire import frame_of
from bench.broker.processes import NotReady
from bench.queues.flowing import Stream
from bench.queues.millpond import check, fetch_request, topic_id_of
from bench.queues.millpond import connect as open_connection
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.headers import parse_response_header, response_header_version
from millpond.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

VERSION = 2
_HEADER_VERSION = response_header_version(ShareFetchRequest.api_key, VERSION)
_LENGTH = struct.Struct("!i")
_EPOCH = struct.Struct("!i")
_OFFSETS = struct.Struct("!qq")
_SOME_EPOCH = 0x5EED_5EED
_SOME_OFFSETS = (0x0FF5_E70F_F5E7_0FF5, 0x1FF5_E70F_F5E7_0FF5)


class _Template:
    """A request whose epoch and offsets are filled in."""

    def __init__(self, topic_id: bytes, member: str, held: list[tuple[int, int]]) -> None:
        request = fetch_request(topic_id, member, held, epoch=_SOME_EPOCH, at_once=1)
        self._frame = bytearray(frame_of(request, VERSION))
        self._epoch_at = self._frame.index(_EPOCH.pack(_SOME_EPOCH))
        self._offsets_at = self._frame.find(_OFFSETS.pack(*_SOME_OFFSETS))

    def filled(self, epoch: int, offset: int | None) -> bytes:
        _EPOCH.pack_into(self._frame, self._epoch_at, epoch)
        if offset is not None:
            _OFFSETS.pack_into(self._frame, self._offsets_at, offset, offset)
        return bytes(self._frame)


class SingleReceiver:
    def __init__(self, stream: Stream, topic_id: bytes, member: str) -> None:
        """Use `open`."""
        self._stream = stream
        self._asking = _Template(topic_id, member, [])
        self._acknowledging = _Template(topic_id, member, [_SOME_OFFSETS])
        self._epoch = 0
        self._held: int | None = None
        self._data = b""

    @classmethod
    async def open(cls, port: int, topic: str, member: str) -> "SingleReceiver":
        asked = await open_connection(port)
        topic_id = await topic_id_of(asked, topic)
        asked.close()
        receiver = cls(await Stream.over(connect(port)), topic_id, member)
        opening = fetch_request(topic_id, member, [], epoch=0, at_once=1, wait_ms=0)
        await receiver._ask(frame_of(opening, VERSION))
        return receiver

    async def turn(self) -> int:
        template = self._asking if self._held is None else self._acknowledging
        acknowledged = 0 if self._held is None else 1
        await self._ask(template.filled(self._epoch, self._held))
        return acknowledged

    async def _ask(self, frame: bytes) -> None:
        self._stream.write(frame)
        while len(self._data) < _LENGTH.size or len(self._data) < _LENGTH.size + _LENGTH.unpack_from(self._data)[0]:
            self._data += await self._stream.read()
        self._take(memoryview(self._data)[_LENGTH.size :])
        self._data = b""
        self._epoch += 1

    def _take(self, frame: memoryview) -> None:
        _, position = parse_response_header(frame, header_version=_HEADER_VERSION)
        answer, _ = decode(ShareFetchResponse, frame, VERSION, position)
        check(answer.error_code)
        self._held = None
        for part in (part for topic in answer.responses for part in topic.partitions):
            check(part.error_code or part.acknowledge_error_code)
            for each in part.acquired_records:
                if self._held is not None or each.first_offset != each.last_offset or MARK not in bytes(part.records):
                    raise NotReady("not the one message came that was asked for")
                self._held = each.first_offset

    async def finish(self) -> None:
        assert self._held is None, "every acknowledgement was answered"

    def close(self) -> None:
        self._stream.close()
