"""Three real brokers, killed under the client's hands: nothing lost, nothing twice, the group goes on."""

import asyncio
from pathlib import Path

import pytest

from millpond.client import Admin, Consumer, Delivery, Producer
from tests.interop.cluster_processes import ClusterBroker, running_cluster

TOPIC, PARTITIONS = "orders", 3
PER_STEP = 400
SECONDS_MAX = 150.0


class Traffic:
    """One producer that never stops, and what came of it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.deliveries: list[Delivery] = []
        self._enough = asyncio.Event()

    async def send(self) -> None:
        while not self._enough.is_set():
            number = len(self.deliveries)
            value = b"%d" % number
            self.deliveries.append(await self._producer.send_soon(TOPIC, value, partition=number % PARTITIONS))
            await asyncio.sleep(0.001)

    async def more(self, count: int = PER_STEP) -> None:
        """Waits until so many more are sent, and acknowledged."""
        wanted = len(self.deliveries) + count
        while len(self.deliveries) < wanted:  # noqa: ASYNC110 -- a plain value
            await asyncio.sleep(0.01)
        await self.deliveries[wanted - 1]

    def stop(self) -> None:
        self._enough.set()


async def kill_and_start_again(broker: ClusterBroker, traffic: Traffic) -> None:
    await asyncio.to_thread(broker.kill)
    await traffic.more()
    await asyncio.to_thread(broker.start)


@pytest.mark.slow
def test_a_killed_leader_and_a_killed_coordinator_cost_no_message(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        read: list[tuple[int, int, int]] = []

        async def consume(consumer: Consumer) -> None:
            while True:
                read.extend((each.partition, each.offset, int(each.value or b"")) for each in await consumer.poll(100))

        async def scenario() -> None:
            async with Admin(cluster.address) as admin:
                await admin.create_topic(
                    TOPIC, partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
                )
            await asyncio.to_thread(cluster.wait_healthy)
            async with (
                Producer(cluster.address, request_seconds_max=10) as producer,
                Consumer(cluster.address, topics=[TOPIC], group="kitchen", request_seconds_max=10) as consumer,
            ):
                traffic = Traffic(producer)
                sending, consuming = asyncio.create_task(traffic.send()), asyncio.create_task(consume(consumer))
                await traffic.more()
                leader = await asyncio.to_thread(cluster.leader_of, TOPIC)
                await kill_and_start_again(leader, traffic)
                await asyncio.to_thread(cluster.wait_healthy)
                coordinator = await asyncio.to_thread(cluster.leader_of, "__consumer_offsets")
                await kill_and_start_again(coordinator, traffic)
                traffic.stop()
                await sending
                places = [await each for each in traffic.deliveries]
                while len({number for _, _, number in read}) < len(places):
                    assert not consuming.done(), consuming.result()
                    await asyncio.sleep(0.05)
                consuming.cancel()
                await asyncio.gather(consuming, return_exceptions=True)
            found = {(partition, offset): number for partition, offset, number in read}
            assert len(found) == len(places), "something is there twice"
            assert all(found[each.partition, each.offset] == number for number, each in enumerate(places))
            for partition in range(PARTITIONS):
                numbers = [found[at] for at in sorted(found) if at[0] == partition]
                assert numbers == sorted(numbers)

        async def bounded() -> None:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario()

        asyncio.run(bounded())
