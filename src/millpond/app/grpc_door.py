"""The gRPC door, from its address being taken to its end.

Loaded only where it is asked for: what serves it is an extra of the installation, and takes a while to load. That is
done first, with the address, so that a start that cannot have them fails before anything else is done. Driven by
broker.py.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from millpond.app.refusals import CannotListen, CannotStart
from millpond.broker.node import Node
from millpond.model.addresses import Address
from millpond.net.listening import let_go, reserve

if TYPE_CHECKING:  # see above
    from millpond.api.grpc.server import GrpcServer

SETTING = "grpc"


class GrpcDoor:
    def __init__(self, server: "GrpcServer") -> None:
        """Use `GrpcDoor.reserve`."""
        self._server = server
        self.port = server.port

    @classmethod
    async def reserve(cls, host: str, port: int) -> "GrpcDoor":
        try:
            let_go(await reserve(host, port))  # grpcio takes it for itself, and would not say why it cannot
        except OSError as error:
            raise CannotListen(SETTING, error) from error
        try:
            await asyncio.get_running_loop().run_in_executor(None, import_module, "millpond.api.grpc.server")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("millpond"):
                raise
            raise CannotStart(
                f"--{SETTING} needs {error.name}, which is not installed; say: pip install 'millpond[grpc]'"
            ) from error
        from millpond.api.grpc.limits import GrpcLimits  # noqa: PLC0415
        from millpond.api.grpc.server import GrpcServer  # noqa: PLC0415

        try:
            return cls(GrpcServer(Address(host, port), GrpcLimits()))
        except RuntimeError as error:  # somebody was faster
            raise CannotListen(SETTING, OSError(str(error))) from error

    async def open(self, node: Node, *, kafka: Address, on_error: Callable[[BaseException], None]) -> None:
        """`kafka` is this broker's other door."""
        await self._server.start(node, kafka=kafka, on_error=on_error)

    async def stop(self) -> None:
        """Answers what was asked, for a short while."""
        await self._server.stop()
