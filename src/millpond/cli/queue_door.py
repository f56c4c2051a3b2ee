"""Questions to a broker's HTTP door, by commands about queues.

    with QueueDoor(parse_door("127.0.0.1:8080"), "jobs", seconds_max=10) as door:
        door.post("receive", {"group": "kitchen"})

Over HTTP because a receipt outlives the process that got it; a session of Kafka's protocol ends with its connection.
Invariant: what is refused is raised as an error of our tree, with the broker's own words. Blocks.
Driven by queue.py.
"""

import json
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

_BY_STATUS: Final[dict[int, type[MillpondError]]] = {
    400: InvalidRequest,
    404: UnknownTopicOrPartition,
    409: LeaseLost,
    413: BatchTooLarge,
}


class QueueDoor:
    """To one queue."""

    def __init__(self, address: Address, topic: str, *, seconds_max: float) -> None:
        self._address = address
        self._path = f"/api/v1/queues/{quote(topic, safe='')}"
        self._seconds_max = seconds_max
        self._connection = HTTPConnection(address.host, address.port, timeout=seconds_max)

    def post(self, what: str, body: object, *, wait_seconds: float = 0.0) -> Any:  # noqa: ANN401
        """`wait_seconds` is how long the broker may wait before it answers."""
        return self._ask("POST", what, json.dumps(body).encode(), wait_seconds)

    def get(self, what: str, **query: str | int) -> Any:  # noqa: ANN401
        return self._ask("GET", f"{what}?{urlencode(query)}", None, 0.0)

    def _ask(self, method: str, what: str, body: bytes | None, wait_seconds: float) -> Any:  # noqa: ANN401
        self._connection.timeout = self._seconds_max + wait_seconds
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._connection.timeout)
        headers = {"content-type": "application/json"} if body is not None else {}
        try:
            self._connection.request(method, f"{self._path}/{what}", body, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise BrokerUnreachable(
                f"no HTTP door answers at {self._address} ({error}); start a broker with millpond up, or name another "
                "door with --http"
            ) from None
        try:
            document = json.loads(content)
        except ValueError:
            raise BrokerUnreachable(f"what answers at {self._address} is no broker of Millpond's") from None
        if answer.status < 300:
            return document
        found = _BY_STATUS.get(answer.status, CoordinatorUnavailable)
        raise found(str(document.get("detail", document)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()
