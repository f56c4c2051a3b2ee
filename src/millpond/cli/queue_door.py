"""Questions to a broker's HTTP door, by commands about queues.

    with QueueDoor([Address("127.0.0.1", 8080)], "jobs", seconds_max=10) as door:
        door.post("receive", {"group": "kitchen"})

Over HTTP because a receipt outlives the process that got it; a session of Kafka's protocol ends with its connection.
Invariant: what is refused is raised as an error of our tree, with the broker's own words. Blocks.
Driven by queue.py.
"""

import json
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from millpond.model.addresses import Address
from millpond.model.errors import (
    BatchTooLarge,
    BrokerUnreachable,
    CoordinatorUnavailable,
    InvalidRequest,
    LeaseLost,
    MillpondError,
    UnknownTopicOrPartition,
)

JSON: Final = "application/json"

_BY_STATUS: Final[dict[int, type[MillpondError]]] = {
    400: InvalidRequest,
    404: UnknownTopicOrPartition,
    409: LeaseLost,
    413: BatchTooLarge,
}


class QueueDoor:
    """To one queue, by the first of these doors that is there."""

    def __init__(self, addresses: Sequence[Address], topic: str, *, seconds_max: float) -> None:
        self._addresses = addresses
        self._path = f"/api/v1/queues/{quote(topic, safe='')}"
        self._seconds_max = seconds_max
        self._connection: HTTPConnection | None = None

    def post(self, what: str, body: object, *, wait_seconds: float = 0.0, form: str = JSON) -> Any:  # noqa: ANN401
        """`wait_seconds` is how long the broker may wait before it answers; `form`, how messages stand in the body."""
        return self._ask("POST", what, json.dumps(body).encode(), wait_seconds, form)

    def get(self, what: str, **query: str | int) -> Any:  # noqa: ANN401
        return self._ask("GET", f"{what}?{urlencode(query)}", None, 0.0)

    def _ask(self, method: str, what: str, body: bytes | None, wait_seconds: float, form: str = JSON) -> Any:  # noqa: ANN401
        connection = self._connected()
        connection.timeout = self._seconds_max + wait_seconds
        connection.sock.settimeout(connection.timeout)
        headers = {"content-type": form} if body is not None else {}
        try:
            connection.request(method, f"{self._path}/{what}", body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            place = f"{connection.host}:{connection.port}"
            raise BrokerUnreachable(
                f"what listens at {place} gave no answer of HTTP ({error}); a broker's HTTP door is "
                "at 127.0.0.1:8080 unless it was told otherwise: name it with --http"
            ) from None
        try:
            document = json.loads(content)
        except ValueError:
            raise BrokerUnreachable(
                f"what answers at {connection.host}:{connection.port} is no broker of Millpond's; name one with --http"
            ) from None
        if answer.status < 300:
            return document
        found = _BY_STATUS.get(answer.status, CoordinatorUnavailable)
        raise found(str(document.get("detail", document)))

    def _connected(self) -> HTTPConnection:
        """Only one that cannot be reached is passed over: what was asked is asked once."""
        if self._connection is not None and self._connection.sock is not None:
            return self._connection
        refusals: list[str] = []
        for address in self._addresses:
            connection = HTTPConnection(address.host, address.port, timeout=self._seconds_max)
            try:
                connection.connect()
            except OSError as error:
                refusals.append(f"no HTTP door answers at {address} ({error})")
            else:
                self._connection = connection
                return connection
        raise BrokerUnreachable(f"{refusals[0]}; start a broker with millpond up, or name another door with --http")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
