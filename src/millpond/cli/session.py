"""A command's talk with a cluster, from the first connection to the last.

    topics = talk(bootstrap, timeout, lambda admin: admin.topics())

Invariant: all connections are closed when it returns, or raises; an interrupt ends the work in order.
Driven by every command that asks a broker through the client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from millpond.client import Admin

CLIENT_ID: Final = "millpond-cli"

Result = TypeVar("Result")


def client_options(timeout: float) -> dict[str, Any]:
    """For every client of a command; its patience is what --timeout says."""
    return {
        "client_id": CLIENT_ID,
        "connect_seconds_max": timeout,
        "request_seconds_max": timeout,
        "retry_seconds_max": timeout,
        "metadata_seconds_max": timeout,
    }


def talk(bootstrap: str, timeout: float, work: Callable[[Admin], Awaitable[Result]]) -> Result:
    async def talking() -> Result:
        async with Admin(bootstrap, **client_options(timeout)) as admin:
            return await work(admin)

    return asyncio.run(talking())
