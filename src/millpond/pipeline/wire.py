"""A connection that a task fetches on, without an event loop: answers are read into memory that is kept for them.

    wire = Wire(address, client_id="spark", seconds_max=30)
    wire.ask(request)                      # the broker sends while its last answer is decoded
    answer = wire.answer(FetchResponse)    # good until the next one

It is for a leader that is known and answers well. Whatever else happens is a `BrokerUnreachable`, after which the wire
is closed, and the cluster's own connections, which know what to do then, are asked instead (reading.py).

Invariant: an answer is that to the last request, whole; there is at most one on its way.
Driven by link.py, which keeps it, and reading.py. Belongs to one thread.
"""

import socket
import struct
from typing import Final, TypeVar

from millpond.client.connection import ANSWER_BYTES_MAX, VERSIONS_VERSION, agreed_versions, read_answer
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import request_frame

Response = TypeVar("Response", bound=Message)

_LENGTH: Final = struct.Struct("!i")
_CORRELATION: Final = struct.Struct("!i")
_TIME: Final = struct.Struct("@ll")
ROOM_BYTES_MIN: Final = 64 * 1024
ROOM_BYTES_MAX: Final = 16 * 1024 * 1024
"""More than this is not kept for the next answer."""


class Wire:
    def __init__(self, address: Address, *, client_id: str, seconds_max: float) -> None:
        self._address = address
        self._client_id = client_id
        self._number = 0
        self._asked: type[Message] | None = None
        self._room = bytearray(ROOM_BYTES_MIN)
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout=seconds_max)
        except OSError as error:
            raise self._gone(error) from None
        try:
            # A blocking socket with a limit in the kernel: one call then waits for a whole answer.
            self._socket.settimeout(None)
            limit = _TIME.pack(int(seconds_max), int(seconds_max % 1 * 1e6))
            for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, which, limit)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._versions = {ApiVersionsRequest.api_key: VERSIONS_VERSION}
            self.ask(ApiVersionsRequest(client_software_name="millpond", client_software_version="0"))
            self._versions = agreed_versions(self._frame())
        except BaseException:
            self.close()
            raise

    @property
    def is_waiting(self) -> bool:
        """For an answer."""
        return self._asked is not None

    def ask(self, request: Message) -> None:
        assert self._asked is None, "an answer is on its way"
        self._number = (self._number + 1) & 0x7FFF_FFFF
        version = self._versions.get(request.api_key)
        if version is None:
            raise BrokerUnreachable(f"{self._address} does not speak {type(request).__name__} as this client does")
        pieces = request_frame(request, version, correlation_id=self._number, client_id=self._client_id)
        try:
            self._socket.sendall(b"".join(pieces))
        except OSError as error:
            raise self._gone(error) from None
        self._asked = type(request)

    def answer(self, response_class: type[Response]) -> Response:
        """To what was asked. Its bytes are good until the next answer is waited for."""
        asked = self._asked
        assert asked is not None, "nothing was asked"
        return read_answer(self._frame(), response_class, asked.api_key, self._versions[asked.api_key])

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> memoryview:
        head = memoryview(bytearray(_LENGTH.size))
        self._fill(head)
        (length,) = _LENGTH.unpack(head)
        if not _CORRELATION.size <= length <= ANSWER_BYTES_MAX:
            raise BrokerUnreachable(f"{self._address} sent what is no answer: {length} bytes")
        if length > len(self._room):
            self._room = bytearray(max(length, 2 * len(self._room)))
        elif len(self._room) > ROOM_BYTES_MAX:
            self._room = bytearray(max(length, ROOM_BYTES_MIN))
        frame = memoryview(self._room)[:length]
        self._fill(frame)
        if _CORRELATION.unpack_from(frame) != (self._number,):
            raise BrokerUnreachable(f"{self._address} answered out of turn")
        self._asked = None
        return frame

    def _fill(self, room: memoryview) -> None:
        have, size = 0, len(room)
        try:
            while have < size:
                came = self._socket.recv_into(room[have:], size - have, socket.MSG_WAITALL)
                if not came:
                    raise BrokerUnreachable(f"the connection to {self._address} ended before the answer came")
                have += came
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable(f"{self._address} did not answer ({error})")
