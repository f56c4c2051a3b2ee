"""A queue on bad days: one broker or three, with publishers and consumers that rely on its leases and acknowledgements.

What befalls the brokers is replicated_world.py's, and so are its checks of them. The group's settings are drawn by the
seed. What clients were told is held against queue_history.py, once everything heals and the queue was emptied.
Driven by test_queues.py and by `make sim WORLD=queue`.
"""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from millpond.app import parts as app_parts
from millpond.broker.operations.dead_letters import PREFIX
from millpond.core.delivery.states import Outcome as Verdict
from millpond.core.metadata.group_configs import graveyard_of
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.records import Record, decode_batch, iter_batches
from millpond.testing.simulation import Simulation
from tests.broker.clusters import Machine, SimCluster
from tests.simulation import replicated_world
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.queue_clients import PARTITIONS, TOPIC, QueueClient
from tests.simulation.queue_history import InCalm, Letter, Message, Order, Place, QueueHistory, Rules, SessionEnded
from tests.simulation.replicated_world import ANY_SKIES, CLIENTS, CLOCK_RATES, CONFIGS, QUORUM, Outcome, Reports, Skies
from tests.simulation.wire_client import Refused, Unanswered

SECONDS = 25.0
LOCKS_MS = (1000, 2500)
PRIORITIES = ("off", "off", "strict", "weighted")
UNKNOWN_TOPIC = 3


@dataclass(frozen=True)
class Day:
    """What the seed has drawn."""

    size: int
    lock_ms: int
    attempts_max: int
    backoff_ms: int
    order: Order
    priority: str
    clocks_jump: bool

    @classmethod
    def of(cls, rng: random.Random) -> "Day":
        return cls(
            size=rng.choice((1, 3)),
            lock_ms=rng.choice(LOCKS_MS),
            attempts_max=rng.choice((2, 3, 5)),
            backoff_ms=rng.choice((0, 0, 700)),
            order=rng.choice((Order.OFFSET, Order.KEY)),
            priority=rng.choice(PRIORITIES),
            clocks_jump=rng.random() < 0.3,
        )

    def rules(self) -> Rules:
        return Rules(
            attempts_max=self.attempts_max,
            lock_ms=self.lock_ms,
            backoff_ms=self.backoff_ms,
            jitter=0.2,
            order=self.order,
            clocks_are_steady=self.size == 1 and not self.clocks_jump,
        )

    def configs(self) -> dict[str, str]:
        return {
            **CONFIGS,
            "share.coordinator.state.topic.num.partitions": "2",
            "group.share.record.lock.duration.ms": str(self.lock_ms),
            "group.share.delivery.count.limit": str(self.attempts_max),
            "millpond.retry.backoff.ms": str(self.backoff_ms),
            "millpond.retry.backoff.max.ms": "300000",
            "millpond.order": self.order.name.lower(),
            "millpond.priority": self.priority,
            "millpond.priority.max.age.ms": "3000",
        }


@dataclass
class QueueWorld(replicated_world.World):
    day: Day = field(default_factory=lambda: Day.of(random.Random(0)))
    processes: dict[str, str] = field(default_factory=dict)

    # Clients

    def queue_client(self, name: str) -> QueueClient:
        self.programs += 1
        process = f"{name}.{self.programs}"
        self.processes[name] = process
        return QueueClient(
            process,
            list(self.cluster.peers.values()),
            random.Random(self.rng.getrandbits(64)),
            note=self.note,
            guard=self.guard,
            clock=lambda: (self.sim.loop.true_time(), self.sim.clock.wall_ms()),
            topic_id=self.topic_id,
        )

    def topic_id(self) -> bytes | None:
        newest = self.newest_image()
        topic = newest.topics.get(TOPIC) if newest is not None else None
        return topic.topic_id if topic is not None else None

    def start_client(self, name: str) -> None:
        self.sim.host(name).spawn(self.guard(self.queue_client(name).run()))

    def client_ended(self, name: str, _: object) -> None:
        self.note(SessionEnded(self.processes[name], self.sim.loop.true_time()))

    # Weather, also for one broker alone

    def part(self, kind: str, one: str, client: str) -> None:
        if len(self.cluster.machines) > 1 or kind == "client":
            super().part(kind, one, client)

    def trouble(self, kind: str, one: Machine, client: str) -> None:
        if kind == "blackout" and len(self.cluster.machines) == 1:
            one.host.cut_power()
        elif kind != "clock" or self.day.clocks_jump:
            super().trouble(kind, one, client)

    # The end

    async def read_everything(self) -> None:
        client = self.queue_client("reader")
        await client.ensure_topic()
        wire = client.connect()
        queue = self.history
        assert isinstance(queue, QueueHistory)
        log = await self.read_log(wire)
        while queue.unaccounted(log, letters := await self.read_letters(wire)):
            await self.empty(client)
        await asyncio.sleep(2 * self.day.lock_ms / 1000)  # what is not done would come again by now
        await self.empty(client)
        while self.unburied():  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.5)
        letters = await self.read_letters(wire)
        # What clients sent before they were killed may arrive even now, and die as well.
        late = await self.read_log(wire)
        log |= {each.place: late[each.place] for each in letters if each.place in late}
        wire.close()
        self.note(InCalm(log, letters))

    async def empty(self, client: QueueClient) -> None:
        """Accepts all there is now."""
        try:
            leaders = await client.leaders()
            for address in sorted(set(leaders.values())):
                consumer = client.consumer(address, [number for number, at in leaders.items() if at == address])
                try:
                    while await consumer.fetch(max_records=100, wait_ms=300):
                        await consumer.say(dict.fromkeys(list(consumer.held), Verdict.ACCEPT))
                finally:
                    consumer.hang_up()
        except Unanswered:
            await asyncio.sleep(0.2)

    def unburied(self) -> bool:
        nodes = [machine.broker.node for machine in self.cluster.up if machine.broker is not None]
        return any(queue.ledger.doomed_count for node in nodes for queue in node.queues)

    async def read_log(self, wire: ClusterClient) -> dict[Place, Message]:
        history = self.history
        assert isinstance(history, QueueHistory)
        log: dict[Place, Message] = {}
        for partition in range(PARTITIONS):
            for record in await self.read_records(wire, TOPIC, partition):
                assert record.value is not None
                log[partition, record.offset] = history.sent[record.value]
        return log

    async def read_letters(self, wire: ClusterClient) -> tuple[Letter, ...]:
        letters = []
        for partition in range(PARTITIONS):
            for record in await self.read_records(wire, graveyard_of(TOPIC), partition):
                told = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in record.headers}
                place = int(told["partition"]), int(told["offset"])
                letters.append(Letter(place, record.value, int(told["attempts"]), told["error"]))
        return tuple(letters)

    async def read_records(self, wire: ClusterClient, topic: str, partition: int) -> list[Record]:
        newest = self.newest_image()
        if newest is None or topic not in newest.topics:
            return []
        while True:
            try:
                end = await wire.end_offset(topic, partition)
                records: list[Record] = []
                while len(records) < end:
                    part = FetchPartition(partition=partition, fetch_offset=len(records), partition_max_bytes=1 << 20)
                    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[part])])
                    at = await wire.wire_to(topic, partition)
                    data = (await at.ask(request)).responses[0].partitions[0].records or b""
                    found = [each for position, _ in iter_batches(data) for each in decode_batch(data, position)]
                    records += [each for each in found if each.offset >= len(records)]
                return records
            except (Unanswered, Refused):
                wire.forget(topic, partition)
                await asyncio.sleep(0.2)


def run_seed(
    seed: int, *, seconds: float = SECONDS, skies: Skies = ANY_SKIES, given: Mapping[str, Any] | None = None
) -> Outcome:
    """Raises what went wrong, with the seed in its notes."""

    async def scenario(sim: Simulation) -> Outcome:
        day = replace(Day.of(sim.loop.chance("day")), **(given or {}))
        cluster = SimCluster(sim, day.size, configs=day.configs())
        cluster.failures = Reports()
        history: Any = QueueHistory(day.rules())
        world = QueueWorld(sim, cluster, sim.rng, history=history, day=day, skies=skies)
        world.outcome.size = day.size
        for machine in cluster.machines.values():
            sim.loop.clock_rates[machine.name] = sim.rng.choice(CLOCK_RATES)
            machine.host.on_down(partial(world.fates.__setitem__, machine.name))
        lives = [sim.loop.create_task(world.guard(world.live(machine))) for machine in cluster.machines.values()]
        for name in CLIENTS:
            sim.host(name).on_down(partial(world.client_ended, name))
            world.start_client(name)
        programs: list[Coroutine[Any, Any, None]] = [world.weather()]
        tasks = [sim.loop.create_task(world.guard(each)) for each in programs]
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            world.check()
        for task in tasks:
            task.cancel()
        await world.heal(lives)
        world.outcome.counts = dict(history.counts)
        world.outcome.elections = len(world.leaders)
        world.outcome.steps = sim.loop.steps
        world.outcome.trace_hash = sim.trace_hash()
        return world.outcome

    with patch.object(app_parts, "quorum_settings", lambda configs: QUORUM), Simulation(seed) as simulation:
        try:
            return simulation.run(scenario)
        except Exception as error:
            error.add_note(f"replay with: make sim WORLD=queue SEED={seed}")
            raise
