"""One broker and its clients on simulated machines, for many lives of the broker.

The broker is `Broker.start`, unmodified, on a simulated disk. In each life it serves until its power goes, at a drawn
disk operation or moment, or it is killed, or stopped in order. Meanwhile the network delays, loses and partitions, the
broker is paused, and clients are killed. Clients never stop: they produce with and without idempotence, read from the
start, and consume in a group. At the end everything heals, and all that is there is read in calm.

Driven by test_broker.py.
"""

import asyncio
import errno
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.model.errors import StorageError
from millpond.model.ids import TimestampMs
from millpond.protocol.records import encode_values
from millpond.testing.disk import PowerCut, SimDisk
from millpond.testing.hosts import HostDown
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation
from tests.simulation.broker_history import (
    Acknowledged,
    Asked,
    Assigned,
    BrokerEnded,
    BrokerHistory,
    CommitBegan,
    CommitEnded,
    Event,
    OffsetAsked,
    OffsetRead,
    ProducerNamed,
    Read,
    ReadInCalm,
    Seeked,
    Sent,
)
from tests.simulation.wire_client import IdempotentProducer, Membership, Refused, Unanswered, WireClient

BROKER, PORT = "broker", 9092
CLIENTS = ("one", "two", "three")
TOPIC, GROUP = "orders", "readers"
PARTITIONS = 3
LIVES_PER_SEED = 5
LIFE_SECONDS_MAX = 12.0
CALM_SECONDS_MAX = 120.0
NEVER = 1 << 62
"""A disk operation that no run comes to."""
CONFIGS = {"offsets.topic.num.partitions": "1"}

ENDS = (*["operation"] * 3, *["moment"] * 3, "kill", "orderly", "sync error", "full")
FAILING = ("*", "*/orders-*", "*/__consumer_offsets-*", "*/__cluster_metadata-*")
"""Where a disk error strikes."""

TOPIC_ALREADY_EXISTS = 36
NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 16, 22, 25, 27
JOIN_AGAIN = (NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS)
"""The first of them by a broker that stops."""

CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=40.0, tail_chance=0.05, tail_ms_max=4000.0, loss_chance=0.05, fragment_chance=0.5)


@dataclass(slots=True)
class Outcome:
    """What a run did, for those who watch."""

    lives: int = 0
    power_cuts: int = 0
    kills: int = 0
    orderly: int = 0
    steps: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    trace_hash: str = ""


@dataclass
class World:
    sim: Simulation
    disk: SimDisk
    broker_rng: random.Random
    rng: random.Random
    history: BrokerHistory = field(default_factory=BrokerHistory)
    outcome: Outcome = field(default_factory=Outcome)
    failures: list[BaseException] = field(default_factory=list)
    programs: int = 0
    groups: list[str] = field(default_factory=lambda: [GROUP])
    disk_fails: bool = False
    """In this life of the broker."""

    def note(self, event: Event) -> None:
        self.sim.trace("noted", repr(event))
        self.history.note(event)

    def check(self) -> None:
        if self.failures:
            raise self.failures[0]

    async def guard(self, program: Coroutine[Any, Any, None]) -> None:
        """A client that meets a broken invariant, or anything it does not expect, ends the run."""
        try:
            await program
        except Exception as error:
            self.failures.append(error)

    # The broker's lives

    async def serve(self, seconds: float) -> None:
        """Runs on the broker's host."""
        broker = await self.start()
        await asyncio.sleep(seconds)
        await broker.stop(grace_seconds=1)

    async def start(self) -> Broker:
        settings = BrokerSettings(data_directory="data", host=BROKER, port=PORT, upkeep_seconds=3, configs=CONFIGS)
        return await Broker.start(
            settings,
            filesystem=self.disk,
            clock=self.sim.clock,
            rng=self.broker_rng,
            on_error=self.report,
        )

    def report(self, error: BaseException) -> None:
        """Called by the broker. A disk that fails is no bug; anything else is one."""
        if not (self.disk_fails and isinstance(error, StorageError)):
            self.failures.append(error)

    async def one_life(self) -> None:
        disk, rng, host = self.disk, self.rng, self.sim.host(BROKER)
        self.heal_disk()
        disk.slow_sync(0.0, rng.choice((0.001, 0.05, 0.4, 0.4)))
        disk.on_power_cut = host.cut_power
        seconds = rng.uniform(0.5, LIFE_SECONDS_MAX)
        timer: asyncio.TimerHandle | None = None
        end = rng.choice(ENDS)
        if end in ("sync error", "full") and not self.history.counts.keys() >= {"Acknowledged", "CommitEnded"}:
            end = "orderly"  # a topic whose logs a failing disk did not let be made stays without them until a restart
        self.disk_fails = end in ("sync error", "full")
        match end:
            case "operation":
                disk.cut_power_at(rng.choice((rng.randrange(1, 60), rng.randrange(1, 1500))))
            case "moment":
                timer = self.sim.loop.call_later(seconds * rng.uniform(0.2, 1), host.cut_power)
            case "kill":
                timer = self.sim.loop.call_later(seconds * rng.uniform(0.2, 1), host.kill)
            case "sync error":
                disk.fail("sync", after=rng.randrange(0, 100), path_pattern=rng.choice(FAILING))
            case "full":
                times = rng.randrange(1, 4)
                pattern = rng.choice(FAILING)
                disk.fail("write", error=errno.ENOSPC, after=rng.randrange(0, 100), times=times, path_pattern=pattern)
        powered = True
        try:
            await host.run(self.serve(seconds))
            self.outcome.orderly += 1
        except StorageError:
            assert self.disk_fails
        except (HostDown, PowerCut):
            powered = end == "kill"
            self.outcome.kills += powered
        if timer is not None:
            timer.cancel()
        host.kill()
        if powered:
            disk.end_process()
        else:
            disk.crash()
            self.outcome.power_cuts += 1
        self.note(BrokerEnded())
        self.outcome.lives += 1

    def heal_disk(self) -> None:
        self.disk.heal()
        self.disk.cut_power_at(NEVER)  # the last life may have ended before its cut

    # What happens around it

    def start_client(self, name: str) -> None:
        self.programs += 1
        client = Client(self, f"{name}.{self.programs}", random.Random(self.rng.getrandbits(64)))
        self.sim.host(name).spawn(self.guard(client.run()))

    async def weather(self) -> None:
        rng, network, broker = self.rng, self.sim.network, self.sim.host(BROKER)
        while True:
            await asyncio.sleep(rng.uniform(0.1, 3))
            client, seconds = rng.choice(CLIENTS), rng.choice((0.1, 1.0, 4.0))
            match rng.choice(("partition", "deaf", "mute", "storm", "pause", "long pause", "kill client")):
                case "partition":
                    network.partition(client, BROKER)
                case "deaf":
                    network.cut_one_way(source=BROKER, target=client)
                case "mute":
                    network.cut_one_way(source=client, target=BROKER)
                case "storm":
                    network.set_conditions(STORMY)
                case "pause":
                    broker.pause()
                case "long pause":
                    broker.pause()
                    seconds = 8.0
                case "kill client":
                    self.sim.host(client).kill()
            await asyncio.sleep(seconds)
            broker.resume()
            network.heal()
            network.set_conditions(CLEAR)
            if not self.sim.host(client).alive:
                self.start_client(client)

    # The end

    async def read_in_calm(self) -> None:
        """With clients gone and everything healed, a last life of the broker shows all that is there."""
        for name in CLIENTS:
            self.sim.host(name).kill()
        self.sim.host(BROKER).resume()
        self.sim.network.heal()
        self.sim.network.set_conditions(CLEAR)
        self.heal_disk()
        host = self.sim.host(BROKER)
        broker = await host.run(self.start())
        async with asyncio.timeout(CALM_SECONDS_MAX):
            await self.sim.host("reader").run(self.read_everything())
        await host.run(broker.stop())
        self.check()

    async def read_everything(self) -> None:
        wire = WireClient(host=BROKER, port=PORT, client_id="reader", rng=self.rng)
        await wire.create_topic(TOPIC, partitions=PARTITIONS, configs={})  # no life may have been long enough for it
        for partition in range(PARTITIONS):
            records: list[tuple[int, bytes]] = []
            end = await wire.end_offset(TOPIC, partition)
            while len(records) < end:
                at = records[-1][0] + 1 if records else 0
                found = await wire.fetch(TOPIC, partition, start=at, bytes_max=5000, wait_ms=0)
                if not found.records:
                    break  # the invariants say what is missing
                records += found.records
            self.note(ReadInCalm(partition, tuple(records), end))
            for group in self.groups:
                self.note(OffsetAsked("reader"))
                self.note(OffsetRead("reader", group, partition, *await wire.committed(group, TOPIC, partition)))
        wire.close()


class Client:
    """One process on a client's host: a few programs side by side, each with a connection of its own."""

    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.values_made = 0
        self.commits_made = 0

    async def run(self) -> None:
        await self.ensure_topic()
        async with asyncio.TaskGroup() as programs:
            for program in (self.produce, self.produce, self.produce_plainly, self.consume, self.audit, self.track):
                programs.create_task(self.world.guard(program()))

    def connect(self) -> WireClient:
        return WireClient(host=BROKER, port=PORT, client_id=self.name, rng=self.rng)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.01, 0.5))

    async def ensure_topic(self) -> None:
        wire = self.connect()
        while True:
            try:
                code = await wire.create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.bytes": "3000"})
            except Unanswered:
                await self.pause()
            else:
                assert code in (0, TOPIC_ALREADY_EXISTS), f"creating a topic was answered with {code}"
                wire.close()
                return

    # Producers

    async def produce(self) -> None:
        """Producers with an id, one after another."""
        wire = self.connect()
        while True:
            try:
                given = await wire.producer_id()
            except Unanswered:
                await self.pause()
                continue
            self.world.note(ProducerNamed(given))
            producer = IdempotentProducer(wire, TOPIC, given, pause_seconds=self.rng.uniform(0.01, 0.5))
            for _ in range(self.rng.randrange(1, 15)):
                partition, values = self.rng.randrange(PARTITIONS), self.values()
                self.world.note(Sent(partition, tuple(values), is_idempotent=True))
                base = await producer.send(partition, values, timestamp=self.world.sim.clock.wall_ms())
                self.world.note(Acknowledged(f"producer {given}", partition, base, tuple(values)))
                await self.pause()

    async def produce_plainly(self) -> None:
        """Without an id, and so without a second try."""
        wire = self.connect()
        while True:
            await self.pause()
            partition, values = self.rng.randrange(PARTITIONS), self.values()
            batch = encode_values(values, timestamp=TimestampMs(self.world.sim.clock.wall_ms()))
            self.world.note(Sent(partition, tuple(values), is_idempotent=False))
            try:
                base = await wire.produce(TOPIC, partition, batch)
            except Unanswered:
                continue
            self.world.note(Acknowledged(f"{self.name} plain", partition, base, tuple(values)))

    def values(self) -> list[bytes]:
        first = self.values_made
        self.values_made += self.rng.randrange(1, 4)
        filling = b"." * self.rng.choice((0, 10, 300))
        return [b"%s/%d%s" % (self.name.encode(), number, filling) for number in range(first, self.values_made)]

    # Readers

    async def audit(self) -> None:
        """Reads every partition from its start, again and again."""
        wire = self.connect()
        reader = f"{self.name} audit"
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 3))
            partition = self.rng.randrange(PARTITIONS)
            self.world.note(Seeked(reader, partition, 0))
            try:
                self.world.note(Asked(reader, partition))
                end = await wire.end_offset(TOPIC, partition)
                self.world.note(Read(reader, partition, (), end))
                at = 0
                while at < end:
                    at = await self.fetch(wire, reader, partition, at)
                await self.read_committed(wire, reader, GROUP, partition)
            except Unanswered:
                continue

    async def fetch(self, wire: WireClient, reader: str, partition: int, start: int) -> int:
        """Returns where to go on."""
        self.world.note(Asked(reader, partition))
        bytes_max, wait_ms = self.rng.choice((1, 1000, 20_000)), self.rng.randrange(0, 300)
        found = await wire.fetch(TOPIC, partition, start=start, bytes_max=bytes_max, wait_ms=wait_ms)
        self.world.note(Read(reader, partition, found.records, found.end))
        return start + len(found.records)

    async def read_committed(self, wire: WireClient, reader: str, group: str, partition: int) -> int:
        self.world.note(OffsetAsked(reader))
        offset, note = await wire.committed(group, TOPIC, partition)
        self.world.note(OffsetRead(reader, group, partition, offset, note))
        return offset

    # The group

    async def consume(self) -> None:
        wire = self.connect()
        member_id = ""
        while True:
            await self.pause()
            try:
                joined = await wire.join(GROUP, TOPIC, member_id)
                member_id = joined.member_id
                partitions = await wire.partitions(TOPIC)
                member = await wire.sync(GROUP, TOPIC, joined, partitions)
                self.world.note(Assigned(GROUP, member.generation, member.member_id, member.partitions))
                await self.own(wire, member)
                member_id = ""
            except Unanswered:
                continue
            except Refused as refusal:
                if refusal.code not in JOIN_AGAIN:
                    raise
                if refusal.code == UNKNOWN_MEMBER_ID:
                    member_id = ""

    async def own(self, wire: WireClient, member: Membership) -> None:
        """Reads what was assigned, until a refusal says that it is another's, or enough is enough."""
        reader = f"{member.member_id} in {member.generation}"
        positions: dict[int, int] = {}
        while self.rng.random() > 0.02:
            await asyncio.sleep(self.rng.uniform(0.05, 0.4))
            try:
                await wire.heartbeat(member)
                for partition in member.partitions:
                    if partition not in positions:
                        start = max(0, await self.read_committed(wire, reader, GROUP, partition))
                        self.world.note(Seeked(reader, partition, start))
                        positions[partition] = start
                    positions[partition] = await self.fetch(wire, reader, partition, positions[partition])
                    if self.rng.random() < 0.5:
                        await self.commit(wire, member, partition, positions[partition])
            except Unanswered:
                continue
        await wire.leave(member)

    async def track(self) -> None:
        """Commits for a group of its own that has no members, as a consumer does that assigns its own partitions."""
        wire = self.connect()
        alone = Membership(f"{self.name} alone", "", -1, ())
        self.world.groups.append(alone.group)
        offset = 0
        while True:
            await asyncio.sleep(self.rng.uniform(0.005, 0.15))
            partition, offset = self.rng.randrange(PARTITIONS), offset + 1
            try:
                if self.rng.random() < 0.3:
                    await self.read_committed(wire, alone.group, alone.group, partition)
                await self.commit(wire, alone, partition, offset)
            except Unanswered:
                continue

    async def commit(self, wire: WireClient, member: Membership, partition: int, offset: int) -> None:
        self.commits_made += 1
        note = f"{self.name}/{self.commits_made}"
        self.world.note(CommitBegan(note, member.group, partition, offset))
        try:
            await wire.commit(member, TOPIC, partition, offset=offset, note=note)
        except Unanswered:
            self.world.note(CommitEnded(note, None))
            raise
        except Refused:
            self.world.note(CommitEnded(note, accepted=False))
            raise
        self.world.note(CommitEnded(note, accepted=True))


def run_seed(seed: int, *, lives: int = LIVES_PER_SEED) -> Outcome:
    """All lives of one seed. Raises what went wrong, with the seed in its notes."""

    async def scenario(sim: Simulation) -> Outcome:
        disk = SimDisk(sim.loop.chance("disk"), spend=sim.loop.spend)
        world = World(sim, disk, sim.loop.chance("broker"), sim.rng)
        for name in CLIENTS:
            world.start_client(name)
        weather = asyncio.create_task(world.weather())
        for _ in range(lives):
            await world.one_life()
            world.check()
            await asyncio.sleep(sim.rng.choice((0.0, 0.5, 3.0)))
        weather.cancel()
        await world.read_in_calm()
        world.outcome.counts = world.history.counts
        world.outcome.steps = sim.loop.steps
        world.outcome.trace_hash = sim.trace_hash()
        return world.outcome

    with Simulation(seed) as simulation:
        return simulation.run(scenario)
