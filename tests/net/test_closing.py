"""A listener that is closed while connections come leaves none of them to the garbage collector."""

import asyncio
import gc
import socket
import warnings

from millpond.net.closing import close_listeners

TRIES = 100


def test_what_was_accepted_is_made_before_the_listener_closes() -> None:
    async def scenario() -> None:
        made: list[asyncio.BaseTransport] = []

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(transport)

        loop = asyncio.get_running_loop()
        for _ in range(TRIES):
            server = await loop.create_server(Connection, "127.0.0.1", 0)
            peer = socket.create_connection(server.sockets[0].getsockname())
            for _ in range(2):  # then it is accepted, and not made yet
                await asyncio.sleep(0)
            await close_listeners(server)
            await asyncio.sleep(0)
            peer.close()
        for transport in made:
            transport.close()
        await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(scenario())
        gc.collect()
    assert [str(each.message) for each in told] == []
