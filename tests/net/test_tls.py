"""The same frames through TLS, with a certificate made for the occasion."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from millpond.net.facts import CloseReason
from tests.net.peers import Client, Desk, echo, run, serving, until

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate with"),
    pytest.mark.parametrize("loop", ["asyncio", "uvloop"]),
]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, and for a client that trusts it."""
    folder: Path = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out certificate.pem "
        "-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    client = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    return server, client


def test_frames_of_all_sizes_pass_through_tls(loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    bodies = [bytes([n % 256]) * size for n, size in enumerate([1, 5, 16_380, 16_384, 65_536, 500_000, *[7] * 500])]

    async def scenario() -> None:
        async with serving(echo, tls=contexts[0]) as server, await Client.connect(server, tls=contexts[1]) as client:
            client.send(*bodies)
            assert [await client.receive() for _ in bodies] == bodies

    run(loop, scenario)


def test_handlers_are_cancelled_when_a_tls_peer_leaves(
    loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    desk = Desk()

    async def scenario() -> None:
        async with serving(desk.handle, tls=contexts[0]) as server:
            async with await Client.connect(server, tls=contexts[1]) as client:
                client.send(b"x")
                await until(lambda: bool(desk.open))
            await until(lambda: desk.cancelled == [b"x"] and server.facts.connections_open == 0)
            assert server.facts.closes[CloseReason.PEER_CLOSED] == 1

    run(loop, scenario)


def test_a_graceful_stop_answers_through_tls(loop: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    desk = Desk()

    async def scenario() -> None:
        async with (
            serving(desk.handle, tls=contexts[0]) as server,
            await Client.connect(server, tls=contexts[1]) as client,
        ):
            client.send(b"x")
            await until(lambda: bool(desk.open))
            (connection,) = server.connections
            connection.close()
            desk.answer(b"x")
            assert await client.receive() == b"x"
            assert await client.wait_end() == b""

    run(loop, scenario)
