"""The HTTP door, from its address being taken to its end.

The address is taken first, so that a start that cannot have it fails before anything else is done. The door is opened
last, and what serves it is loaded in a thread after that: it takes as long as the rest of a start, and would take that
time from the first clients of Kafka's door. So it is loaded when somebody connects, who waits that long, or else soon.
Driven by broker.py.
"""

import asyncio
import socket
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from millpond.app.refusals import CannotListen
from millpond.broker.node import Node
from millpond.model.addresses import Address
from millpond.net.facts import NetworkFacts
from millpond.net.listening import let_go, open_door, reserve, wait_caller
from millpond.telemetry.http import HttpFacts
from millpond.telemetry.loop_delay import LoopDelay
from millpond.telemetry.requests import RequestFacts

if TYPE_CHECKING:  # see above
    from millpond.api.http.application import Application
    from millpond.api.http.server import HttpServer

SETTING = "http"
LOADED_AFTER_SECONDS = 0.5


class HttpDoor:
    def __init__(self, listeners: list[socket.socket]) -> None:
        """Use `HttpDoor.reserve`."""
        self.port: int = listeners[0].getsockname()[1]
        self._is_local = all(Address(each.getsockname()[0], 0).is_loopback for each in listeners)
        self._listeners = listeners
        self._opening: asyncio.Task[tuple[HttpServer, Application]] | None = None
        self._is_loading = False
        """Somebody may have connected, and waits to be answered."""
        self._loop_delay: LoopDelay | None = None

    @classmethod
    async def reserve(cls, host: str, port: int) -> "HttpDoor":
        try:
            return cls(await reserve(host, port))
        except OSError as error:
            raise CannotListen(SETTING, error) from error

    def open(
        self,
        node: Node,
        *,
        kafka: Address,
        network: NetworkFacts,
        requests: RequestFacts,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Returns at once; what goes wrong later is told to `on_error`. `kafka` is this broker's other door."""
        open_door(self._listeners)
        self._loop_delay = LoopDelay()
        self._opening = asyncio.get_running_loop().create_task(
            self._serve(node, kafka, network, requests, self._loop_delay, on_error)
        )

    async def _serve(
        self,
        node: Node,
        kafka: Address,
        network: NetworkFacts,
        requests: RequestFacts,
        loop_delay: LoopDelay,
        on_error: Callable[[BaseException], None],
    ) -> "tuple[HttpServer, Application]":
        started_ms = node.clock.monotonic_ms()
        try:
            loop = asyncio.get_running_loop()
            await wait_caller(self._listeners, seconds_max=LOADED_AFTER_SECONDS)
            self._is_loading = True
            for name in ("application", "server"):
                await loop.run_in_executor(None, import_module, f"millpond.api.http.{name}")
            from millpond.api.http.application import Application  # noqa: PLC0415
            from millpond.api.http.limits import HttpLimits  # noqa: PLC0415
            from millpond.api.http.server import HttpServer  # noqa: PLC0415
            from millpond.broker.operations.measure import Meter  # noqa: PLC0415

            facts = HttpFacts()
            meter = Meter(
                node, network=network, requests=requests, http=facts, loop_delay=loop_delay, started_ms=started_ms
            )
            application = Application(node, meter, kafka=kafka, is_local=self._is_local, on_error=on_error)
            server = HttpServer(application.handle, HttpLimits(), node.clock, facts, on_error=on_error)
            await server.start(self._listeners)
            return server, application
        except Exception as error:
            self.let_go()
            on_error(error)
            raise

    async def stop(self) -> None:
        """Answers what was asked, for a short while."""
        if self._loop_delay is not None:
            self._loop_delay.stop()
        if self._opening is not None and not self._is_loading:
            self._opening.cancel()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._opening is None or self._opening.cancelled():
            self.let_go()
        elif self._opening.exception() is None:
            server, application = self._opening.result()
            await server.stop()
            await application.close()

    def let_go(self) -> None:
        """Of an address that was never used."""
        let_go(self._listeners)
