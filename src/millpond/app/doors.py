"""The doors of a broker besides Kafka's: those that are wanted, together from their addresses being taken to their end.

Driven by broker.py.
"""

from collections.abc import Callable

from millpond.app.broker_settings import BrokerSettings
from millpond.app.grpc_door import GrpcDoor
from millpond.app.http_door import HttpDoor
from millpond.broker.node import Node
from millpond.model.addresses import Address
from millpond.net.facts import NetworkFacts
from millpond.telemetry.requests import RequestFacts


class Doors:
    def __init__(self, http: HttpDoor | None, grpc: GrpcDoor | None) -> None:
        """Use `Doors.reserve`."""
        self.http = http
        self.grpc = grpc

    @classmethod
    async def reserve(cls, settings: BrokerSettings) -> "Doors":
        http = await HttpDoor.reserve(*settings.http) if settings.http is not None else None
        try:
            return cls(http, await GrpcDoor.reserve(*settings.grpc) if settings.grpc is not None else None)
        except BaseException:
            if http is not None:
                http.let_go()
            raise

    async def open(
        self,
        node: Node,
        *,
        kafka: Address,
        network: NetworkFacts,
        requests: RequestFacts,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`kafka` is where the broker's own Kafka port is reached."""
        if self.http is not None:
            self.http.open(node, kafka=kafka, network=network, requests=requests, on_error=on_error)
        if self.grpc is not None:
            await self.grpc.open(node, kafka=kafka, on_error=on_error)

    async def stop_grpc(self) -> None:
        """While the Kafka port is still open: members of groups leave by it."""
        if self.grpc is not None:
            await self.grpc.stop()

    async def stop_http(self) -> None:
        """Last: it tells of the rest meanwhile."""
        if self.http is not None:
            await self.http.stop()

    async def let_go(self) -> None:
        """Of addresses that were never used."""
        if self.http is not None:
            self.http.let_go()
        await self.stop_grpc()
