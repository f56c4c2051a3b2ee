"""One question at a time to a broker, by commands that wait for the answer.

    with Asking.connect("127.0.0.1", 9092, seconds_max=10) as broker:
        answer = broker.ask(DescribeClusterRequest(), DescribeClusterResponse)

Invariant: whatever goes wrong on the way is a `BrokerUnreachable`, which says which broker and what to do.
Blocks. The client's own connection, in a loop that runs only while somebody asks. Driven by commands that look at a
cluster.
"""

import asyncio
from types import TracebackType
from typing import Self, TypeVar

from millpond.app.settings import parse_address
from millpond.client.connection import BrokerConnection
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable, ClientError
from millpond.protocol.messages.fields import Message

CLIENT_ID = "millpond-cli"

Response = TypeVar("Response", bound=Message)


def first_of(bootstrap: str) -> Address:
    """The broker to ask, where --bootstrap names several; it tells of the others."""
    return parse_address("--bootstrap", bootstrap.split(",", maxsplit=1)[0])


class Asking:
    def __init__(self, runner: asyncio.Runner, connection: BrokerConnection, *, seconds_max: float) -> None:
        """Use `Asking.connect`."""
        self._runner = runner
        self._connection = connection
        self._seconds_max = seconds_max

    @classmethod
    def connect(cls, host: str, port: int, *, seconds_max: float) -> Self:
        runner = asyncio.Runner()
        opening = BrokerConnection.open(Address(host, port), client_id=CLIENT_ID, seconds_max=seconds_max)
        try:
            return cls(runner, runner.run(opening), seconds_max=seconds_max)
        except ClientError as error:
            runner.close()
            raise BrokerUnreachable(f"{error}; or name another with --bootstrap") from None
        except BaseException:
            runner.close()
            raise

    def ask(self, request: Message, response_class: type[Response]) -> Response:
        try:
            return self._runner.run(self._connection.ask(request, response_class, seconds_max=self._seconds_max))
        except ClientError as error:
            raise BrokerUnreachable(
                f"{error}: it may be starting, stopping or without a majority; ask another with --bootstrap"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        self._connection.close()
        await asyncio.sleep(0)  # its socket closes in the next turn of the loop
