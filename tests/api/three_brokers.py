"""Three brokers of one cluster, each with all its doors open."""

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.storage.filesystem import OsFilesystem
from tests.api.http.asking import Door

CONFIGS = {"offsets.topic.num.partitions": "3", "broker.heartbeat.interval.ms": "100"}
NODES = (1, 2, 3)


class Three:
    """On a thread of their own, as real as three processes but for the interpreter they share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.brokers: dict[int, Broker] = {}
        self.errors: list[BaseException] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(60)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop)
        self.run(_end_the_rest)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self.errors == []

    async def _start(self) -> None:
        peers: dict[int, tuple[str, int] | None] = {node: ("127.0.0.1", port) for node, port in free_ports().items()}
        started = await asyncio.gather(*(self._start_one(node, peers) for node in NODES))
        self.brokers = dict(zip(NODES, started, strict=True))

    async def _start_one(self, node: int, peers: dict[int, tuple[str, int] | None]) -> Broker:
        address = peers[node]
        assert address is not None
        settings = BrokerSettings(
            data_directory=str(self._directory / str(node)),
            node_id=node,
            port=address[1],
            http=("127.0.0.1", 0),
            grpc=("127.0.0.1", 0),
            configs=CONFIGS,
            peers=peers,
            cluster_secret=b"the secret of these three",
        )
        return await Broker.start(
            settings, filesystem=OsFilesystem(), clock=SystemClock(), rng=random.Random(), on_error=self.errors.append
        )

    async def _stop(self) -> None:
        for broker in self.brokers.values():  # all at once, each would wait for the others to take over
            await broker.stop(grace_seconds=1)

    def stop_one(self, node: int) -> None:
        broker = self.brokers.pop(node)
        self.run(lambda: broker.stop(grace_seconds=1))

    def door(self, node: int) -> Door:
        return Door(self.brokers[node].http_port)


async def _end_the_rest() -> None:
    """Of the loop's tasks, as asyncio.run would."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def free_ports() -> dict[int, int]:
    sockets = {node: socket.create_server(("127.0.0.1", 0)) for node in NODES}
    ports = {node: each.getsockname()[1] for node, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports
