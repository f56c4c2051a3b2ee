"""One question at a time to a broker, over Kafka's wire protocol.

    with Asking.connect("127.0.0.1", 9092) as broker:
        answer = broker.ask(DescribeClusterRequest(), DescribeClusterResponse, version=2)

Invariant: whatever goes wrong on the way is a `CannotReach`, which says which broker and what to do.
Blocks. Driven by commands that look at a cluster.
"""

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame, response_header_version

CLIENT_ID = "millpond-cli"
FRAME_BYTES_MAX = 256 << 20
"""A cluster's metadata is far smaller; whoever claims more is no broker."""
_LENGTH = struct.Struct("!i")

Response = TypeVar("Response", bound=Message)


class CannotReach(Exception):
    """No answer from a broker; the message says from which, and what to do."""


class Asking:
    def __init__(self, connection: socket.socket, address: str) -> None:
        """Use `Asking.connect`."""
        self._socket = connection
        self._address = address
        self._correlation_id = 0

    @classmethod
    def connect(cls, host: str, port: int, *, seconds_max: float) -> Self:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return cls(socket.create_connection((host, port), timeout=seconds_max), address)
        except OSError as error:
            raise CannotReach(
                f"no broker answers at {address} ({error.strerror or error}); start one with millpond up, or name "
                "another with --bootstrap"
            ) from None

    def ask(self, request: Message, response_class: type[Response], *, version: int) -> Response:
        self._correlation_id += 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        try:
            self._socket.sendall(b"".join(frame))
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise MalformedMessage(f"an answer claims {size} bytes")
            answer = memoryview(self._read(size))
            header_version = response_header_version(request.api_key, version)
            _, position = parse_response_header(answer, header_version=header_version)
            return decode(response_class, answer, version, position)[0]
        except TimeoutError:
            why = "did not answer in time: it may have no majority at the moment, or be stopped"
        except (OSError, EOFError):
            why = "ended the connection: it may be starting or stopping, or be no broker that knows this question"
        except MalformedMessage as error:
            why = f"answered what is no answer ({error}); it may be no Kafka broker"
        raise CannotReach(f"{self._address} {why}; ask another with --bootstrap")

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            piece = self._socket.recv(min(size - len(content), 1 << 20))
            if not piece:
                raise EOFError
            content += piece
        return bytes(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
