"""One connection to one broker: requests out, answers in, in order, each in a version both sides speak.

    connection = await BrokerConnection.open(Address("localhost", 9092), client_id="shop", seconds_max=10)
    answer = await connection.ask(MetadataRequest(topics=None), MetadataResponse, seconds_max=10)

Invariant: every answer that was waited for comes, or is a `BrokerUnreachable`; after one that did not come in time the
connection is ended, because those behind it would not come either.
Driven by cluster.py, which keeps connections, and by those it hands them to.
"""

import asyncio
import os
import struct
from asyncio import Future
from collections import deque
from functools import cache
from typing import Final, NamedTuple, TypeVar

from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable, MalformedMessage, RefusedByBroker
from millpond.model.limits import MIB
from millpond.net.client import ClientConnection, open_connection
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame, response_header_version
from millpond.protocol.messages.registry import APIS

ANSWER_BYTES_MAX: Final = 256 * MIB
"""Far more than is ever asked for; whoever claims more is no broker."""
VERSIONS_VERSION: Final = 3
UNSUPPORTED_VERSION: Final = 35

VERSION_CAPS: Final = {0: 12, 1: 12, 8: 9, 9: 9}
"""From the next version on, Produce, Fetch, OffsetCommit and OffsetFetch know topics by id only; we say their names."""

_CORRELATION: Final = struct.Struct("!i")

Response = TypeVar("Response", bound=Message)


class _Expected(NamedTuple):
    correlation_id: int
    future: "Future[memoryview]"


class BrokerConnection:
    def __init__(self, address: Address, client_id: str) -> None:
        """Use `BrokerConnection.open`."""
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._client_id = client_id
        self._wire: ClientConnection
        self._expected: deque[_Expected] = deque()
        self._correlation_id = 0
        self._versions: dict[int, int] = {}
        self._is_lost = False

    @classmethod
    async def open(cls, address: Address, *, client_id: str, seconds_max: float) -> "BrokerConnection":
        connection = cls(address, client_id)
        try:
            async with asyncio.timeout(seconds_max):
                connection._wire = await open_connection(
                    address.host,
                    address.port,
                    on_frame=connection._arrived,
                    on_lost=connection._lost,
                    frame_bytes_max=ANSWER_BYTES_MAX,
                )
                await connection._agree()
        except TimeoutError:
            connection.close()
            raise BrokerUnreachable(f"{address} did not answer within {seconds_max:g} s") from None
        except OSError as error:
            reason = error if error.errno is None or error.errno < 0 else os.strerror(error.errno)
            raise BrokerUnreachable(f"no broker answers at {address} ({reason}); start one with millpond up") from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return not self._is_lost and not self._wire.is_closing

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    def close(self) -> None:
        if not self._is_lost and hasattr(self, "_wire"):
            self._wire.abort()

    # Asking

    def version_of(self, request_class: type[Message]) -> int:
        """The newest that both sides speak."""
        try:
            return self._versions[request_class.api_key]
        except KeyError:
            name = request_class.__name__.removesuffix("Request")
            raise RefusedByBroker(
                UNSUPPORTED_VERSION, f"{self.address} does not speak {name} in any version this client knows"
            ) from None

    def send(self, request: Message, *, expects_answer: bool = True) -> "Future[memoryview]":
        """The answer's frame, later. Without an answer the future is done at once, and empty."""
        future: Future[memoryview] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(self._gone())
            return future
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFF_FFFF
        version = self.version_of(request.__class__)
        frame = request_frame(request, version, correlation_id=number, client_id=self._client_id)
        if expects_answer:
            self._expected.append(_Expected(number, future))
        else:
            future.set_result(memoryview(b""))
        self._wire.send(frame)
        return future

    def read(self, frame: memoryview, request_class: type[Message], response_class: type[Response]) -> Response:
        return read_answer(frame, response_class, request_class.api_key, self.version_of(request_class))

    async def ask(self, request: Message, response_class: type[Response], *, seconds_max: float) -> Response:
        try:
            async with asyncio.timeout(seconds_max):
                frame = await self.send(request)
        except TimeoutError:
            self.close()
            raise BrokerUnreachable(f"{self.address} did not answer within {seconds_max:g} s") from None
        return self.read(frame, request.__class__, response_class)

    async def _agree(self) -> None:
        """On versions."""
        self._versions[ApiVersionsRequest.api_key] = VERSIONS_VERSION
        request = ApiVersionsRequest(client_software_name="millpond", client_software_version="0")
        self._versions |= agreed_versions(await self.send(request))

    # The connection's side

    def _arrived(self, frame: memoryview) -> None:
        (number,) = _CORRELATION.unpack_from(frame)
        if not self._expected or self._expected[0].correlation_id != number:
            self._wire.abort()  # no broker answers out of turn; nothing after this could be believed
            return
        future = self._expected.popleft().future
        if not future.done():
            future.set_result(frame)

    def _lost(self) -> None:
        self._is_lost = True
        expected, self._expected = self._expected, deque()
        for _, future in expected:
            if not future.done():
                future.set_exception(self._gone())
                future.exception()  # whoever waits is told; if nobody does, that is no news

    def _gone(self) -> BrokerUnreachable:
        # Until it has answered once, one version is known: that of the first question.
        hint = (
            "" if len(self._versions) > 1 else "; it stops at the moment, or this is not its port for Kafka's protocol"
        )
        return BrokerUnreachable(f"the connection to {self.address} ended before the answer came{hint}")


def agreed_versions(frame: memoryview) -> dict[int, int]:
    """Of an answer to ApiVersions: the newest version of each API that both sides speak.

    A broker that is older than the question answers it in version 0.
    """
    (code,) = struct.unpack_from("!h", frame, _CORRELATION.size)
    version = 0 if code == UNSUPPORTED_VERSION else VERSIONS_VERSION
    answer = read_answer(frame, ApiVersionsResponse, ApiVersionsRequest.api_key, version)
    newest = {each.api_key: min(each.max_version, _newest(each.api_key)) for each in answer.api_keys}
    return {each.api_key: newest[each.api_key] for each in answer.api_keys if newest[each.api_key] >= each.min_version}


@cache
def _newest(api_key: int) -> int:
    api = APIS.get(api_key)
    return -1 if api is None else min(api.version_max, VERSION_CAPS.get(api_key, api.version_max))


def read_answer(frame: memoryview, response_class: type[Response], api_key: int, version: int) -> Response:
    try:
        _, position = parse_response_header(frame, header_version=response_header_version(api_key, version))
        return decode(response_class, frame, version, position)[0]
    except MalformedMessage as error:
        raise BrokerUnreachable(f"what came is no answer of a Kafka broker: {error}") from None
