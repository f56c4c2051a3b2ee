"""Peers for the tests of the network: an echo server, and a protocol that writes down what happens to it."""

import asyncio
from collections.abc import Awaitable, Callable

from millpond.testing.hosts import current_host
from millpond.testing.simulation import Simulation

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(sim: Simulation, talk: Talk = echo) -> None:
    """Has host "server" listen at port 9092."""
    started: asyncio.Future[None] = sim.loop.create_future()

    async def program() -> None:
        server = await asyncio.start_server(talk, "0.0.0.0", 9092)
        if not started.done():
            started.set_result(None)
        await server.serve_forever()

    sim.host("server").spawn(program())
    await started


class Recorder(asyncio.Protocol):
    """A protocol that writes down what happens to it."""

    def __init__(self) -> None:
        self.host = current_host()
        self.events: list[str] = []
        self.pieces: list[bytes] = []
        self.failure: Exception | None = None
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._happens("made")

    def _happens(self, event: str) -> None:
        assert current_host() == self.host
        self.events.append(event)

    def data_received(self, data: bytes) -> None:
        assert current_host() == self.host
        self.pieces.append(data)

    def eof_received(self) -> bool:
        self._happens("eof")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.failure = exc
        self.lost.set()
        self._happens("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")  # from within write(), so on the host of whoever wrote

    def resume_writing(self) -> None:
        self._happens("resume")


async def pair(sim: Simulation) -> tuple[Recorder, Recorder]:
    """Recorders at both ends of a new connection, from host "client" to host "server"."""
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    async def listen() -> None:
        server = await sim.loop.create_server(accept, port=9092)
        await server.serve_forever()

    async def connect() -> Recorder:
        return (await sim.loop.create_connection(Recorder, "server", 9092))[1]

    sim.host("server").spawn(listen())
    await asyncio.sleep(0.1)
    client = await sim.host("client").run(connect())
    await asyncio.sleep(0.1)
    assert (client.host, accepted[0].host) == ("client", "server")
    return client, accepted[0]
