"""How a listener is closed without losing a connection that it has just accepted.

On asyncio's own loop an accepted connection is made in the turn after, and only while its listener is open: closed in
between, the connection is never made, and its socket left to the garbage collector. A timer rings when the turn's
accepting is over, and whoever it wakes comes after the connections that were accepted.
"""

import asyncio

_RING_SECONDS = 0.0001


async def close_listeners(*listeners: asyncio.AbstractServer) -> None:
    if isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        await asyncio.sleep(_RING_SECONDS)
    for listener in listeners:
        listener.close()
