"""The client, unmodified, in a simulated cluster on bad days: nothing lost, nothing twice, nothing out of order.

Brokers are killed, lose power and come back; the network parts clients from brokers, delays and loses. Meanwhile one
producer sends numbered messages, and two consumers of a group read them. Then everything heals.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from millpond.client import Consumer, Producer
from millpond.model.errors import MillpondError
from millpond.testing import Conditions, Simulation, simulate
from millpond.testing.hosts import HostDown
from tests.broker.clusters import Machine, SimCluster

TOPIC, PARTITIONS = "orders", 2
MESSAGES = 250
BAD_SECONDS = 25.0
CALM_SECONDS_MAX = 200.0
CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=40.0, tail_chance=0.05, tail_ms_max=2000.0, loss_chance=0.03, fragment_chance=0.5)
READERS = ("reader-1", "reader-2")


@dataclass
class World:
    sim: Simulation
    cluster: SimCluster
    rng: random.Random
    sent: dict[int, list[int]] = field(default_factory=dict)
    """Acknowledged, by partition, in the order they were sent."""
    read: list[tuple[int, int, int]] = field(default_factory=list)
    """Partition, offset and number."""
    is_calm: bool = False

    @property
    def options(self) -> dict[str, Any]:
        return {
            "rng": self.sim.loop.chance("client"),
            "wall_ms": self.sim.clock.wall_ms,
            "connect_seconds_max": 3.0,
            "request_seconds_max": 4.0,
        }

    @property
    def bootstrap(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.cluster.peers.values()]

    # Clients

    async def produce(self) -> None:
        async with Producer(self.bootstrap, delivery_seconds_max=600.0, batch_bytes=250, **self.options) as producer:
            deliveries = []
            for number in range(MESSAGES):
                partition = number % PARTITIONS
                deliveries.append(await producer.send_soon(TOPIC, b"%d" % number, partition=partition))
                await asyncio.sleep(self.rng.uniform(0, 2 * BAD_SECONDS / MESSAGES))
            for number, delivery in enumerate(deliveries):
                where = await delivery
                self.sent.setdefault(where.partition, []).append(number)

    async def consume(self) -> None:
        consumer = Consumer(
            self.bootstrap,
            topics=[TOPIC],
            group="kitchen",
            auto_commit_seconds=0.5,
            rebalance_seconds_max=5.0,
            **self.options,
        )
        async with consumer:
            while True:
                try:
                    for message in await consumer.poll(20):
                        self.read.append((message.partition, message.offset, int(message.value or b"")))
                except MillpondError:
                    await asyncio.sleep(0.1)  # a commit that came too late, or nobody there for long

    # What happens around them

    async def weather(self) -> None:
        until = self.sim.loop.time() + BAD_SECONDS
        while self.sim.loop.time() < until:
            await asyncio.sleep(self.rng.uniform(0.1, 2))
            machine = self.cluster[self.rng.randrange(1, 4)]
            match self.rng.choice(("kill", "power", "part", "one way", "storm", "pause")):
                case "kill" | "power" as how:
                    if len(self.cluster.up) == 3:
                        await self.restart(machine, how)
                case "part":
                    self.sim.network.partition(self.rng.choice((*READERS, "writer")), machine.name)
                case "one way":
                    self.sim.network.cut_one_way(source=machine.name, target=self.rng.choice((*READERS, "writer")))
                case "storm":
                    self.sim.network.set_conditions(STORMY)
                case "pause":
                    machine.host.pause()
            await asyncio.sleep(self.rng.uniform(0.1, 4))
            machine.host.resume()
            self.sim.network.heal()
            self.sim.network.set_conditions(CLEAR)

    async def restart(self, machine: Machine, how: str) -> None:
        machine.kill() if how == "kill" else machine.cut_power()
        await asyncio.sleep(self.rng.uniform(0, 6))
        while machine.broker is None:
            try:
                await machine.start()
            except HostDown:
                machine.kill()

    async def run(self) -> None:
        await self.cluster.start_all()
        assert await self.cluster[1].create_topic(TOPIC, partitions=PARTITIONS, replication=3)
        readers = [self.sim.host(name).spawn(self.consume()) for name in READERS]
        writer = self.sim.host("writer").spawn(self.produce())
        await self.weather()
        async with asyncio.timeout(CALM_SECONDS_MAX):
            await writer
            while len({number for _, _, number in self.read}) < MESSAGES:  # noqa: ASYNC110 -- a plain value
                await asyncio.sleep(0.1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await self.cluster.stop_all()


@pytest.mark.parametrize(
    "seed", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_nothing_is_lost_or_there_twice_or_out_of_order(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        world = World(sim, SimCluster(sim, 3), sim.loop.chance("weather"))
        await world.run()
        placed: dict[tuple[int, int], int] = {}
        for partition, offset, number in world.read:
            assert placed.setdefault((partition, offset), number) == number, "an offset changed its message"
        assert len(placed) == len(set(placed.values())) == MESSAGES, "a message is there twice"
        for partition in range(PARTITIONS):
            numbers = [placed[at] for at in sorted(placed) if at[0] == partition]
            assert numbers == world.sent[partition] == sorted(numbers)

    simulate(seed, scenario, virtual_seconds_max=1200)
