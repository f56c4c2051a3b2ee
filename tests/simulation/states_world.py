"""Three brokers on bad days, and machines on them that rely on their states: load, keep, and are replaced.

Every broker is `Broker.start`, unmodified, with small segments so that logs are pruned often. Brokers are killed, lose
power and meet full disks; the network delays, loses and parts them; hosts are paused, disks are slow. For each key
writers come one after the other, each in a newer epoch and on whichever broker, while those before it may still be at
work. What they are told is held against states_history.py; once everything heals, all keys can be loaded again.

Driven by test_states.py.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar
from unittest.mock import patch

from millpond.broker.drivers import state_shard
from millpond.broker.drivers import states as states_driver
from millpond.broker.drivers.states import StateKey, States
from millpond.core.metadata.internal_topics import INTERNAL, STATES
from millpond.model.errors import CoordinatorUnavailable, FencedState, MillpondError, StorageError
from millpond.testing.disk import PowerCut
from millpond.testing.hosts import Fate, HostDown
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster
from tests.simulation.history import Violation
from tests.simulation.replicated_world import Reports, is_broken
from tests.simulation.states_history import Document, StateHistory

T = TypeVar("T")

SECONDS = 60.0
CALM_SECONDS_MAX = 120.0
NEVER = 1 << 62
PATIENCE_SECONDS = 2.5
"""Short, so that writers meet what is not available."""
CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=60.0, tail_chance=0.05, tail_ms_max=2500.0, loss_chance=0.05, fragment_chance=0.5)
TROUBLES = (
    "kill",
    "kill",
    "power",
    "power",
    "operation",
    "full",
    "isolate",
    "isolate",
    "one way",
    "pause",
    "storm",
    "slow",
)
CONFIGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "replica.lag.time.max.ms": "2500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "700",
}
KEYS = [StateKey("share", group, bytes(range(16)), 0) for group in ("one", "two", "three")]
SEGMENT_BYTES, PRUNE_BYTES_MIN = 1024, 4096
SMALL = replace(
    INTERNAL[STATES],
    configs=(
        *(each for each in INTERNAL[STATES].configs if each[0] != "segment.bytes"),
        ("segment.bytes", str(SEGMENT_BYTES)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Day:
    """What befalls brokers, and how writers go about it. Planted bugs are tried on days that provoke them."""

    troubles: tuple[str, ...] = TROUBLES
    lasts: tuple[float, ...] = (0.3, 1.0, 4.0)
    idle_seconds: float = 0.0
    """How long a writer may wait after it has loaded, and before it writes again."""


ANY_DAY = Day()


@dataclass
class StatesWorld:
    sim: Simulation
    cluster: SimCluster
    rng: random.Random
    histories: dict[StateKey, StateHistory] = field(default_factory=lambda: {key: StateHistory() for key in KEYS})
    failures: list[BaseException] = field(default_factory=list)
    epochs: dict[StateKey, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    lives: int = 0
    is_calm: bool = False
    day: Day = ANY_DAY

    async def guard(self, program: Coroutine[Any, Any, None]) -> None:
        try:
            await program
        except Exception as error:
            self.failures.append(error)

    def check(self) -> None:
        self.cluster.check()
        if self.failures:
            raise self.failures[0]

    def has_calmed(self) -> bool:
        """While somebody waited."""
        return self.is_calm

    # Brokers

    async def live(self, machine: Machine) -> None:
        fates: list[Fate] = []
        machine.host.on_down(fates.append)
        while not self.is_calm:
            machine.disk.heal()
            machine.disk.cut_power_at(NEVER)
            machine.disk.slow_sync(0.0, self.rng.choice((0.001, 0.02, 0.1)))
            try:
                await machine.start()
                self.lives += 1
                while machine.host.alive and not self.has_calmed() and not is_broken(machine):
                    await machine.host.run(asyncio.sleep(0.2))
                if machine.host.alive and not is_broken(machine):  # it is calm, then
                    return
            except (HostDown, PowerCut, StorageError):
                pass
            if machine.host.alive or fates[-1:] == [Fate.KILLED]:
                machine.kill()
            else:
                machine.cut_power()
            await asyncio.sleep(self.rng.choice((0.0, 0.3, 2.0)) * (not self.is_calm))
        await machine.start()

    async def weather(self) -> None:
        rng, machines = self.rng, list(self.cluster.machines.values())
        while True:
            await asyncio.sleep(rng.uniform(0.3, 4.0))
            one = rng.choice(machines)
            self.trouble(rng.choice(self.day.troubles), one, rng.choice([each for each in machines if each is not one]))
            await asyncio.sleep(rng.choice(self.day.lasts))
            self.clear_up()
            one.disk.slow_sync(0.0, rng.choice((0.001, 0.02, 0.1)))

    def trouble(self, kind: str, one: Machine, other: Machine) -> None:
        network = self.sim.network
        match kind:
            case "kill":
                one.host.kill()
            case "power":
                one.host.cut_power()
            case "operation":
                one.disk.cut_power_at(one.disk.operations + self.rng.randrange(1, 200))
            case "full":
                one.disk.fail("write", error=errno.ENOSPC, after=self.rng.randrange(20), times=2)
            case "full leader":
                self.fill_leaders()
            case "isolate":
                network.partition([one.name], [each.name for each in self.cluster.machines.values() if each is not one])
            case "one way":
                network.cut_one_way(source=one.name, target=other.name)
            case "pause":
                one.host.pause()
            case "storm":
                network.set_conditions(STORMY)
            case "slow":
                one.disk.slow_sync(0.2, 1.5)

    def fill_leaders(self) -> None:
        """One write of each log of states fails where it is led; and soon somebody else has to know what it holds."""
        for machine in self.cluster.up:
            assert machine.broker is not None
            for partition in machine.broker.node.partitions:
                if partition.at.topic == STATES and partition.is_led_here:
                    machine.disk.fail("write", error=errno.ENOSPC, path_pattern=f"*/{partition.at}/*")
                    self.sim.loop.call_later(1.0, self.kill_before_the_calm, machine)

    def kill_before_the_calm(self, machine: Machine) -> None:
        if not self.is_calm:
            machine.host.kill()

    def clear_up(self) -> None:
        self.sim.network.heal()
        self.sim.network.set_conditions(CLEAR)
        for machine in self.cluster.machines.values():
            machine.host.resume()

    # Writers

    async def succeed(self, key: StateKey) -> None:
        """One writer after the other; those before are not told."""
        writers: list[asyncio.Task[None]] = []
        while not self.is_calm:
            if self.cluster.up:
                writing = self.write(key, self.next_epoch(key), self.rng.choice(self.cluster.up))
                writers.append(self.sim.loop.create_task(self.guard(writing)))
            await asyncio.sleep(self.rng.choice((0.5, 2.0, 8.0)))
        await asyncio.gather(*writers)

    def next_epoch(self, key: StateKey) -> int:
        self.epochs[key] += 1
        return self.epochs[key]

    async def write(self, key: StateKey, epoch: int, machine: Machine) -> None:
        assert machine.broker is not None
        states, history = machine.broker.node.states, self.histories[key]
        try:
            for session in count(1):
                documents = await self.load(key, epoch, machine, states)
                await self.idle()
                if self.is_calm or not await self.work(key, (epoch, session), documents, machine, states):
                    return
        except FencedState:
            history.fenced += 1
        except CoordinatorUnavailable:
            history.unavailable += 1
        except (HostDown, PowerCut, StorageError):
            pass
        except MillpondError:
            if not self.is_calm:
                raise

    async def at(self, machine: Machine, states: States, call: Callable[[], Awaitable[T]]) -> T:
        """On its host, in the life in which the writer began."""

        async def calling() -> T:
            return await call()

        if machine.broker is None or machine.broker.node.states is not states or not machine.host.alive:
            raise HostDown(machine.name)
        return await machine.host.run(calling())

    async def load(self, key: StateKey, epoch: int, machine: Machine, states: States) -> list[Document]:
        history = self.histories[key]
        before = len(history.acknowledged)
        documents = read(await self.at(machine, states, lambda: states.load(key, epoch)))
        history.note_loaded(epoch, documents, acknowledged_before=before)
        return documents

    async def work(
        self, key: StateKey, life: tuple[int, int], documents: list[Document], machine: Machine, states: States
    ) -> bool:
        """Whether to load again: some writers do, others go on with a whole document when one was not kept."""
        needs_whole, history, number = False, self.histories[key], 0
        while not self.is_calm:
            sent: list[tuple[Document, bytes, bool]] = []
            for _ in range(self.rng.choice((1, 1, 3))):
                number += 1
                documents.append(Document(*life, number))
                whole = needs_whole or self.rng.random() < 0.1
                needs_whole = False
                data = whole_of(documents) if whole else b"C" + str(documents[-1]).encode()
                sent.append((documents[-1], data, whole))
            results = await self.at(machine, states, partial(keep_all, states, key, life[0], sent))
            for (document, _, _), result in zip(sent, results, strict=True):
                if result is None:
                    history.note_acknowledged(document)
                elif isinstance(result, CoordinatorUnavailable):
                    history.unavailable += 1
                    needs_whole = True
                else:
                    raise result
            if needs_whole and self.rng.random() < 0.5:
                return True
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.05, 0.3)))
            await self.idle()
        return False

    async def idle(self) -> None:
        if self.day.idle_seconds:
            await asyncio.sleep(self.rng.uniform(0.0, self.day.idle_seconds))

    # The end

    async def heal(self, lives: list[asyncio.Task[None]]) -> None:
        self.clear_up()
        for machine in self.cluster.machines.values():
            machine.disk.heal()
            machine.disk.cut_power_at(NEVER)
            machine.disk.slow_sync(0.0, 0.001)
        self.is_calm = True
        try:
            async with asyncio.timeout(CALM_SECONDS_MAX):
                await asyncio.wait(lives)
                self.check()
                for key in KEYS:
                    for machine in self.cluster.machines.values():
                        await self.load_in_calm(key, machine)
        except TimeoutError:
            self.check()
            raise Violation(f"HealedIsAlive: not within {CALM_SECONDS_MAX} s") from None
        self.check()

    async def load_in_calm(self, key: StateKey, machine: Machine) -> None:
        while True:
            assert machine.broker is not None
            try:
                await self.load(key, self.next_epoch(key), machine, machine.broker.node.states)
            except MillpondError:
                await asyncio.sleep(0.5)
            else:
                return


async def keep_all(
    states: States, key: StateKey, epoch: int, documents: list[tuple[Document, bytes, bool]]
) -> list[BaseException | None]:
    """One behind the other, without waiting in between."""
    calls = [states.keep(key, epoch, data, whole=whole) for _, data, whole in documents]
    return await asyncio.gather(*calls, return_exceptions=True)


def whole_of(documents: list[Document]) -> bytes:
    return b"W" + ",".join(map(str, documents)).encode()


def read(loaded: list[bytes]) -> list[Document]:
    documents: list[Document] = []
    for data in loaded:
        if data.startswith(b"W"):
            documents = []
        for text in data[1:].decode().split(","):
            epoch, session, number = map(int, text.split("."))
            documents.append(Document(epoch, session, number))
    return documents


@dataclass
class Outcome:
    lives: int
    acknowledged: int
    loads: int
    fenced: int
    unavailable: int
    pruned: bool
    trace_hash: str


def run_seed(seed: int, *, seconds: float = SECONDS, day: Day = ANY_DAY) -> Outcome:
    async def scenario(sim: Simulation) -> Outcome:
        cluster = SimCluster(sim, 3, configs=CONFIGS)
        world = StatesWorld(sim, cluster, random.Random(seed), day=day)
        world.cluster.failures = Reports()
        create = sim.loop.create_task
        lives = [create(world.guard(world.live(machine))) for machine in world.cluster.machines.values()]
        programs = [create(world.guard(world.succeed(key))) for key in KEYS]
        weather = create(world.guard(world.weather()))
        until = sim.loop.time() + seconds
        while sim.loop.time() < until:
            await asyncio.sleep(1.0)
            world.check()
        weather.cancel()
        world.check()
        await world.heal([*lives, *programs])
        histories = world.histories.values()
        pruned = any(starts(world.cluster))
        await world.cluster.stop_all()
        return Outcome(
            lives=world.lives,
            acknowledged=sum(len(each.acknowledged) for each in histories),
            loads=sum(len(each.loads) for each in histories),
            fenced=sum(each.fenced for each in histories),
            unavailable=sum(each.unavailable for each in histories),
            pruned=pruned,
            trace_hash=sim.trace_hash(),
        )

    with (
        patch.dict(INTERNAL, {STATES: SMALL}),
        patch.object(state_shard, "PRUNE_BYTES_MIN", PRUNE_BYTES_MIN),
        patch.object(states_driver, "PATIENCE_SECONDS", PATIENCE_SECONDS),
        patch.object(States, "_has_topic", lambda self, topic_id: True),  # there is none; only its states
    ):
        return simulate(seed, scenario, virtual_seconds_max=seconds + 900)


def starts(cluster: SimCluster) -> list[int]:
    """Of the logs of states, everywhere."""
    return [
        partition.log.start_offset
        for machine in cluster.up
        if machine.broker is not None
        for partition in machine.broker.node.partitions
        if partition.at.topic == STATES
    ]
