"""Three brokers in one process, on real sockets and real files."""

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.storage.filesystem import OsFilesystem

CONFIGS = {"offsets.topic.num.partitions": "1", "broker.heartbeat.interval.ms": "100"}
FACT_SECONDS_MAX = 60

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Three:
    def __init__(self, directory: Path) -> None:
        self.peers = {number: ("127.0.0.1", port) for number, port in enumerate(free_ports(3), start=1)}
        self.directory = directory
        self.errors: list[BaseException] = []
        self.brokers: dict[int, Broker] = {}
        self.made: list[str] = []

    async def start(self, node_id: int) -> None:
        settings = BrokerSettings(
            data_directory=str(self.directory / str(node_id)),
            node_id=node_id,
            port=self.peers[node_id][1],
            configs=CONFIGS,
            peers=self.peers,
            cluster_secret=b"the secret of these three",
        )
        self.brokers[node_id] = await Broker.start(
            settings, filesystem=OsFilesystem(), clock=SystemClock(), rng=random.Random(), on_error=self.errors.append
        )

    async def start_all(self) -> None:
        await asyncio.gather(*(self.start(node_id) for node_id in self.peers))

    async def stop_all(self) -> None:
        for broker in self.brokers.values():
            await broker.stop(grace_seconds=1)
        self.brokers.clear()
        assert self.errors == []

    async def create(self, node_id: int, name: str) -> None:
        node, wanted = self.brokers[node_id].node, [NewTopic(name=name, partitions=1)]
        decision = await node.metadata.decide(
            lambda image: create_topics(image, wanted, static=node.static, rng=node.rng)
        )
        assert not any(isinstance(answer, Refused) for answer in decision.answers)
        self.made.append(name)

    async def agree(self, *topics: str) -> None:
        """Returns when every broker's image has them, and every broker in it is live."""
        async with asyncio.timeout(FACT_SECONDS_MAX):
            for broker in self.brokers.values():
                quorum = broker.node.metadata.quorum
                while not (set(topics) <= quorum.image.topics.keys() and len(quorum.image.live_brokers()) == 3):
                    await quorum.wait_change(asyncio.get_running_loop().time() + 1)


@pytest.mark.parametrize("loop", LOOPS)
def test_three_brokers_start_create_topics_and_start_again(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        three = Three(tmp_path)
        await three.start_all()
        for node_id in three.peers:
            await three.create(node_id, f"by-{node_id}")
        await three.agree(*three.made)
        controllers = [node_id for node_id, each in three.brokers.items() if each.node.metadata.quorum.is_controller]
        for node_id in [*controllers, *three.peers]:
            await three.brokers.pop(node_id).stop(grace_seconds=1)
            await three.create(min(three.brokers), f"without-{node_id}-{len(three.made)}")
            await three.start(node_id)
            await three.agree(*three.made)
        await three.stop_all()
        await three.start_all()
        await three.agree(*three.made)
        await three.stop_all()

    run(LOOPS[loop], scenario)


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())  # type: ignore[arg-type]
