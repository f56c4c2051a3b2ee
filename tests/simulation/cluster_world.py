"""Several brokers and their metadata on bad days: killed, cut off, paused, without power, again and again.

Every broker is `Broker.start`, unmodified, on a machine with a disk of its own. Topics are created and producer ids
taken through whichever brokers are up. Meanwhile the invariants below are held against every image of every broker; at
the end everything heals, and everything that was ever promised must be there.

    OneHistory            images of the same version are the same on every broker
    NothingDecidedIsLost  a topic whose creation was confirmed is in every later image
    NoProducerIdTwice     no two brokers are given the same block
    OneLease              no two brokers hold the controller's lease at the same time
    FencedWithoutLease    no broker is fenced while it may believe that it is not
    HealedIsAlive         once everything heals, every broker is live, and changes can be made through each

Driven by test_cluster.py.
"""

import asyncio
import itertools
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from millpond.app import parts as app_parts
from millpond.broker.drivers.quorum import QuorumSettings
from millpond.core.metadata.image import Image
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import MillpondError
from millpond.testing.disk import PowerCut
from millpond.testing.hosts import HostDown
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation
from tests.broker.clusters import Machine, SimCluster
from tests.simulation.history import Violation

CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=60.0, tail_chance=0.05, tail_ms_max=1500.0, loss_chance=0.05, fragment_chance=0.5)
ENDS = ("operation", "moment", "moment", "kill", "kill", "orderly")
CALM_SECONDS_MAX = 120.0
SETTINGS = QuorumSettings(
    raft=RaftSettings(
        heartbeat_s=0.1,
        election_timeout_s_min=0.5,
        election_timeout_s_max=1.0,
        appends_in_flight_max=4,
        snapshot_chunk_bytes=512,
    ),
    snapshot_entries=12,
    entries_kept=3,
)
"""Snapshots so often, and so little kept behind them, that brokers that were away are sent them."""


@dataclass
class Outcome:
    lives: int = 0
    power_cuts: int = 0
    kills: int = 0
    topics: int = 0
    fenced: int = 0
    snapshots_installed: int = 0
    controllers: set[tuple[int, int]] = field(default_factory=set)
    steps: int = 0
    trace_hash: str = ""


@dataclass
class World:
    sim: Simulation
    cluster: SimCluster
    rng: random.Random
    images: dict[int, Image] = field(default_factory=dict)
    """By version, from whichever broker showed it first."""
    promised: dict[str, int] = field(default_factory=dict)
    """Topics whose creation was confirmed, and the version of the image that showed them."""
    producer_ids: set[int] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)
    names: int = 0
    is_calm: bool = False

    def check(self) -> None:
        self.cluster.check()
        if self.failures:
            raise self.failures[0]

    async def guard(self, program: Coroutine[Any, Any, None]) -> None:
        try:
            await program
        except Exception as error:
            self.failures.append(error)

    # Invariants

    def watch(self, machine: Machine) -> None:
        broker = machine.broker
        assert broker is not None
        quorum = broker.node.metadata.quorum
        restores = quorum.restores
        self.outcome.snapshots_installed += restores

        def look(before: Image, after: Image) -> None:
            nonlocal restores
            self.outcome.snapshots_installed += quorum.restores - restores
            restores = quorum.restores
            self.look(before, after)

        quorum.listen(look)
        self.look(Image(), quorum.image)

    def look(self, before: Image, after: Image) -> None:
        """Called on a broker's own step, so it must not raise there."""
        first = self.images.setdefault(after.version, after)
        if first != after:
            self.failures.append(Violation(f"OneHistory: version {after.version} is {after}, and elsewhere {first}"))
        lost = [
            name for name, version in self.promised.items() if version <= after.version and name not in after.topics
        ]
        if lost:
            self.failures.append(Violation(f"NothingDecidedIsLost: {lost} are not in version {after.version}"))
        for node_id, known in after.brokers.items():
            was = before.brokers.get(node_id)
            if known.fenced and was is not None and not was.fenced:
                self.outcome.fenced += 1
                fenced = self.cluster[node_id].broker
                if fenced is not None and fenced.life.epoch == known.epoch and fenced.life.holds_lease():
                    self.failures.append(Violation(f"FencedWithoutLease: {node_id} in epoch {known.epoch}"))

    async def watch_leases(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            holders = [
                machine
                for machine in self.cluster.up
                if machine.broker is not None and machine.broker.node.metadata.quorum.holds_lease()
            ]
            if len(holders) > 1:
                raise Violation(f"OneLease: {[machine.name for machine in holders]} all hold it")
            for machine in holders:
                assert machine.broker is not None
                self.outcome.controllers.add((machine.node_id, machine.broker.node.metadata.quorum.raft.term))

    # Lives

    async def live(self, machine: Machine) -> None:
        while not self.is_calm:
            await self.one_life(machine)
            if not self.is_calm:
                await asyncio.sleep(self.rng.choice((0.0, 0.3, 2.0, 6.0)))
        if machine.broker is None:
            await machine.start()
            self.watch(machine)

    async def one_life(self, machine: Machine) -> None:
        rng, host = self.rng, machine.host
        machine.disk.slow_sync(0.0, rng.choice((0.001, 0.02, 0.1)))
        end, seconds = rng.choice(ENDS), rng.uniform(0.5, 25.0)
        timer: asyncio.TimerHandle | None = None
        match end:
            case "operation":
                machine.disk.cut_power_at(rng.choice((rng.randrange(1, 60), rng.randrange(1, 500))))
            case "moment":
                timer = self.sim.loop.call_later(seconds, host.cut_power)
            case "kill":
                timer = self.sim.loop.call_later(seconds, host.kill)
        is_orderly = False
        try:
            await machine.start()
            self.watch(machine)
            await host.run(asyncio.sleep(seconds))
            while machine.broker is not None and not self.is_calm and end != "orderly":
                await host.run(asyncio.sleep(1.0))
            if end == "orderly" and not self.is_calm:
                await machine.stop()
                is_orderly = True
        except (HostDown, PowerCut):
            pass
        if self.is_calm and machine.broker is not None and host.alive:
            if timer is not None:
                timer.cancel()
            return  # it lives on
        if timer is not None:
            timer.cancel()
        self.outcome.lives += 1
        if is_orderly:
            return
        if end == "kill":
            machine.kill()
            self.outcome.kills += 1
        else:
            machine.cut_power()
            self.outcome.power_cuts += 1

    # Changes

    async def change(self, number: int) -> None:
        """One after another, through any broker that is up."""
        while not self.is_calm:
            await asyncio.sleep(self.rng.uniform(0.05, 1.5))
            up = self.cluster.up
            if not up:
                continue
            machine = self.rng.choice(up)
            if self.rng.random() < 0.3:
                await self.take_producer_ids(machine)
            else:
                self.names += 1
                await self.create(machine, f"t{number}-{self.names}")

    async def create(self, machine: Machine, name: str) -> bool:
        broker = machine.broker
        if broker is None or not await machine.create_topic(name):
            return False
        image = broker.node.image
        if name not in image.topics:
            raise Violation(f"NothingDecidedIsLost: {name} was confirmed, and its own broker does not show it")
        self.promised[name] = image.version
        self.outcome.topics += 1
        return True

    async def take_producer_ids(self, machine: Machine) -> None:
        broker = machine.broker
        assert broker is not None
        try:
            taken = await machine.host.run(broker.node.producer_ids.take())
        except (MillpondError, HostDown):
            return
        if taken in self.producer_ids:
            raise Violation(f"NoProducerIdTwice: {taken} was given out before")
        self.producer_ids.add(taken)

    # Weather

    async def weather(self) -> None:
        rng, network, machines = self.rng, self.sim.network, list(self.cluster.machines.values())
        names = [machine.name for machine in machines]
        while True:
            await asyncio.sleep(rng.uniform(0.5, 8.0))
            one = rng.choice(machines)
            match rng.choice(("storm", "isolate", "halves", "one way", "pause", "calm")):
                case "storm":
                    network.set_conditions(STORMY)
                case "isolate":
                    network.isolate(one.name)
                case "halves":
                    left = rng.sample(names, len(names) // 2)
                    network.partition(left, [name for name in names if name not in left])
                case "one way":
                    network.cut_one_way(
                        source=one.name, target=rng.choice([name for name in names if name != one.name])
                    )
                case "pause":
                    one.host.pause()
            await asyncio.sleep(rng.choice((0.3, 1.0, 4.0, 10.0)))
            self.clear_up()

    def clear_up(self) -> None:
        self.sim.network.heal()
        self.sim.network.set_conditions(CLEAR)
        for machine in self.cluster.machines.values():
            machine.host.resume()

    async def heal(self) -> None:
        """Nothing befalls anybody any more; those who are down come up."""
        self.is_calm = True
        self.clear_up()
        for machine in self.cluster.machines.values():
            machine.disk.heal()
            machine.disk.cut_power_at(1 << 62)

    async def demand_life(self, lives: list[asyncio.Task[None]]) -> None:
        try:
            await self.come_alive(lives)
        except TimeoutError:
            self.check()
            raise Violation(f"HealedIsAlive: not within {CALM_SECONDS_MAX} s") from None

    async def come_alive(self, lives: list[asyncio.Task[None]]) -> None:
        async with asyncio.timeout(CALM_SECONDS_MAX):
            for life in lives:
                await life
            tries = itertools.count()  # a try whose end is not known may have made its topic
            while not await self.create_through_all(next(tries)):  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(1)
            while not self.all_agree():  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def create_through_all(self, number: int) -> bool:
        return all(await asyncio.gather(*(self.create(m, f"calm-{m.node_id}-{number}") for m in self.cluster.up)))

    def all_agree(self) -> bool:
        brokers = [machine.broker for machine in self.cluster.up if machine.broker is not None]
        images = [broker.node.image for broker in brokers]
        return (
            len(brokers) == len(self.cluster.machines)
            and all(image == images[0] for image in images)
            and self.promised.keys() <= images[0].topics.keys()
            and len(images[0].live_brokers()) == len(brokers)
            and all(broker.life.holds_lease() for broker in brokers)
        )


def run_seed(seed: int, *, size: int = 3, seconds: float = 90.0) -> Outcome:
    """Raises what went wrong, with the seed in its notes."""

    async def scenario(sim: Simulation) -> Outcome:
        cluster = SimCluster(sim, size)
        world = World(sim, cluster, sim.rng)
        loop = sim.loop
        lives = [loop.create_task(world.guard(world.live(machine))) for machine in cluster.machines.values()]
        others = [world.change(number) for number in range(3)]
        programs = [loop.create_task(world.guard(each)) for each in (*others, world.watch_leases(), world.weather())]
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            world.check()
        programs[-1].cancel()
        await world.heal()
        await world.demand_life(lives)
        for program in programs:
            program.cancel()
        world.check()
        world.outcome.steps = sim.loop.steps
        world.outcome.trace_hash = sim.trace_hash()
        return world.outcome

    # The brokers' own code, with a quorum that makes snapshots often.
    with patch.object(app_parts, "quorum_settings", lambda configs: SETTINGS), Simulation(seed) as simulation:
        return simulation.run(scenario)
