"""Queue in a cluster of three: nothing that was acknowledged comes again, and nothing is lost, when a broker goes."""

import asyncio
from pathlib import Path

import pytest

from millpond.client import Admin, Queue
from millpond.model.errors import LeaseLost
from tests.api.three_brokers import NODES, Three

pytestmark = pytest.mark.slow

MESSAGES = 90


def test_a_queue_goes_on_when_a_leader_goes(tmp_path: Path) -> None:
    with Three(tmp_path) as three:
        while any(len(three.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        bootstrap = [f"127.0.0.1:{each.port}" for each in three.brokers.values()]
        asyncio.run(_work(three, bootstrap))


async def _work(three: Three, bootstrap: list[str]) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("jobs", partitions=3, replication_factor=3)
    async with Queue(bootstrap, "jobs", group="workers") as queue:
        for number in range(MESSAGES):
            await queue.send(b"%d" % number, key=b"%d" % number)
        done: list[bytes | None] = []
        is_stopped = False
        while len(set(done)) < MESSAGES:
            for message in await queue.receive(max=5, wait=10):
                if len(done) > MESSAGES // 3 and not is_stopped:
                    is_stopped = True
                    await asyncio.to_thread(three.stop_one, 3)
                try:
                    await message.ack()
                except LeaseLost:
                    continue
                done.append(message.value)
        assert is_stopped
        assert sorted(done, key=lambda each: int(each or b"-1")) == [b"%d" % number for number in range(MESSAGES)]
        assert await queue.receive() == []
        await queue.send(b"after")
        assert [each.value for each in await queue.receive(wait=20)] == [b"after"]
