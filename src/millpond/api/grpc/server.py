"""The gRPC server inside the broker's own loop.

An address is taken when the server is made, and whoever connects waits until it is started. Health and reflection come
with it. Loading this module loads grpcio, which is an extra: do it only where somebody wants that door.
Driven by app.
"""

from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from millpond.api.grpc.limits import GrpcLimits
from millpond.api.grpc.messages import Messages
from millpond.api.grpc.proto.millpond.v1 import messages_pb2, topics_pb2
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import add_MessagesServicer_to_server
from millpond.api.grpc.proto.millpond.v1.topics_pb2_grpc import add_TopicsServicer_to_server
from millpond.api.grpc.topics import Topics
from millpond.broker.node import Node
from millpond.model.addresses import Address

SERVICES = (
    messages_pb2.DESCRIPTOR.services_by_name["Messages"].full_name,
    topics_pb2.DESCRIPTOR.services_by_name["Topics"].full_name,
)


class GrpcServer:
    def __init__(self, address: Address, limits: GrpcLimits) -> None:
        """Raises RuntimeError where the address cannot be had."""
        self._limits = limits
        self._server = grpc.aio.server(options=limits.options(), maximum_concurrent_rpcs=limits.calls_max)
        self._health = health.aio.HealthServicer()
        self._messages: Messages | None = None
        self.port: int = self._server.add_insecure_port(str(address))

    async def start(self, node: Node, *, kafka: Address, on_error: Callable[[BaseException], None]) -> None:
        """`kafka` is where this broker's own Kafka port is reached."""
        self._messages = Messages(node, self._limits, kafka=kafka, on_error=on_error)
        add_MessagesServicer_to_server(self._messages, self._server)
        add_TopicsServicer_to_server(Topics(node, on_error=on_error), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self) -> None:
        """Lets what was asked be answered for a short while; streams that go on for ever are ended then."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._limits.grace_seconds if self._messages is not None else None)
        if self._messages is not None:
            await self._messages.close()
