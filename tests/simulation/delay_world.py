"""A cluster whose topic delays messages, on bad days: lives that end, parted networks, pauses, clocks that jump.

Brokers are `Broker.start`, unmodified. Clients send messages that are due at a moment, again until they are told an
offset; some are cancelled, some put off. What consumers could see is looked at all the while, from outside, and held
against what clients were told:

    NeverEarly      a message is delivered when it is due by the clock of the broker that delivers it, or later
    NeverTwice      whatever was sent, is delivered once at most
    NeverLost       and once, if its producer was told an offset, and nobody cancelled it
    CancelledIsGone after a cancellation was answered, it is not delivered
    SaysItsOffset   a delivered message names the offset that its producer was told; one that was sent for now has it

Driven by test_delays.py.
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from errno import ENOSPC
from typing import Any
from unittest.mock import patch

from millpond.broker.drivers import delays as driver
from millpond.broker.drivers.partition import Partition
from millpond.core.delivery import delay_rows
from millpond.core.delivery.delay_headers import DELIVER_AT, MESSAGE_ID
from millpond.core.delivery.parked_format import Carried, fact_of
from millpond.model.errors import MessageNotFound, MillpondError, StorageError
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.records import NewRecord, Record, decode_batch, encode_batch, iter_batches
from millpond.testing.disk import PowerCut
from millpond.testing.hosts import HostDown
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation
from tests.broker.clusters import Machine, SimCluster
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.history import Violation
from tests.simulation.wire_client import Unanswered

TOPIC = "later"
AT = TopicPartition(TOPIC, 0)
SECONDS = 60.0
DELAY_MS_MAX = 25_000
CALM_SECONDS_MAX = 240.0
SIZE = 3
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "700",
    "replica.lag.time.max.ms": "2500",
}
CHECKPOINT_BYTES, CHUNK_ROWS = 4_000, 4
"""So small that checkpoints are frequent, and of several parts, with other facts between them."""
CLEAR = Conditions()
STORMY = Conditions(delay_ms_max=60.0, tail_chance=0.05, tail_ms_max=2500.0, loss_chance=0.05, fragment_chance=0.5)
WEATHER = ("isolate", "pause", "storm", "clock", "clocks", "clocks", "slow disk", "leader")
WEATHER_OF_MIXED = (*WEATHER, *["full disk"] * 8)
TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR = 36, 38


@dataclass
class Sent:
    """One message, as its producer knows it."""

    value: bytes
    due: int
    """0 where it says nothing of that."""
    offset: int | None = None
    """As it was told."""
    is_cancelled: bool | None = False
    """None where nobody knows."""


@dataclass
class Outcome:
    sent: int = 0
    delivered: int = 0
    cancelled: int = 0
    postponed: int = 0
    carried: int = 0
    lives: int = 0
    epochs: set[int] = field(default_factory=set)


class World:
    def __init__(self, sim: Simulation, *, retention_ms: int | None, is_mixed: bool) -> None:
        self.sim = sim
        self.is_mixed = is_mixed
        """Whether batches hold messages for now as well."""
        self.rng = sim.rng
        self.cluster = SimCluster(sim, SIZE, configs=CONFIGS)
        self.retention_ms = retention_ms
        self.sent: dict[bytes, Sent] = {}
        self.delivered: dict[bytes, Record] = {}
        self.position = 0
        self.has_missed_some = False
        """Retention was faster than the look from outside."""
        self.outcome = Outcome()
        self.failures: list[BaseException] = []
        self.is_calm = False

    async def guard(self, program: Coroutine[Any, Any, None]) -> None:
        try:
            await program
        except Exception as error:
            self.failures.append(error)

    def check(self) -> None:
        for error in (*self.failures, *self.cluster.failures):
            if not isinstance(error, StorageError):
                raise error

    # What consumers could see

    async def observe(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.look()

    def leader(self) -> tuple[Machine, Partition] | None:
        for machine in self.cluster.up:
            assert machine.broker is not None
            partition = machine.broker.node.partitions.named(*AT)
            if partition is not None and partition.leading is not None and machine.holds_lease():
                return machine, partition
        return None

    def look(self) -> None:
        found = self.leader()
        if found is None or found[1].log.is_closed:
            return
        partition = found[1]
        self.outcome.epochs.add(partition.leader_epoch)
        if self.position < partition.log.start_offset:
            self.position = partition.log.start_offset
            self.has_missed_some = True
        while self.position < partition.high_watermark:
            part = partition.read(Offset(self.position), bytes_max=1 << 20)
            for position, header in iter_batches(part.data):
                if isinstance(fact_of(part.data, position, header), Carried):
                    self.outcome.carried += 1
                if not header.is_control:
                    for record in decode_batch(part.data, position):
                        self.see(record)
            self.position = part.next_offset

    def see(self, record: Record) -> None:
        value = record.value or b""
        sent = self.sent[value]
        if value in self.delivered:
            raise Violation(f"NeverTwice: {value!r} at {self.delivered[value].offset} and {record.offset}")
        if record.timestamp < sent.due:
            raise Violation(f"NeverEarly: {sent} was delivered at {record.timestamp}")
        if sent.is_cancelled:
            raise Violation(f"CancelledIsGone: {sent} was delivered at {record.offset}")
        named = dict(record.headers)[MESSAGE_ID] if sent.due else b"%s/0/%d" % (TOPIC.encode(), record.offset)
        if sent.offset is not None and named != b"%s/0/%d" % (TOPIC.encode(), sent.offset):
            raise Violation(f"SaysItsOffset: {sent} says {named!r}")
        self.delivered[value] = record

    # Clients

    async def create_topic(self) -> None:
        wire = ClusterClient(list(self.cluster.peers.values()), client_id="operator", rng=self.rng)
        configs = {"millpond.delay": "on", "segment.bytes": "3000", "min.insync.replicas": "2"}
        if self.retention_ms is not None:
            configs["retention.ms"] = str(self.retention_ms)
        code = -1
        while code not in (0, TOPIC_ALREADY_EXISTS):
            await asyncio.sleep(0.3)
            try:
                code = await wire.create_topic(TOPIC, partitions=1, configs=configs, replicas=SIZE)
            except Unanswered:
                continue
            assert code in (0, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR), code
        wire.close()

    async def produce(self, name: str) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        wire = ClusterClient(list(self.cluster.peers.values()), client_id=name, rng=rng)
        producer_id, sequence, number = -1, 0, 0
        while not self.is_calm:
            await asyncio.sleep(rng.uniform(0.05, 1.5))
            while producer_id < 0:
                try:
                    producer_id = await wire.producer_id()
                except Unanswered:
                    await asyncio.sleep(0.5)
            messages = []
            for _ in range(rng.randrange(1, 4)):
                number += 1
                due = self.sim.clock.wall_ms() + rng.choice((0, rng.randrange(2_000), rng.randrange(DELAY_MS_MAX)))
                is_for_now = self.is_mixed and rng.random() < 0.5
                messages.append(Sent(b"%s/%d" % (name.encode(), number), 0 if is_for_now else due))
            batch = encode_batch(
                [self.record(each, rng) for each in messages],
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                base_sequence=SequenceNumber(sequence),
            )
            self.sent |= {each.value: each for each in messages}
            base = await self.send(wire, batch, rng)
            sequence += len(messages)
            for delta, each in enumerate(messages):
                each.offset = base + delta

    def record(self, sent: Sent, rng: random.Random) -> NewRecord:
        at = TimestampMs(self.sim.clock.wall_ms())
        filling = b"." * rng.choice((0, 200))
        asking = ((DELIVER_AT, b"%d" % sent.due),) if sent.due else ()
        return NewRecord(sent.value, key=b"k", timestamp=at, headers=(*asking, ("filling", filling)))

    async def send(self, wire: ClusterClient, batch: bytes, rng: random.Random) -> int:
        """However often it takes."""
        while True:
            try:
                return await wire.produce(*AT, batch)
            except Unanswered:
                await asyncio.sleep(rng.uniform(0.05, 0.8))

    async def order(self) -> None:
        """Cancels and postpones, by whoever leads."""
        while not self.is_calm:
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            waiting = [each for each in self.sent.values() if each.offset is not None and each.is_cancelled is False]
            waiting = [each for each in waiting if each.due and each.value not in self.delivered]
            found = self.leader()
            if not waiting or found is None:
                continue
            sent, machine = self.rng.choice(waiting), found[0]
            assert machine.broker is not None
            delays = machine.broker.node.delays.of(*AT)
            if delays is None:
                continue
            assert sent.offset is not None
            postpones = self.rng.random() < 0.4
            until = self.sim.loop.time() + 5
            due = self.sim.clock.wall_ms() + self.rng.randrange(DELAY_MS_MAX)
            if postpones:
                sent.due = min(sent.due, due)  # until it is sure which holds
                order = delays.reschedule(sent.offset, due, until=until)
            else:
                sent.is_cancelled = None
                order = delays.cancel(sent.offset, until=until)
            try:
                async with asyncio.timeout(8):
                    await machine.host.run(order)
            except MessageNotFound:
                sent.is_cancelled = False  # delivered already
            except (MillpondError, HostDown, PowerCut, TimeoutError):
                pass  # nobody knows
            else:
                sent.due = due if postpones else sent.due
                self.outcome.cancelled += not postpones
                self.outcome.postponed += postpones
                sent.is_cancelled = not postpones
                if self.rng.random() < 0.1:
                    machine.host.cut_power()  # what was answered must outlive it

    # Brokers and weather

    async def live(self, machine: Machine) -> None:
        while True:
            try:
                if machine.broker is None:
                    await machine.start(upkeep_seconds=2)
                seconds = 1e9 if self.is_calm else self.rng.uniform(2, 25)
                until = self.sim.loop.time() + seconds
                while machine.host.alive and self.sim.loop.time() < until and not self.is_calm:
                    await machine.host.run(asyncio.sleep(0.5))
                if self.is_calm and machine.host.alive:
                    return
                if machine.host.alive and self.rng.random() < 0.3:
                    await machine.stop()
            except (HostDown, PowerCut, StorageError):
                pass
            self.outcome.lives += 1
            if machine.broker is not None or machine.host.alive:
                machine.kill() if self.rng.random() < 0.3 else machine.cut_power()
            await asyncio.sleep(self.rng.choice((0.0, 0.5, 3.0)))

    async def weather(self) -> None:
        rng, names = self.rng, [each.name for each in self.cluster.machines.values()]
        while True:
            await asyncio.sleep(rng.uniform(0.5, 4))
            one = rng.choice(list(self.cluster.machines.values()))
            match rng.choice(WEATHER_OF_MIXED if self.is_mixed else WEATHER):
                case "isolate":
                    self.sim.network.partition([one.name], [each for each in names if each != one.name])
                case "pause":
                    one.host.pause()
                case "storm":
                    self.sim.network.set_conditions(STORMY)
                case "clock":
                    self.sim.clock.set_skew(one.name, ms=rng.choice((0, rng.randrange(-20_000, 20_000))))
                case "clocks":
                    for name in names:
                        self.sim.clock.set_skew(name, ms=rng.choice((0, 5_000, 15_000)))
                case "slow disk":
                    one.disk.slow_sync(0.1, 1.0)
                case "full disk":
                    self.fill_disk(after=rng.randrange(4))
                case "leader":
                    found = self.leader()
                    if found is not None:
                        found[0].host.cut_power()
            await asyncio.sleep(rng.choice((0.5, 2.0, 6.0)))
            self.clear_up()

    def fill_disk(self, *, after: int) -> None:
        """For one write, which may be the second of the two that a mixed batch takes."""
        found = self.leader()
        if found is not None:
            found[0].disk.fail("write", error=ENOSPC, path_pattern=f"*/{TOPIC}-*.log", after=after)

    def clear_up(self) -> None:
        self.sim.network.heal()
        self.sim.network.set_conditions(CLEAR)
        for machine in self.cluster.machines.values():
            machine.host.resume()
            machine.disk.slow_sync(0.0, 0.01)

    # The end

    async def heal(self, programs: list["asyncio.Task[None]"]) -> None:
        self.is_calm = True
        self.clear_up()
        for machine in self.cluster.machines.values():
            self.sim.clock.set_skew(machine.name, ms=0)
        missing: list[Sent] = []
        try:
            async with asyncio.timeout(CALM_SECONDS_MAX):
                for program in programs:
                    await program
                self.check()
                await asyncio.sleep(DELAY_MS_MAX / 1000 + 5)
                while missing := self.missing():
                    self.look()
                    self.check()
                    await asyncio.sleep(0.5)
        except TimeoutError:
            if not self.has_missed_some:
                raise Violation(
                    f"NeverLost: {missing[:3]} of {len(missing)} are not delivered; {self.state()}"
                ) from None
        await asyncio.sleep(5)
        self.look()

    def missing(self) -> list[Sent]:
        return [
            each
            for each in self.sent.values()
            if each.offset is not None and each.is_cancelled is False and each.value not in self.delivered
        ]

    def state(self) -> str:
        found = self.leader()
        if found is None or found[0].broker is None:
            return "nobody leads"
        delays = found[0].broker.node.delays.of(*AT)
        return f"{found[1]}, {delays and delays.is_loaded}, {delays and len(delays)} wait"


def run_mixed_seed(seed: int, *, seconds: float = SECONDS) -> Outcome:
    """Producers send messages for now and for later, as it comes, in one batch."""
    return run_seed(seed, seconds=seconds, is_mixed=True)


def run_seed(seed: int, *, seconds: float = SECONDS, is_mixed: bool = False) -> Outcome:
    async def scenario(sim: Simulation) -> Outcome:
        world = World(sim, retention_ms=6_000 if seed % 2 else None, is_mixed=is_mixed)
        loop, cluster = sim.loop, world.cluster
        for machine in cluster.machines.values():
            machine.disk.slow_sync(0.0, 0.01)
        lives = [loop.create_task(world.guard(world.live(machine))) for machine in cluster.machines.values()]
        await sim.host("operator").run(world.create_topic())
        watching = loop.create_task(world.guard(world.observe()))
        clients = [
            loop.create_task(world.guard(sim.host(name).run(world.produce(name)))) for name in ("one", "two", "three")
        ]
        clients.append(loop.create_task(world.guard(world.order())))
        weather = loop.create_task(world.guard(world.weather()))
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            world.check()
        weather.cancel()
        await world.heal([*lives, *clients])
        watching.cancel()
        world.check()
        world.outcome.sent = sum(each.offset is not None for each in world.sent.values())
        world.outcome.delivered = len(world.delivered)
        return world.outcome

    often = (
        patch.multiple(driver, CHECKPOINT_BYTES=CHECKPOINT_BYTES),
        patch.object(delay_rows, "CHUNK_ROWS", CHUNK_ROWS),
    )
    with Simulation(seed) as simulation, often[0], often[1]:
        try:
            return simulation.run(scenario)
        except Exception as error:
            error.add_note(f"seed {seed} of tests/simulation/delay_world.py")
            raise
