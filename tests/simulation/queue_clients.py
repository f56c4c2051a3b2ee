"""Publishers and consumers of a simulated queue. They note what they were told, and only that.

Consumers speak ShareFetch and ShareAcknowledge: they accept, release, reject and renew, fall silent until their leases
run out, hang up, and close their sessions. Driven by queue_world.py.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.core.delivery.states import Outcome
from millpond.model.ids import ProducerEpoch, ProducerId, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.messages import incremental_alter_configs as configs
from millpond.protocol.messages import share_acknowledge as acknowledging
from millpond.protocol.messages import share_fetch as fetching
from millpond.protocol.records import NewRecord, Record, decode_batch, encode_batch, iter_batches
from tests.simulation.cluster_client import Address, ClusterClient
from tests.simulation.queue_history import (
    Acknowledged,
    Delivered,
    Event,
    FetchBegan,
    FetchEnded,
    Heard,
    Message,
    Place,
    Said,
    Sent,
    SessionEnded,
)
from tests.simulation.wire_client import Refused, Unanswered, WireClient

TOPIC = "orders"
PARTITIONS = 2
GROUP = "workers"
KEYS = (b"ann", b"ben", b"cid", None)
TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR = 36, 38
INVALID_RECORD_STATE = 121
GROUP_RESOURCE = 32
HABITS = ("careful", "careful", "careful", "silent", "picky", "hasty")
"""How a consumer treats what it gets."""


class QueueClient:
    """One process on a client's host: a publisher and two consumers, each with connections of its own."""

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[Address],
        rng: random.Random,
        *,
        note: Callable[[Event], None],
        guard: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
        clock: Callable[[], tuple[float, int]],
        topic_id: Callable[[], bytes | None],
    ) -> None:
        """`clock` tells true seconds, and milliseconds by the wall."""
        self.name = name
        self.bootstrap = bootstrap
        self.rng = rng
        self.note = note
        self.guard = guard
        self.clock = clock
        self.topic_id = topic_id
        self.values_made = 0
        self.sessions_made = 0

    async def run(self) -> None:
        await self.ensure_topic()
        async with asyncio.TaskGroup() as programs:
            for program in (self.publish, self.consume, self.consume, self.configure):
                programs.create_task(self.guard(program()))

    def connect(self) -> ClusterClient:
        return ClusterClient(self.bootstrap, client_id=self.name, rng=self.rng)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.02, 0.6))

    async def ensure_topic(self) -> None:
        wire, replicas = self.connect(), min(3, len(self.bootstrap))
        settings = {"segment.bytes": "4000", "min.insync.replicas": str(min(2, replicas))}
        code = -1
        while code not in (0, TOPIC_ALREADY_EXISTS):
            try:
                code = await wire.create_topic(TOPIC, partitions=PARTITIONS, configs=settings, replicas=replicas)
            except Unanswered:
                await self.pause()
            assert code in (-1, 0, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR), f"creating gave {code}"
            if code == INVALID_REPLICATION_FACTOR:
                await self.pause()
        wire.close()

    async def configure(self) -> None:
        """A setting that promises nothing, changed now and then: queues are then opened anew."""
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 15.0))
            value = str(self.rng.choice((3, 50)))
            item = configs.AlterableConfig(name="millpond.max.unacked.per.consumer", config_operation=0, value=value)
            group = configs.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[item])
            host, port = self.rng.choice(self.bootstrap)
            wire = WireClient(host=host, port=port, client_id=self.name, rng=self.rng)
            with contextlib.suppress(Unanswered):
                await wire.ask(configs.IncrementalAlterConfigsRequest(resources=[group]))
            wire.close()

    # Publishing

    async def publish(self) -> None:
        """With acks=all and a number on each batch, until it is answered; one batch of a partition at a time."""
        wire = self.connect()
        producer_id = -1
        while producer_id < 0:
            try:
                producer_id = await wire.producer_id()
            except Unanswered:
                await self.pause()
        numbers = [0] * PARTITIONS
        while True:
            await self.pause()
            partition = self.rng.randrange(PARTITIONS)
            messages = [self.message() for _ in range(self.rng.randrange(1, 4))]
            batch = encode_batch(
                [self.record(each) for each in messages],
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                base_sequence=SequenceNumber(numbers[partition]),
            )
            numbers[partition] += len(messages)
            self.note(Sent(partition, tuple(messages)))
            base = await self.send(wire, partition, batch)
            self.note(Acknowledged(partition, base, tuple(messages)))

    async def send(self, wire: ClusterClient, partition: int, batch: bytes) -> int:
        while True:
            try:
                return await wire.produce(TOPIC, partition, batch)
            except Unanswered:
                await asyncio.sleep(0.3)

    def message(self) -> Message:
        self.values_made += 1
        value = b"%s/%d" % (self.name.encode(), self.values_made)
        return Message(value, self.rng.choice(KEYS), expires=self.rng.random() < 0.05)

    def record(self, message: Message) -> NewRecord:
        headers: tuple[tuple[str, bytes | None], ...] = (
            (PRIORITY, self.rng.choice((b"high", b"normal", b"low", b"9", b"?"))),
        )
        if message.expires:
            headers += ((TTL_MS, b"800"),)
        stamp = TimestampMs(self.clock()[1])
        return NewRecord(message.value, key=message.key, timestamp=stamp, headers=headers)

    # Consuming

    async def consume(self) -> None:
        while True:
            await self.pause()
            try:
                leaders = await self.leaders()
            except Unanswered:
                continue
            if leaders and self.topic_id() is not None:
                address = self.rng.choice(sorted(set(leaders.values())))
                partitions = [number for number, leader in leaders.items() if leader == address]
                await self.consume_at(address, partitions)

    async def leaders(self) -> dict[int, Address]:
        host, port = self.rng.choice(self.bootstrap)
        wire = WireClient(host=host, port=port, client_id=self.name, rng=self.rng)
        try:
            return await wire.leaders(TOPIC)
        except Refused as refusal:
            raise Unanswered(str(refusal)) from refusal
        finally:
            wire.close()

    async def consume_at(self, address: Address, partitions: list[int]) -> None:
        consumer = self.consumer(address, partitions)
        try:
            for _ in range(self.rng.randrange(1, 25)):
                await self.work(consumer)
                if self.rng.random() < 0.1:
                    await self.pause()
            if self.rng.random() < 0.5:
                await consumer.close_session()
        except Unanswered:
            consumer.note_failure()
        consumer.hang_up()

    def consumer(self, address: Address, partitions: list[int]) -> "ShareConsumer":
        topic_id = self.topic_id()
        assert topic_id is not None
        self.sessions_made += 1
        wire = WireClient(host=address[0], port=address[1], client_id=self.name, rng=self.rng)
        session = f"{self.name}/{self.sessions_made}"
        return ShareConsumer(session, wire, topic_id, partitions, note=self.note, now=lambda: self.clock()[0])

    async def work(self, consumer: "ShareConsumer") -> None:
        habit = self.rng.choice(HABITS)
        await consumer.fetch(max_records=self.rng.choice((1, 5, 100)), wait_ms=self.rng.choice((0, 100, 300)))
        held = list(consumer.held)
        self.rng.shuffle(held)
        match habit:
            case "silent":
                await asyncio.sleep(self.rng.uniform(0.2, 4.0))
            case "careful" | "picky":
                chances = (70, 15, 5, 10) if habit == "careful" else (20, 50, 20, 10)
                outcomes = (Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.RENEW)
                for place in held:
                    if self.rng.random() < 0.1:
                        await self.pause()
                    await consumer.say({place: self.rng.choices(outcomes, chances)[0]})
            case "hasty":
                await consumer.say(dict.fromkeys(held, Outcome.ACCEPT))


class ShareConsumer:
    """One member with one session on one connection; whatever goes wrong ends both."""

    def __init__(
        self,
        session: str,
        wire: WireClient,
        topic_id: bytes,
        partitions: Sequence[int],
        *,
        note: Callable[[Event], None],
        now: Callable[[], float],
    ) -> None:
        self.session = session
        self._wire = wire
        self._topic_id = topic_id
        self._partitions = partitions
        self._note = note
        self._now = now
        self._epoch = 0
        self._whole_at = now()
        self.held: dict[Place, None] = {}

    async def fetch(self, *, max_records: int, wait_ms: int) -> int:
        """Returns how many messages came."""
        named = [fetching.FetchPartition(partition_index=each) for each in self._partitions if self._epoch == 0]
        request = fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.session,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            max_records=max_records,
            share_acquire_mode=max_records % 2,
            topics=[fetching.FetchTopic(topic_id=self._topic_id, partitions=named)] if named else [],
        )
        asked_at = self._now()
        self._note(FetchBegan(self.session))
        answer = await self._wire.ask(request)
        if answer.error_code:
            raise Unanswered(f"share fetch: {answer.error_code}")
        self._epoch += 1
        self._whole_at = self._now()
        came, is_whole = 0, True
        for part in (part for topic in answer.responses for part in topic.partitions):
            came += self._take(part, asked_at)
            is_whole = is_whole and not part.error_code
        if not is_whole:
            raise Unanswered("share fetch: an error for a partition")
        self._note(FetchEnded(self.session))
        return came

    def _take(self, part: fetching.PartitionData, asked_at: float) -> int:
        data = part.records
        found = [each for position, _ in iter_batches(data) for each in decode_batch(data, position)]
        records: dict[int, Record] = {each.offset: each for each in found}
        came = 0
        for run in part.acquired_records:
            for offset in range(run.first_offset, run.last_offset + 1):
                record, place = records[offset], (part.partition_index, offset)
                value = record.value or b""
                self._note(Delivered(self.session, place, value, record.key, run.delivery_count, asked_at, self._now()))
                self.held[place] = None
                came += 1
        return came

    async def say(self, verdicts: dict[Place, Outcome]) -> None:
        if not verdicts:
            return
        said_at = self._now()
        renews = Outcome.RENEW in verdicts.values()
        if renews and self._wire.version(acknowledging.ShareAcknowledgeRequest.api_key) < 2:
            return
        for place, outcome in verdicts.items():
            self._note(Said(self.session, place, outcome, said_at))
            if outcome is not Outcome.RENEW:
                self.held.pop(place, None)
        answer = await self._acknowledge(verdicts, self._epoch, renews=renews)
        self._epoch += 1
        self._whole_at = self._now()
        codes = {part.partition_index: part.error_code for topic in answer.responses for part in topic.partitions}
        for place, outcome in verdicts.items():
            if codes[place[0]] == 0:
                self._note(Heard(self.session, place, outcome, said_at, self._now()))
        if any(code not in (0, INVALID_RECORD_STATE) for code in codes.values()):
            raise Unanswered(f"share acknowledge: {codes}")

    async def _acknowledge(
        self, verdicts: dict[Place, Outcome], epoch: int, *, renews: bool = False
    ) -> acknowledging.ShareAcknowledgeResponse:
        parts: dict[int, list[acknowledging.AcknowledgementBatch]] = {}
        for (partition, offset), outcome in sorted(verdicts.items()):
            batch = acknowledging.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[int(outcome)]
            )
            parts.setdefault(partition, []).append(batch)
        named = [
            acknowledging.AcknowledgePartition(partition_index=each, acknowledgement_batches=batches)
            for each, batches in parts.items()
        ]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.session,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[acknowledging.AcknowledgeTopic(topic_id=self._topic_id, partitions=named)] if named else [],
        )
        answer: acknowledging.ShareAcknowledgeResponse = await self._wire.ask(request)
        if answer.error_code:
            raise Unanswered(f"share acknowledge: {answer.error_code}")
        return answer

    async def close_session(self) -> None:
        self._note(SessionEnded(self.session, self._now()))
        await self._acknowledge({}, -1)

    def note_failure(self) -> None:
        """Since when it may be over is known only by the last answer."""
        self._note(SessionEnded(self.session, self._whole_at))

    def hang_up(self) -> None:
        self._note(SessionEnded(self.session, self._now()))
        self._wire.close()
