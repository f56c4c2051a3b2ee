"""The gRPC server inside the broker's own loop.

An address is taken when the server is made, and whoever connects waits until it is started. Health and reflection come
with it. Loading this module loads grpcio, which is an extra: do it only where somebody wants that door.
Driven by app.
"""

from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from millpond.api.grpc.calls import Calls
from millpond.api.grpc.delays import Delays
from millpond.api.grpc.groups import Groups
from millpond.api.grpc.limits import GrpcLimits
from millpond.api.grpc.messages import Messages
from millpond.api.grpc.proto.millpond.v1 import delays_pb2, groups_pb2, messages_pb2, queues_pb2, topics_pb2
from millpond.api.grpc.proto.millpond.v1.delays_pb2_grpc import add_DelaysServicer_to_server
from millpond.api.grpc.proto.millpond.v1.groups_pb2_grpc import add_GroupsServicer_to_server
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import add_MessagesServicer_to_server
from millpond.api.grpc.proto.millpond.v1.queues_pb2_grpc import add_QueuesServicer_to_server
from millpond.api.grpc.proto.millpond.v1.topics_pb2_grpc import add_TopicsServicer_to_server
from millpond.api.grpc.queues import Queues
from millpond.api.grpc.topics import Topics
from millpond.broker.node import Node
from millpond.model.addresses import Address

SERVICES = tuple(
    service.full_name
    for file in (messages_pb2, topics_pb2, groups_pb2, queues_pb2, delays_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)


class GrpcServer:
    def __init__(self, address: Address, limits: GrpcLimits) -> None:
        """Raises RuntimeError where the address cannot be had."""
        self._limits = limits
        self._server = grpc.aio.server(options=limits.options(), maximum_concurrent_rpcs=limits.calls_max)
        self._health = health.aio.HealthServicer()
        self.calls: Calls | None = None
        self.port: int = self._server.add_insecure_port(str(address))

    async def start(self, node: Node, *, kafka: Address, on_error: Callable[[BaseException], None]) -> None:
        """`kafka` is where this broker's own Kafka port is reached."""
        calls = self.calls = Calls(node, self._limits, kafka=kafka, on_error=on_error)
        add_MessagesServicer_to_server(Messages(calls), self._server)
        add_TopicsServicer_to_server(Topics(calls), self._server)
        add_GroupsServicer_to_server(Groups(calls), self._server)
        add_QueuesServicer_to_server(Queues(calls), self._server)
        add_DelaysServicer_to_server(Delays(calls), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self) -> None:
        """Lets what was asked be answered for a short while; streams that go on for ever are ended then."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._limits.grace_seconds if self.calls is not None else None)
        if self.calls is not None:
            await self.calls.close()
