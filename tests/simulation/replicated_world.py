"""A whole cluster on bad days: brokers with disks of their own, a network, and clients that rely on them.

Every broker is `Broker.start`, unmodified. Brokers are killed, lose power, stop in order and meet failing disks; the
network delays, loses and parts them, whole, one way or around a bridge; hosts are paused, disks are slow, wall clocks
jump, and monotonic clocks run at rates of their own. Operators (replicated_operator.py) and clients
(replicated_clients.py) go on meanwhile. What clients are told is held against replicated_history.py; and of the brokers
themselves, looked at now and then from outside:

    OneHistory         images of the same version are the same on every broker
    OneLeaderPerEpoch  a leader epoch of a partition belongs to one broker, in every image
    OneLeaderActs      no two brokers may acknowledge for a partition at the same time, but for a moment when it moves
    HealedIsAlive      once everything heals, all replicas are in sync
    ReplicasAreEqual   and then they hold the same bytes

Driven by test_replicated.py and by `make sim WORLD=cluster`, `make sim-night`.
"""

import asyncio
import errno
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any
from unittest.mock import patch

from millpond.app import parts as app_parts
from millpond.broker.drivers import followers
from millpond.broker.drivers.followers import FEW
from millpond.broker.drivers.quorum import QuorumSettings
from millpond.core.metadata.image import Image
from millpond.core.raft.settings import RaftSettings
from millpond.core.replication.lease import DRIFT_PERCENT_MAX
from millpond.model.errors import InvalidSetting, StorageError
from millpond.model.ids import Offset, TopicPartition
from millpond.testing.disk import PowerCut
from millpond.testing.hosts import Fate, HostDown
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation
from tests.broker.clusters import Machine, SimCluster
from tests.simulation.broker_history import BrokerHistory, OffsetAsked, OffsetRead, ReadInCalm
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.history import Violation
from tests.simulation.replicated_clients import GROUP, PLACES, Client
from tests.simulation.replicated_history import LastEpoch, new_history
from tests.simulation.replicated_operator import (
    Kind,
    change_voters,
    kind_of,
    leaders_beside,
    may_forget,
    move_partitions,
)
from tests.simulation.wire_client import Unanswered

SECONDS = 60.0
CALM_SECONDS_MAX = 120.0
NEVER = 1 << 62
CLIENTS = ("one", "two")
CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=60.0, tail_chance=0.05, tail_ms_max=2500.0, loss_chance=0.05, fragment_chance=0.5)
ENDS = ("operation", "operation", "moment", "moment", "kill", "kill", "orderly", "sync error", "full")
FAILING = ("*", "*/orders-*", "*/events-*", "*/__consumer_offsets-*", "*/__cluster_metadata-*")
"""Where a disk error strikes."""
WEATHER = (
    *("storm", "isolate", "halves", "one way", "bridge", "pause", "client", "slow disk", "slow disk", "clock"),
    *("isolate", "kill client", "leader", "blackout"),
)
PARTING = ("isolate", "halves", "one way", "bridge", "pause")
SUDDEN = ("clock", "leader", "blackout")


@dataclass(frozen=True, kw_only=True)
class Skies:
    """What befalls brokers, and how often. Planted bugs are tried under skies that provoke them."""

    kinds: tuple[str, ...] = WEATHER
    every: tuple[float, float] = (0.5, 5.0)
    """Seconds from one to the next."""
    lasts: tuple[float, ...] = (0.3, 1.0, 4.0, 9.0)
    places: tuple[tuple[str, int], ...] = PLACES
    """Partitions whose leaders are struck more often than others."""


ANY_SKIES = Skies()


CLOCK_RATES = (0.952, 1.0, 1.048)
CONFIGS = {
    "offsets.topic.num.partitions": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "700",
    "replica.lag.time.max.ms": "2500",
}
CLOCKS_DIFFER_MAX = DRIFT_PERCENT_MAX / 100
"""How much faster one broker's clock may run than another's, as all leases assume."""
QUORUM = QuorumSettings(
    raft=RaftSettings(
        heartbeat_s=0.25, election_timeout_s_min=0.8, election_timeout_s_max=1.6, clock_drift_max=CLOCKS_DIFFER_MAX
    ),
    snapshot_entries=40,
    entries_kept=5,
)


@dataclass
class Outcome:
    size: int = 3
    lives: int = 0
    power_cuts: int = 0
    kills: int = 0
    disks_lost: int = 0
    elections: int = 0
    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    trace_hash: str = ""


class Reports(list[BaseException]):
    """What brokers reported; that a disk failed is news only where it was not made to fail."""

    disks_fail: bool = True

    def append(self, error: BaseException) -> None:
        if not (self.disks_fail and isinstance(error, StorageError)):
            super().append(error)


@dataclass
class World:
    sim: Simulation
    cluster: SimCluster
    rng: random.Random
    history: BrokerHistory = field(default_factory=new_history)
    outcome: Outcome = field(default_factory=Outcome)
    failures: list[BaseException] = field(default_factory=list)
    images: dict[int, Image] = field(default_factory=dict)
    leaders: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    groups: list[str] = field(default_factory=lambda: [GROUP])
    programs: int = 0
    fates: dict[str, Fate] = field(default_factory=dict)
    """How the last life of each broker ended."""
    guest: Machine | None = None
    """A broker that is not a founder, and forgets at times."""
    guest_forgot: bool = False
    is_calm: bool = False
    skies: Skies = ANY_SKIES

    def check(self) -> None:
        self.cluster.check()
        if self.failures:
            raise self.failures[0]

    def note(self, event: Any) -> None:  # noqa: ANN401 - an event of either history
        self.sim.trace("noted", repr(event))
        self.history.note(event)

    async def guard(self, program: Coroutine[Any, Any, None]) -> None:
        """Whoever meets a broken invariant, or anything it does not expect, ends the run."""
        try:
            await program
        except Exception as error:
            self.failures.append(error)

    # What is seen from outside

    def watch(self, machine: Machine) -> None:
        broker = machine.broker
        assert broker is not None
        quorum = broker.node.metadata.quorum
        quorum.listen(lambda before, after: self.look(after))
        self.look(quorum.image)

    def look(self, image: Image) -> None:
        """Called on a broker's own step, so it must not raise there."""
        first = self.images.setdefault(image.version, image)
        if first is image:
            for topic in image.topics.values():
                for number, partition in enumerate(topic.partitions):
                    epoch = TopicPartition(topic.name, number), partition.leader_epoch
                    leader = self.leaders.setdefault(epoch, partition.leader)
                    if leader != partition.leader:
                        self.failures.append(Violation(f"OneLeaderPerEpoch: {epoch}: {leader}, {partition.leader}"))
        elif first != image:
            self.failures.append(Violation(f"OneHistory: version {image.version} is {image}, and elsewhere {first}"))

    async def watch_leaders(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            acting: dict[TopicPartition, tuple[int, Machine]] = {}
            for machine in self.cluster.up:
                assert machine.broker is not None
                if not machine.holds_lease():
                    continue
                for partition in machine.broker.node.partitions:
                    if partition.leading is not None:
                        this = partition.leader_epoch, machine
                        other = acting.setdefault(partition.at, this)
                        if other is not this and not was_relieved(*sorted((other, this), key=itemgetter(0))):
                            names = f"{other[1].name} and {machine.name}"
                            raise Violation(f"OneLeaderActs: {names} both lead {partition.at}")

    def epoch_min(self, place: int) -> int:
        at = TopicPartition(*PLACES[place])
        found = [
            partition.leader_epoch
            for machine in self.cluster.up
            if machine.broker is not None and (partition := machine.broker.node.image.partition(at)) is not None
        ]
        return min(found, default=-1)

    # Lives of brokers

    async def live(self, machine: Machine) -> None:
        while not self.is_calm:
            await self.one_life(machine)
            if not self.is_calm:
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.3, 2.0, 6.0)))
        while machine.broker is None:
            try:
                await machine.start()
            except InvalidSetting:
                await asyncio.sleep(1.0)
            else:
                self.watch(machine)

    async def one_life(self, machine: Machine) -> None:
        host, seconds = machine.host, self.rng.choice((self.rng.uniform(1.0, 20.0), self.rng.uniform(10.0, 90.0)))
        end, timer = self.plan_end(machine, seconds)
        is_orderly = False
        try:
            await machine.start()
            self.watch(machine)
            if machine is self.guest and self.guest_forgot and not self.is_calm:
                self.guest_forgot = False
                self.cut_power_of_a_leader(machine.node_id)
            until = self.sim.loop.time() + seconds
            is_endless = end in ("operation", "moment", "kill")
            # A host that went down between two steps would begin another life here, without a broker.
            while host.alive and not self.is_calm and (self.sim.loop.time() < until or is_endless):
                await host.run(asyncio.sleep(0.5))
            if host.alive and not self.is_calm and end == "orderly":
                await machine.stop()
                is_orderly = True
        except (HostDown, PowerCut, StorageError):
            pass
        except InvalidSetting:  # it comes with an empty disk, and the one with the old disk was heard a moment ago
            assert machine is self.guest, machine.name
        if timer is not None:
            timer.cancel()
        if self.is_calm and machine.broker is not None and host.alive:
            return  # it lives on
        self.outcome.lives += 1
        if is_orderly:
            return
        if host.alive:
            self.fates[machine.name] = Fate.KILLED  # its disk failed, and somebody looks after it
        if self.fates[machine.name] is Fate.KILLED:
            machine.kill()
            self.outcome.kills += 1
        else:
            machine.cut_power()
            self.outcome.power_cuts += 1
        if machine is self.guest and may_forget(self.newest_image(), machine.node_id):
            machine.lose_disk()
            self.guest_forgot = True
            self.outcome.disks_lost += 1

    def cut_power_of_a_leader(self, broker: int) -> None:
        """Of something that the broker, which has just come back with nothing, keeps: it must not be asked to lead."""
        leaders = leaders_beside(self.newest_image(), broker)
        alive = [self.cluster[each].host for each in leaders if self.cluster[each].host.alive]
        if alive:
            self.rng.choice(alive).cut_power()

    def plan_end(self, machine: Machine, seconds: float) -> tuple[str, asyncio.TimerHandle | None]:
        rng, host, disk = self.rng, machine.host, machine.disk
        disk.heal()
        disk.cut_power_at(NEVER)
        disk.slow_sync(0.0, rng.choice((0.001, 0.02, 0.1, 0.5)))
        end, timer = rng.choice(ENDS), None
        match end:
            case "operation":
                disk.cut_power_at(rng.choice((rng.randrange(1, 60), rng.randrange(1, 1500))))
            case "moment":
                timer = self.sim.loop.call_later(seconds, host.cut_power)
            case "kill":
                timer = self.sim.loop.call_later(seconds, host.kill)
            case "sync error":
                disk.fail("sync", after=rng.randrange(0, 400), path_pattern=rng.choice(FAILING))
            case "full":
                times, pattern = rng.randrange(1, 4), rng.choice(FAILING)
                disk.fail("write", error=errno.ENOSPC, after=rng.randrange(0, 400), times=times, path_pattern=pattern)
        return end, timer

    # Weather

    def client(self, name: str) -> Client:
        self.programs += 1
        return Client(
            f"{name}.{self.programs}",
            list(self.cluster.peers.values()),
            random.Random(self.rng.getrandbits(64)),
            note=self.note,
            guard=self.guard,
            wall_ms=self.sim.clock.wall_ms,
            epoch_min=self.epoch_min,
            groups=self.groups,
            insync_min=2 if self.guest is not None else 1,
        )

    def start_client(self, name: str) -> None:
        self.sim.host(name).spawn(self.guard(self.client(name).run()))

    async def weather(self) -> None:
        rng, machines = self.rng, list(self.cluster.machines.values())
        while True:
            await asyncio.sleep(rng.uniform(*self.skies.every))
            one, client = self.somebody(machines), rng.choice(CLIENTS)
            kind = rng.choice(self.skies.kinds)
            self.part(kind, one.name, client)
            self.trouble(kind, one, client)
            await asyncio.sleep(rng.choice(self.skies.lasts) * (kind not in SUDDEN))
            if kind in PARTING and rng.random() < 0.5:
                self.lose_a_leader()
            self.clear_up()
            one.disk.slow_sync(0.0, rng.choice((0.001, 0.02, 0.1, 0.5)))
            if not self.sim.host(client).alive:
                self.start_client(client)

    def somebody(self, machines: list[Machine]) -> Machine:
        """More often than not one that leads something."""
        leader = self.leader_of(self.rng.randrange(len(self.skies.places)))
        return self.rng.choice([*machines, *(machine for machine in machines if machine.node_id == leader)])

    def lose_a_leader(self) -> None:
        """While others have fallen behind; they are back at once."""
        leader = self.cluster.machines.get(self.leader_of(self.rng.randrange(len(self.skies.places))) or -1)
        if leader is not None:
            leader.host.cut_power()

    def leader_of(self, place: int) -> int | None:
        newest = self.newest_image()
        partition = newest.partition(TopicPartition(*self.skies.places[place])) if newest is not None else None
        return partition.leader if partition is not None else None

    def newest_image(self) -> Image | None:
        return self.images.get(max(self.images, default=-1))

    def part(self, kind: str, one: str, client: str) -> None:
        rng, network, names = self.rng, self.sim.network, [each.name for each in self.cluster.machines.values()]
        others = [name for name in names if name != one]
        match kind:
            case "isolate":
                network.partition([one], others)
            case "halves":
                left = rng.sample(names, len(names) // 2)
                network.partition(left, [name for name in names if name not in left])
            case "one way":
                network.cut_one_way(source=one, target=rng.choice(others))
            case "bridge":
                network.partition(others[::2], others[1::2])
            case "client":
                network.partition([client], rng.sample(names, rng.randrange(1, len(names) + 1)))

    def trouble(self, kind: str, one: Machine, client: str) -> None:
        match kind:
            case "storm":
                self.sim.network.set_conditions(STORMY)
            case "pause":
                one.host.pause()
            case "slow disk":
                one.disk.slow_sync(0.2, 1.5)
            case "full disk":
                one.disk.fail("write", error=errno.ENOSPC, path_pattern="*/orders-*")
            case "clock":
                self.sim.clock.jump(one.name, ms=self.rng.randrange(-30_000, 30_000))
            case "kill client":
                self.sim.host(client).kill()
            case "leader":
                one.host.cut_power()
            case "blackout":
                for machine in self.rng.sample(list(self.cluster.machines.values()), self.rng.randrange(2, 4)):
                    machine.host.cut_power()

    def clear_up(self) -> None:
        self.sim.network.heal()
        self.sim.network.set_conditions(CLEAR)
        for machine in self.cluster.machines.values():
            machine.host.resume()

    # The end

    async def heal(self, lives: list[asyncio.Task[None]]) -> None:
        """Nothing befalls anybody any more, those who are down come up, and everything comes into sync."""
        for name in CLIENTS:
            self.sim.host(name).kill()
        self.clear_up()
        for machine in self.cluster.machines.values():
            machine.disk.heal()
            machine.disk.cut_power_at(NEVER)
            machine.disk.slow_sync(0.0, 0.001)
        self.is_calm = True
        try:
            async with asyncio.timeout(CALM_SECONDS_MAX):
                for life in lives:
                    await life
                self.check()
                await self.restart_broken()
                while not self.all_in_sync():  # noqa: ASYNC110 - in virtual time
                    await asyncio.sleep(0.2)
                await self.sim.host("reader").run(self.read_everything())
                while unequal := self.unequal_replicas():
                    self.check()
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self.check()
            unequal = self.unequal_replicas()
            name = "ReplicasAreEqual" if self.all_in_sync() and unequal else "HealedIsAlive"
            raise Violation(f"{name}: not within {CALM_SECONDS_MAX} s; {unequal}; {self.partitions()}") from None
        self.check()

    async def restart_broken(self) -> None:
        """A log that its disk failed stays refused until the broker is started again."""
        for machine in self.cluster.machines.values():
            if machine.broker is not None and is_broken(machine):
                machine.kill()
                await machine.start()
                self.watch(machine)

    def partitions(self) -> str:
        for machine in self.cluster.up:
            assert machine.broker is not None
            return "; ".join(
                f"{topic.name}-{number} {partition}"
                for topic in machine.broker.node.image.topics.values()
                for number, partition in enumerate(topic.partitions)
            )
        return "nobody is up"

    def all_in_sync(self) -> bool:
        for machine in self.cluster.machines.values():
            if machine.broker is None or not machine.holds_lease():
                return False
            for topic in machine.broker.node.image.topics.values():
                if any(set(each.isr) != set(each.replicas) for each in topic.partitions):
                    return False
            for partition in machine.broker.node.partitions:
                if partition.leading is not None and partition.high_watermark < partition.log.next_offset:
                    return False
        return True

    def unequal_replicas(self) -> list[str]:
        found: dict[TopicPartition, tuple[str, bytes]] = {}
        unequal = []
        for machine in self.cluster.up:
            assert machine.broker is not None
            for partition in machine.broker.node.partitions:
                log, parts, at = partition.log, [], partition.log.start_offset
                while at < log.next_offset:
                    part = log.read(Offset(at), bytes_max=1 << 20)
                    parts.append(bytes(part.data))
                    at = part.next_offset
                first, data = found.setdefault(partition.at, (machine.name, b"".join(parts)))
                if data != b"".join(parts):
                    unequal.append(f"{partition.at} on {first} and {machine.name}")
        return unequal

    async def read_everything(self) -> None:
        await self.client("reader").ensure_topics()  # nobody may have lived long enough to make them
        wire = ClusterClient(list(self.cluster.peers.values()), client_id="reader", rng=self.rng)
        for place in range(len(PLACES)):
            self.note(LastEpoch(place, self.epoch_min(place)))
            self.note(await self.read_place(wire, place))
            for group in self.groups:
                await self.read_group(wire, group, place)
        wire.close()

    async def read_place(self, wire: ClusterClient, place: int) -> ReadInCalm:
        while True:
            try:
                return await self.read_place_once(wire, place)
            except Unanswered:
                await asyncio.sleep(0.2)

    async def read_place_once(self, wire: ClusterClient, place: int) -> ReadInCalm:
        records: list[tuple[int, bytes]] = []
        end = await wire.end_offset(*PLACES[place])
        while len(records) < end:
            at = records[-1][0] + 1 if records else 0
            found = await wire.fetch(*PLACES[place], start=at, bytes_max=50_000, wait_ms=0)
            if not found.records:
                break  # the invariants say what is missing
            # What clients sent before they were killed may still arrive.
            records += [(offset, value) for offset, value in found.records if offset < end]
        return ReadInCalm(place, tuple(records), end)

    async def read_group(self, wire: ClusterClient, group: str, place: int) -> None:
        while True:
            self.note(OffsetAsked("reader"))
            try:
                offset, note = await wire.committed(group, *PLACES[place])
            except Unanswered:
                await asyncio.sleep(0.2)
            else:
                self.note(OffsetRead("reader", group, place, offset, note))
                return


def was_relieved(before: tuple[int, Machine], after: tuple[int, Machine]) -> bool:
    """Whether the one leads because a movement took the lead from the other, which is up and has not heard of it yet.
    Nobody who is in sync copies from that one any more."""
    old, new = before[1].broker, after[1].broker
    assert old is not None
    assert new is not None
    known = new.node.image.brokers[before[1].node_id]
    return before[0] < after[0] and not known.fenced and known.epoch == old.life.epoch


def is_broken(machine: Machine) -> bool:
    broker = machine.broker
    assert broker is not None
    quorum, partitions = broker.node.metadata.quorum, broker.node.partitions
    return quorum.trouble is not None or bool(partitions.failures) or any(each.log.failure for each in partitions)


def run_seed(seed: int, *, seconds: float = SECONDS, skies: Skies = ANY_SKIES, given: Kind | None = None) -> Outcome:
    """Raises what went wrong, with the seed in its notes."""

    async def scenario(sim: Simulation) -> Outcome:
        kind = given or kind_of(seed)
        # With only one in sync, a disk that is lost may have been the last that counts: then an operator must decide.
        more = {"min.insync.replicas": "2"} if kind is Kind.GUEST_FORGETS else {}
        cluster = SimCluster(sim, 5 if kind is Kind.FIVE else 3, configs={**CONFIGS, **more})
        cluster.failures = Reports()
        world = World(sim, cluster, sim.rng, skies=skies)
        loop = sim.loop
        operators: list[Coroutine[Any, Any, None]] = []
        if kind is not Kind.THREE:
            operators.append(move_partitions(cluster, PLACES, loop.chance("moves")))
        if kind in (Kind.GUEST_VOTES, Kind.GUEST_FORGETS):
            guest = cluster.add()
            if kind is Kind.GUEST_VOTES:
                operators.append(change_voters(cluster, guest, loop.chance("voters")))
            else:
                world.guest = guest
        world.outcome.size = len(cluster.machines)
        for machine in cluster.machines.values():
            sim.loop.clock_rates[machine.name] = sim.rng.choice(CLOCK_RATES)
            machine.host.on_down(partial(world.fates.__setitem__, machine.name))
        lives = [loop.create_task(world.guard(world.live(machine))) for machine in cluster.machines.values()]
        for name in CLIENTS:
            world.start_client(name)
        watching = loop.create_task(world.guard(world.watch_leaders()))
        programs = [loop.create_task(world.guard(each)) for each in (world.weather(), *operators)]
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            world.check()
        for program in programs:
            program.cancel()
        await world.heal(lives)
        watching.cancel()
        world.outcome.counts = world.history.counts
        world.outcome.elections = len(world.leaders)
        world.outcome.steps = sim.loop.steps
        world.outcome.trace_hash = sim.trace_hash()
        return world.outcome

    # The brokers' own code, with a quorum whose snapshots are seen in a minute; and in some worlds with streams of busy
    # and of quiet partitions, which a cluster as small as this would not always have by itself.
    with (
        patch.object(app_parts, "quorum_settings", lambda configs: QUORUM),
        patch.object(followers, "FEW", 0 if seed % 3 == 0 else FEW),
        Simulation(seed) as simulation,
    ):
        try:
            return simulation.run(scenario)
        except Exception as error:
            error.add_note(f"replay with: make sim WORLD=cluster SEED={seed}")
            raise
