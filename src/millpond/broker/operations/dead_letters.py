"""Messages that a queue group could not use, on their way to its dead-letter topic, exactly once.

Each goes as a batch of its own, in the name of an idempotent producer that the group's ledger keeps, under a number
that was kept before: so whoever leads next sends the same again, and what is there already is only answered once more.
A message that is gone from its log leaves a letter without a value, so that no number is missing.
Driven by broker/drivers/queue_partition.py.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.broker.operations.produce import Pending, begin, finish, time_is_up
from millpond.core.delivery.delay_headers import ASKING
from millpond.core.delivery.headers import TTL_MS
from millpond.core.delivery.runs import Run
from millpond.core.delivery.states import Doomed
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.group_configs import graveyard_of, group_config
from millpond.core.metadata.image import Topic
from millpond.model.errors import (
    DuplicateSequence,
    InvalidReplicationFactor,
    MillpondError,
    NotLeader,
    RequestError,
    TopicAlreadyExists,
)
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import KIB, MIB
from millpond.model.ports import Clock, Rng
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from millpond.protocol.records import NewRecord, Record, decode_batch, encode_batch, iter_batches

AT_A_TIME: Final = 100
TIMEOUT_MS: Final = 5_000
HEADER_BYTES_MAX: Final = 64 * KIB
"""As much more than the messages of their topics may letters have."""
PREFIX: Final = "millpond-dead-"
LETTER_TTL: Final = PREFIX + "ttl-ms"
SEQUENCES: Final = 1 << 31
DUPLICATE: Final = DuplicateSequence.kafka_code

AskLeader = Callable[[int, ProduceRequest], Awaitable[ProduceResponse | None]]


class DeadLetterTopics:
    def __init__(
        self,
        metadata: MetadataLog,
        partitions: PartitionTable,
        producer_ids: ProducerIds,
        *,
        static: Mapping[str, str],
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
        ask_leader: AskLeader | None = None,
    ) -> None:
        """`ask_leader` is None for a broker that is alone."""
        self._metadata = metadata
        self._partitions = partitions
        self._producer_ids = producer_ids
        self._static = static
        self._clock = clock
        self._rng = rng
        self._on_error = on_error
        self._ask_leader = ask_leader

    async def producer_id(self) -> int:
        return await self._producer_ids.take()

    async def send(self, group: str, partition: Partition, run: Run[Doomed], *, producer_id: int) -> int | None:
        last = min(run.last, run.first + AT_A_TIME - 1)
        try:
            topic = await self._topic(group, partition)
            number = partition.at.partition % len(topic.partitions)
            batches = [
                encode_batch(
                    [letter],
                    producer_id=ProducerId(producer_id),
                    producer_epoch=ProducerEpoch(0),
                    base_sequence=Sequence((offset + run.value.sequence_shift) % SEQUENCES),
                )
                for offset, letter in enumerate(self._letters(group, partition, run, last), start=run.first)
            ]
            await self._deliver(topic, number, batches)
        except MillpondError as error:
            # A broker that is down for a while is no bug: the topic is made when enough are up.
            if not error.retriable and not isinstance(error, InvalidReplicationFactor):
                self._on_error(error)
            return None
        return last

    # The letters

    def _letters(self, group: str, partition: Partition, run: Run[Doomed], last: int) -> Iterator[NewRecord]:
        found = _read(partition, run.first, last)
        for offset in range(run.first, last + 1):
            record = found.get(offset)
            why = run.value.reason if record is not None else f"{run.value.reason}; its log has it no more"
            told = {
                "origin": f"{partition.at.topic}/{partition.at.partition}/{offset}",
                "topic": partition.at.topic,
                "partition": str(partition.at.partition),
                "offset": str(offset),
                "attempts": str(run.value.attempts),
                "error": why,
                "group": group,
            }
            headers = (*_own(record), *((PREFIX + name, value.encode()) for name, value in told.items()))
            timestamp = TimestampMs(self._clock.wall_ms())
            yield NewRecord(
                None if record is None else record.value,
                key=None if record is None else record.key,
                timestamp=timestamp,
                headers=headers,
            )

    # Their topic

    async def _topic(self, group: str, partition: Partition) -> Topic:
        name = self.name(group, partition.at.topic)
        topic = self._metadata.image.topics.get(name)
        if topic is not None:
            return topic
        of = self._metadata.image.topics[partition.at.topic]
        new = NewTopic(
            name=name,
            partitions=len(of.partitions),
            replication_factor=len(of.partitions[0].replicas),
            configs=(("max.message.bytes", str(partition.config.batch_bytes_max + HEADER_BYTES_MAX)),),
        )
        decision = await self._metadata.decide(
            lambda image: create_topics(image, [new], static=self._static, rng=self._rng)
        )
        for answer in decision.answers:
            if isinstance(answer, Refused) and not isinstance(answer.error, TopicAlreadyExists):
                raise answer.error
        return self._metadata.image.topics[name]

    def name(self, group: str, topic: str) -> str:
        image = self._metadata.image
        return graveyard_of(topic, group_config(image, layers(image, self._static).merged(), group))

    # Sending

    async def _deliver(self, topic: Topic, number: int, batches: list[bytes]) -> None:
        leader = topic.partitions[number].leader
        here = self._partitions.named(topic.name, number)
        if here is not None and here.is_led_here:
            pending = self._begun_here(here, batches)
            for produced in await finish(pending, until=time_is_up(TIMEOUT_MS)):
                if produced.error is not None and not isinstance(produced.error, DuplicateSequence):
                    raise produced.error
            return
        for batch in batches:
            await self._forward(leader, topic, number, batch)

    def _begun_here(self, here: Partition, batches: list[bytes]) -> list[Pending]:
        """Up to the first that is refused: a topic that never heard of the producer would take the number of the next
        one for the first of all, and refuse this one for ever."""
        begun = []
        for batch in batches:
            begun.append(begin(here, bytearray(batch), now_ms=self._clock.wall_ms(), acks_all=True))
            if begun[-1].error is not None and not isinstance(begun[-1].error, DuplicateSequence):
                break
        return begun

    async def _forward(self, leader: int, topic: Topic, number: int, batch: bytes) -> None:
        data = TopicProduceData(
            topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=number, records=batch)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        answer = None if self._ask_leader is None or leader < 0 else await self._ask_leader(leader, request)
        codes = (
            []
            if answer is None
            else [part.error_code for each in answer.responses for part in each.partition_responses]
        )
        if codes not in ([0], [DUPLICATE]):
            raise NotLeader(f"{topic.name}-{number} did not take a letter: {codes or 'no answer'}")


def _own(record: Record | None) -> Iterator[tuple[str, bytes | None]]:
    """The message's headers, as far as a letter has them. It waits for nothing any more; and its life is over only
    where a redrive gives it back, so whoever reads letters gets all of them."""
    for name, value in () if record is None else record.headers:
        if name == TTL_MS:
            yield LETTER_TTL, value
        elif not name.startswith(PREFIX) and name not in ASKING:
            yield name, value


def _read(partition: Partition, first: int, last: int) -> dict[int, Record]:
    """As far as they are still there."""
    found: dict[int, Record] = {}
    at = max(first, partition.log.start_offset)
    while at <= last:
        part = partition.log.read(Offset(at), bytes_max=MIB)
        for position, header in iter_batches(part.data):
            if header.base_offset <= last and not header.is_control:
                with suppress(RequestError):  # what nobody can read leaves letters without a value, and holds up none
                    found |= {record.offset: record for record in decode_batch(part.data, position)}
        if part.next_offset <= at:
            break
        at = part.next_offset
    return found
