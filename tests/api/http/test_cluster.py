"""Three brokers, each with an HTTP door: any of them answers for what any of them leads."""

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.storage.filesystem import OsFilesystem
from tests.api.http.asking import Door

CONFIGS = {"offsets.topic.num.partitions": "3", "broker.heartbeat.interval.ms": "100"}
NODES = (1, 2, 3)

pytestmark = pytest.mark.slow


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
            configs=CONFIGS,
            peers=peers,
            cluster_secret=b"the secret of these three",
        )
        return await Broker.start(
            settings, filesystem=OsFilesystem(), clock=SystemClock(), rng=random.Random(), on_error=self.errors.append
        )

    async def _stop(self) -> None:
        await asyncio.gather(*(broker.stop(grace_seconds=1) for broker in self.brokers.values()))

    def door(self, node: int) -> Door:
        return Door(self.brokers[node].http_port)


def free_ports() -> dict[int, int]:
    sockets = {node: socket.create_server(("127.0.0.1", 0)) for node in NODES}
    ports = {node: each.getsockname()[1] for node, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with Three(tmp_path_factory.mktemp("three")) as started:
        while any(len(started.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        yield started


def make(three: Three, topic: str) -> dict[int, int]:
    """Known to all, and led by all; the leaders by partition."""
    three.door(1).done("POST", "/api/v1/topics", {"name": topic, "partitions": 3, "replication_factor": 3})
    for node in NODES:
        while three.door(node).get(f"/api/v1/topics/{topic}").status != 200:
            pass
    found = three.door(1).done("GET", f"/api/v1/topics/{topic}")
    leaders = {each["partition"]: each["leader"] for each in found["partitions"]}
    assert set(leaders.values()) == set(NODES)
    return leaders


def test_every_broker_takes_and_gives_what_any_of_them_leads(three: Three) -> None:
    leaders = make(three, "everywhere")
    for partition in leaders:
        for offset, node in enumerate(NODES):
            message = {"topic": "everywhere", "value": f"by {node}", "partition": partition}
            assert three.door(node).done("POST", "/produce", message) == {"partition": partition, "offset": offset}
    for partition in leaders:
        for node in NODES:
            found = three.door(node).done("GET", f"/consume?topic=everywhere&partition={partition}&offset=0")
            assert [each["value"] for each in found["messages"]] == ["by 1", "by 2", "by 3"]
            assert found["next_offset"] == 3
            ends = three.door(node).done("GET", f"/consume?topic=everywhere&partition={partition}&offset=latest")
            assert ends == {"messages": [], "next_offset": 3}
            refused = three.door(node).get(f"/consume?topic=everywhere&partition={partition}&offset=4")
            assert (refused.status, refused.code) == (416, "offset_out_of_range")


def test_an_array_goes_to_all_leaders_at_once(three: Three) -> None:
    make(three, "array")
    wanted = [{"topic": "array", "value": str(number), "partition": number % 3} for number in range(30)]
    answered = three.door(2).done("POST", "/produce", wanted)
    assert answered == [{"partition": number % 3, "offset": number // 3} for number in range(30)]


def test_whoever_waits_at_another_broker_is_answered_when_something_comes(three: Three) -> None:
    leaders = make(three, "awaited")
    elsewhere = next(node for node in NODES if node != leaders[0])
    found: list[int] = []
    path = "/consume?topic=awaited&partition=0&offset=0&wait_ms=30000"
    waiting = threading.Thread(target=lambda: found.append(three.door(elsewhere).done("GET", path)["next_offset"]))
    waiting.start()
    three.door(leaders[0]).done("POST", "/produce", {"topic": "awaited", "partition": 0, "value": "x"})
    waiting.join()
    assert found == [1]


def test_a_member_may_ask_any_broker(three: Three) -> None:
    make(three, "roaming")
    wanted = [{"topic": "roaming", "value": str(number), "partition": number % 3} for number in range(9)]
    three.door(1).done("POST", "/produce", wanted)
    joined = three.door(1).done("POST", "/subscribe", {"group": "roamers", "topics": ["roaming"]})
    me = {"group": "roamers", "member_id": joined["member_id"], "member_epoch": joined["member_epoch"]}
    values: set[str] = set()
    positions: list[dict[str, Any]] = []
    for turn in range(60):
        node = NODES[turn % 3]
        found = three.door(node).done("POST", "/fetch", {**me, "positions": positions, "wait_ms": 1_000})
        values |= {each["value"] for each in found["messages"]}
        positions, me["member_epoch"] = found["positions"], found["member_epoch"]
        if len(values) == 9:
            break
    assert values == {str(number) for number in range(9)}
    assert three.door(2).done("POST", "/commit", {**me, "offsets": positions}) == {"committed": 3}
    for node in NODES:
        door = three.door(node)
        assert {"group": "roamers", "state": "Stable"} in door.done("GET", "/api/v1/groups")["groups"]
        assert door.done("GET", "/api/v1/groups/roamers/lag")["messages"] == 0
