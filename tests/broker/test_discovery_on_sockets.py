"""Three brokers that find each other by a name, in one process, on real sockets and real files.

They have an address each, 127.0.0.1 to 127.0.0.3, and the same port, as pods have; the loop answers as a name server.
"""

import asyncio
import errno
import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.core.cluster.discovery import DnsName
from millpond.storage.filesystem import OsFilesystem
from tests.broker.test_cluster_on_sockets import CONFIGS, FACT_SECONDS_MAX

NAME = "millpond.example"
HOSTS = {1: "127.0.0.1", 2: "127.0.0.2", 3: "127.0.0.3"}


class NamedLoop(asyncio.SelectorEventLoop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        return await super().getaddrinfo(host, port, **options) if host != NAME else listed(port)


class NamedUvloop(uvloop.Loop):
    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        return await super().getaddrinfo(host, port, **options) if host != NAME else listed(port)


def listed(port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)) for host in HOSTS.values()]


def free_port() -> int:
    """On all three addresses. Skips where loopback has but one."""
    while True:
        with ExitStack() as held:
            port = 0
            try:
                for host in HOSTS.values():
                    port = held.enter_context(socket.create_server((host, port))).getsockname()[1]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    pytest.skip(f"this machine has no addresses on loopback but 127.0.0.1: {error}")
            else:
                return port


@pytest.mark.slow
@pytest.mark.parametrize("loop", [NamedLoop, NamedUvloop])
def test_three_behind_a_name_found_a_cluster_and_start_again(
    loop: type[asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    port = free_port()
    errors: list[BaseException] = []

    async def start(node_id: int) -> Broker:
        settings = BrokerSettings(
            data_directory=str(tmp_path / str(node_id)),
            node_id=node_id,
            host=HOSTS[node_id],
            port=port,
            configs=CONFIGS,
            peers=dict.fromkeys(HOSTS),
            discovery=DnsName(NAME, port),
            cluster_secret=b"the secret of these three",
        )
        return await Broker.start(
            settings, filesystem=OsFilesystem(), clock=SystemClock(), rng=random.Random(), on_error=errors.append
        )

    async def scenario() -> None:
        for _ in range(2):
            async with asyncio.timeout(FACT_SECONDS_MAX):
                brokers = await asyncio.gather(*map(start, HOSTS))
            quorum = brokers[0].node.metadata.quorum
            assert quorum.raft.membership.voters == (1, 2, 3)
            for broker in brokers:
                await broker.stop(grace_seconds=1)
        assert errors == []

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
