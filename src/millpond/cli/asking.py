"""One question at a time to a broker, by commands that wait for the answer.

    with Asking.connect([Address("127.0.0.1", 9092)], seconds_max=10) as broker:
        answer = broker.ask(DescribeClusterRequest(), DescribeClusterResponse)

Invariant: whatever goes wrong on the way is a `BrokerUnreachable`, which says which broker and what to do.
Blocks. The client's own connection, in a loop that runs only while somebody asks. Driven by commands that look at a
cluster.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from millpond.app.settings import parse_address
from millpond.client.connection import BrokerConnection
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable, ClientError
from millpond.protocol.messages.fields import Message

CLIENT_ID = "millpond-cli"

Response = TypeVar("Response", bound=Message)


def named_in(bootstrap: str) -> list[Address]:
    """The brokers to ask, one after the other until one is there; it tells of the others."""
    return [parse_address("--bootstrap", each) for each in bootstrap.split(",")]


class Asking:
    def __init__(self, runner: asyncio.Runner, connection: BrokerConnection, *, seconds_max: float) -> None:
        """Use `Asking.connect`."""
        self._runner = runner
        self._connection = connection
        self._seconds_max = seconds_max

    @classmethod
    def connect(cls, addresses: Sequence[Address], *, seconds_max: float) -> Self:
        """To the first of them that is there."""
        runner = asyncio.Runner()
        try:
            return cls(runner, runner.run(_open_any(addresses, seconds_max)), seconds_max=seconds_max)
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


async def _open_any(addresses: Sequence[Address], seconds_max: float) -> BrokerConnection:
    refusals: list[str] = []
    for address in addresses:
        try:
            return await BrokerConnection.open(address, client_id=CLIENT_ID, seconds_max=seconds_max)
        except ClientError as error:
            refusals.append(str(error))
    raise BrokerUnreachable(f"{refusals[0]}; or name another with --bootstrap")
