"""The clients of a simulated cluster: they produce with and without idempotence, read, and consume in a group.

They never stop, follow leaders and coordinators wherever those go, and note what they were told, and only that.
Driven by replicated_world.py.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from millpond.model.ids import TimestampMs
from millpond.protocol.records import encode_values
from tests.simulation.broker_history import (
    Acknowledged,
    Asked,
    Assigned,
    CommitBegan,
    CommitEnded,
    OffsetAsked,
    OffsetRead,
    ProducerNamed,
    Read,
    Seeked,
    Sent,
)
from tests.simulation.cluster_client import Address, ClusterClient
from tests.simulation.pipelined_producer import PipelinedProducer
from tests.simulation.replicated_history import AcknowledgedByLeader
from tests.simulation.wire_client import Membership, Refused, Unanswered

TOPICS = {"orders": (2, 2), "events": (2, 1)}
"""Partitions, and min.insync.replicas."""
PLACES = (("orders", 0), ("orders", 1), ("events", 0), ("events", 1))
"""The partitions of all topics; a history knows them by their place in this row."""
GROUP = "readers"
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
JOIN_AGAIN = (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS)
TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR = 36, 38


class Client:
    """One process on a client's host: a few programs side by side, each with connections of its own."""

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[Address],
        rng: random.Random,
        *,
        note: Callable[[Any], None],
        guard: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
        wall_ms: Callable[[], int],
        epoch_min: Callable[[int], int],
        groups: list[str],
        insync_min: int,
    ) -> None:
        """`insync_min` is the least for every topic, whatever its own is. `epoch_min` is a leader epoch of a partition
        that no leader is behind any more."""
        self.name = name
        self.bootstrap = bootstrap
        self.rng = rng
        self.note = note
        self.guard = guard
        self.wall_ms = wall_ms
        self.epoch_min = epoch_min
        self.groups = groups
        self.insync_min = insync_min
        self.values_made = 0
        self.commits_made = 0

    async def run(self) -> None:
        await self.ensure_topics()
        async with asyncio.TaskGroup() as programs:
            for program in (self.produce, self.produce_plainly, self.consume, self.audit, self.track):
                programs.create_task(self.guard(program()))

    def connect(self) -> ClusterClient:
        return ClusterClient(self.bootstrap, client_id=self.name, rng=self.rng)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.02, 0.8))

    async def ensure_topics(self) -> None:
        wire = self.connect()
        for topic, (partitions, insync_min) in TOPICS.items():
            configs = {"segment.bytes": "4000", "min.insync.replicas": str(max(insync_min, self.insync_min))}
            code = -1
            while code not in (0, TOPIC_ALREADY_EXISTS):
                try:
                    code = await wire.create_topic(topic, partitions=partitions, configs=configs, replicas=3)
                except Unanswered:
                    await self.pause()
                assert code in (-1, 0, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR), f"creating gave {code}"
                if code == INVALID_REPLICATION_FACTOR:  # not all brokers are there yet
                    await self.pause()
        wire.close()

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
            self.note(ProducerNamed(given))
            producer = PipelinedProducer(wire, given, PLACES, self.rng, note=self.note, pause_seconds=0.3)
            for _ in range(self.rng.randrange(1, 6)):
                await producer.send_all(self.work())
                await asyncio.sleep(self.rng.uniform(0.1, 3.0))

    def work(self) -> dict[int, list[tuple[int, list[bytes]]]]:
        """Batches for some places."""
        places = self.rng.sample(range(len(PLACES)), self.rng.randrange(1, len(PLACES)))
        return {place: [(self.wall_ms(), self.values()) for _ in range(self.rng.randrange(1, 8))] for place in places}

    async def produce_plainly(self) -> None:
        """Without an id, and so without a second try; some are content with the leader's word."""
        wire = self.connect()
        while True:
            await self.pause()
            place, values = self.rng.randrange(len(PLACES)), self.values()
            acks = self.rng.choice((-1, -1, 1))
            batch = encode_values(values, timestamp=TimestampMs(self.wall_ms()))
            epoch_min = self.epoch_min(place)
            self.note(Sent(place, tuple(values), is_idempotent=False))
            try:
                base = await wire.produce(*PLACES[place], batch, acks=acks)
            except Unanswered:
                continue
            if acks == 1:
                self.note(AcknowledgedByLeader(place, base, tuple(values), epoch_min))
            else:
                self.note(Acknowledged(f"{self.name} plain", place, base, tuple(values)))

    def values(self) -> list[bytes]:
        first = self.values_made
        self.values_made += self.rng.randrange(1, 4)
        filling = b"." * self.rng.choice((0, 10, 300))
        return [b"%s/%d%s" % (self.name.encode(), number, filling) for number in range(first, self.values_made)]

    # Readers

    async def audit(self) -> None:
        """Reads partitions to their end, again and again; most times from where it was."""
        wire = self.connect()
        reader = f"{self.name} audit"
        positions = [0] * len(PLACES)
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 2.5))
            place = self.rng.randrange(len(PLACES))
            if self.rng.random() < 0.1:
                positions[place] = 0
            self.note(Seeked(reader, place, positions[place]))
            try:
                self.note(Asked(reader, place))
                end = await wire.end_offset(*PLACES[place])
                self.note(Read(reader, place, (), max(end, positions[place])))
                while positions[place] < end:
                    positions[place] = await self.fetch(wire, reader, place, positions[place])
                await self.read_committed(wire, reader, GROUP, self.rng.randrange(2))
            except Unanswered:
                continue

    async def fetch(self, wire: ClusterClient, reader: str, place: int, start: int) -> int:
        """Returns where to go on."""
        bytes_max, wait_ms = self.rng.choice((1, 4000, 40_000)), self.rng.randrange(0, 300)
        found = await wire.fetch(*PLACES[place], start=start, bytes_max=bytes_max, wait_ms=wait_ms)
        self.note(Read(reader, place, found.records, max(found.end, start)))
        return start + len(found.records)

    async def read_committed(self, wire: ClusterClient, reader: str, group: str, place: int) -> int:
        self.note(OffsetAsked(reader))
        offset, note = await wire.committed(group, *PLACES[place])
        self.note(OffsetRead(reader, group, place, offset, note))
        return offset

    # Groups

    async def consume(self) -> None:
        """The group reads the first topic, whose partitions have the same numbers as their places."""
        wire = self.connect()
        topic, partitions = PLACES[0][0], tuple(range(TOPICS[PLACES[0][0]][0]))
        member_id = ""
        while True:
            await self.pause()
            try:
                joined = await wire.join(GROUP, topic, member_id)
                member_id = joined.member_id
                member = await wire.sync(GROUP, topic, joined, partitions)
                self.note(Assigned(GROUP, member.generation, member.member_id, member.partitions))
                await self.own(wire, member)
                member_id = ""
            except Unanswered:
                continue
            except Refused as refusal:
                if refusal.code not in JOIN_AGAIN:
                    raise
                if refusal.code == UNKNOWN_MEMBER_ID:
                    member_id = ""

    async def own(self, wire: ClusterClient, member: Membership) -> None:
        """Reads what was assigned, until a refusal says that it is another's, or enough is enough."""
        reader = f"{member.member_id} in {member.generation}"
        positions: dict[int, int] = {}
        while self.rng.random() > 0.02:
            await asyncio.sleep(self.rng.uniform(0.1, 0.8))
            try:
                await wire.heartbeat(member)
                for place in member.partitions:
                    if place not in positions:
                        start = max(0, await self.read_committed(wire, reader, GROUP, place))
                        self.note(Seeked(reader, place, start))
                        positions[place] = start
                    positions[place] = await self.fetch(wire, reader, place, positions[place])
                    if self.rng.random() < 0.5:
                        await self.commit(wire, member, place, positions[place])
            except Unanswered:
                continue
        await wire.leave(member)

    async def track(self) -> None:
        """Commits for a group of its own that has no members, as a consumer does that assigns its own partitions."""
        wire = self.connect()
        alone = Membership(f"{self.name} alone", "", -1, ())
        self.groups.append(alone.group)
        offset = 0
        while True:
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            place, offset = self.rng.randrange(len(PLACES)), offset + 1
            try:
                if self.rng.random() < 0.4:
                    await self.read_committed(wire, alone.group, alone.group, place)
                await self.commit(wire, alone, place, offset)
            except Unanswered:
                continue

    async def commit(self, wire: ClusterClient, member: Membership, place: int, offset: int) -> None:
        self.commits_made += 1
        note = f"{self.name}/{self.commits_made}"
        self.note(CommitBegan(note, member.group, place, offset))
        try:
            await wire.commit(member, *PLACES[place], offset=offset, note=note)
        except Unanswered:
            self.note(CommitEnded(note, None))
            raise
        except Refused:
            self.note(CommitEnded(note, accepted=False))
            raise
        self.note(CommitEnded(note, accepted=True))
