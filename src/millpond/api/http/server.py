"""The ASGI server of the HTTP door: uvicorn, inside the broker's own loop, on sockets that were taken before.

Of uvicorn only what serves is used: it handles no signals, sets up no logging and knows no workers. h11 parses,
whatever else is installed, because it bounds what it keeps of a request's head; httptools does not.
Loading this module loads uvicorn and prometheus-client, which takes longer than the rest of a start: do it last.
Driven by app.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn import Config, Server

CONNECTIONS_MAX = 64
"""Beyond that, requests are answered with 503."""
HEAD_BYTES_MAX = 16 * 1024
GRACE_SECONDS = 2


class HttpServer:
    def __init__(self, server: Server, listeners: list[socket.socket]) -> None:
        """Use `HttpServer.start`."""
        self._server = server
        self._listeners = listeners
        self._ticking = asyncio.get_running_loop().create_task(server.main_loop())

    @classmethod
    async def start(cls, application: Callable[..., Any], listeners: list[socket.socket]) -> "HttpServer":
        """Takes over the sockets."""
        config = Config(
            application,
            loop="none",
            http="h11",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        config.load()
        server = Server(config)
        # What `serve` does, without taking over the process's signals.
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=listeners)
        return cls(server, listeners)

    async def stop(self) -> None:
        """Answers what was asked, for a short while, and closes the sockets."""
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        await self._server.shutdown(sockets=self._listeners)
