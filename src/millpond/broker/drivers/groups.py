"""The group coordinator of this broker: runs the groups' machines, keeps what they want kept, and wakes them in time.

What is kept goes to `__consumer_offsets`, which is made when a group is first asked for. Effects are performed in the
order in which the machines gave them: an answer goes out once everything before it is on disk.

Invariant: no client is told of an offset, a generation or an assignment that a restart could forget. Where the log
refuses to keep something, the machines are ahead of it: everybody is told, and they are restored from what is kept.
Driven by the front doors through `ask`, by the metadata log through `follow`, and by timers.
"""

import asyncio
import itertools
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer_events import Topic, TopicsChanged
from millpond.core.groups.effects import Effect, Instant, Noted, Persist, Reply, Token
from millpond.core.groups.offsets_format import decode, encode
from millpond.core.groups.records import Record
from millpond.core.groups.registry import ForGroup, GroupRegistry
from millpond.core.groups.requests import Request
from millpond.core.groups.settings import GroupSettings
from millpond.core.metadata.controller import auto_create
from millpond.core.metadata.image import Image
from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.model.errors import DiskFailed, StorageError
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import MIB
from millpond.model.ports import Clock, Rng
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches
from millpond.storage.log import Appended, Log
from millpond.telemetry.groups import GroupFacts


class _Keeping(NamedTuple):
    partition: Partition
    appended: Appended


class GroupCoordinator:
    def __init__(
        self,
        metadata: MetadataLog,
        partitions: PartitionTable,
        *,
        static: Mapping[str, str],
        clock: Clock,
        rng: Rng,
        settings: GroupSettings,
    ) -> None:
        """Blocks: reads what is kept of groups."""
        self._metadata = metadata
        self._partitions = partitions
        self._static = static
        self._clock = clock
        self._rng = rng
        self._waiting: dict[Token, asyncio.Future[Any]] = {}
        self._tokens = map(Token, itertools.count(1))
        self._outbox: deque[_Keeping | Reply] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._settings = settings
        self.facts = GroupFacts()
        self._is_ahead = False
        """The machines have gone on from something that the log refused to keep."""
        self.registry: GroupRegistry
        self._restore()

    def _restore(self) -> None:
        self._is_ahead = False
        self.registry = GroupRegistry(self._settings, self._rng, now=self._now())
        records = [record for partition in self._kept_in() for record in _records(partition.log)]
        self._perform(self.registry.restore(records, _topics(self._metadata.image), now=self._now()))

    def ask(self, group: str, make: Callable[[Token], Request]) -> Awaitable[Any]:
        """The answer to a request, which takes effect at once unless there is nowhere to keep it yet."""
        if CONSUMER_OFFSETS in self._metadata.image.topics:
            return self._ask(group, make)
        return self._ask_later(group, make)

    async def _ask_later(self, group: str, make: Callable[[Token], Request]) -> Any:  # noqa: ANN401 - as the machine says
        await self._metadata.decide(
            lambda image: auto_create(image, [CONSUMER_OFFSETS], static=self._static, rng=self._rng)
        )
        return await self._ask(group, make)

    def _ask(self, group: str, make: Callable[[Token], Request]) -> Awaitable[Any]:
        if self._is_ahead:
            self._restore()
        token = next(self._tokens)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        self._perform(self.registry.step(ForGroup(group, make(token)), now=self._now()))
        return answer

    def follow(self, before: Image, after: Image) -> None:
        if before.topics_by_id != after.topics_by_id:
            self._perform(self.registry.step(TopicsChanged(_topics(after)), now=self._now()))

    @property
    def is_restoring(self) -> bool:
        """The log refused to keep something; the next request has the machines made anew."""
        return self._is_ahead

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sender is not None:
            self._sender.cancel()

    # Effects

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist(record):
                    self._keep(record)
                case Reply():
                    if self._outbox:
                        self._outbox.append(effect)
                    else:
                        self._send(effect)
                case Noted(fact):
                    self.facts.note(fact)
        if self._outbox and self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())
        self._set_timer()

    def _keep(self, record: Record) -> None:
        if self._is_ahead:
            return
        key, value = encode(record)
        stamp = TimestampMs(self._clock.wall_ms())
        try:
            partition = self._partition_of(record.group)
            appended = partition.append(bytearray(encode_batch([NewRecord(value, key=key, timestamp=stamp)])))
        except StorageError as error:
            self._fail(error)
            return
        self._outbox.append(_Keeping(partition, appended))

    async def _send_all(self) -> None:
        try:
            while self._outbox:
                each = self._outbox[0]
                if isinstance(each, _Keeping):
                    await each.partition.wait_visible(each.appended)
                else:
                    self._send(each)
                if self._outbox:  # a failure empties it
                    self._outbox.popleft()
        except StorageError as error:
            self._fail(error)
        finally:
            self._sender = None

    def _send(self, reply: Reply) -> None:
        answer = self._waiting.pop(reply.to, None)  # none where a failure has answered it
        if answer is not None and not answer.done():
            answer.set_result(reply.result)

    def _fail(self, error: StorageError) -> None:
        """Everybody who waits is told, and the machines are made anew from the log when next asked."""
        self._is_ahead = True
        self._outbox.clear()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()

    # Time

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.registry.next_deadline
        if due is not None and not self._is_ahead:
            wait_seconds = max(0, due - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self.registry.step(Tick(), now=self._now()))

    def _partition_of(self, group: str) -> Partition:
        topic = self._metadata.image.topics[CONSUMER_OFFSETS]
        number = _hash(group) % len(topic.partitions)
        partition = self._partitions.named(CONSUMER_OFFSETS, number)
        if partition is None:
            raise DiskFailed(
                f"{CONSUMER_OFFSETS}-{number}, which keeps group {group!r}, is not open; see the broker's log"
            )
        return partition

    def _kept_in(self) -> list[Partition]:
        topic = self._metadata.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            return []
        found = [self._partitions.named(CONSUMER_OFFSETS, number) for number in range(len(topic.partitions))]
        return [each for each in found if each is not None]


def _hash(text: str) -> int:
    """As Kafka spreads groups over partitions: Java's string hash, without its sign."""
    value = 0
    for (unit,) in struct.iter_unpack("!H", text.encode("utf-16-be", "surrogatepass")):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


def _topics(image: Image) -> dict[str, Topic]:
    return {name: Topic(topic.topic_id, len(topic.partitions)) for name, topic in image.topics.items()}


def _records(log: Log) -> list[Record]:
    records = []
    at = log.start_offset
    while at < log.next_offset:
        part = log.read(Offset(at), bytes_max=MIB)
        for position, _ in iter_batches(part.data):
            for record in decode_batch(part.data, position):
                found = decode(record.key, record.value) if record.key is not None else None
                if found is not None:
                    records.append(found)
        at = part.next_offset
    return records
