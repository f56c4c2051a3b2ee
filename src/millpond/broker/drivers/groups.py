"""The group coordinator of this broker: one shard for each partition of `__consumer_offsets` that it leads.

The topic is made when a group is first asked for. A group belongs to the partition that its name's hash points to, and
is looked after by whichever broker leads that.
Driven by the front doors through `ask`, and by the metadata log through `follow`.
"""

import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from millpond.broker.drivers.group_configs import GroupConfigs
from millpond.broker.drivers.group_shard import GroupShard, Surroundings
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partitions import PartitionTable
from millpond.core.groups.consumer_events import Topic
from millpond.core.groups.descriptions import Description, GroupListing, GroupType
from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.lag import Lag, LogFacts
from millpond.core.groups.records import OffsetCommitted
from millpond.core.groups.requests import Request, refusal, refusal_for_now
from millpond.core.groups.settings import Pace, Paces
from millpond.core.metadata.controller import auto_create
from millpond.core.metadata.image import EMPTY, Image
from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.model.ids import TopicPartition

JUST_GONE_MS = 5_000
"""So long after a partition went, the groups' members will have learnt where it is: they heartbeat more often."""


class GroupCoordinator:
    def __init__(
        self, metadata: MetadataLog, partitions: PartitionTable, *, static: Mapping[str, str], shared: Surroundings
    ) -> None:
        """Blocks: reads what is kept of groups."""
        self._metadata = metadata
        self._partitions = partitions
        self._static = static
        self._shared = shared
        self._shards: dict[int, GroupShard] = {}
        self._gone_at_ms: dict[int, int] = {}
        """When partitions went that were led here."""
        self.configs = GroupConfigs(metadata, static=static)
        self.facts = shared.facts
        self.follow(EMPTY, metadata.image)

    def ask(self, group: str, make: Callable[[Token], Request]) -> Awaitable[Any]:
        """The answer to a request, which takes effect at once unless there is nowhere to keep it yet."""
        return self._ask(group, make) if self.has_place else self._ask_later(group, make)

    async def _ask_later(self, group: str, make: Callable[[Token], Request]) -> Any:  # noqa: ANN401 - as the machine says
        await self.make_place()
        return await self._ask(group, make)

    @property
    def has_place(self) -> bool:
        """Whether there is somewhere to keep groups."""
        return CONSUMER_OFFSETS in self._metadata.image.topics

    async def make_place(self) -> None:
        await self._metadata.decide(
            lambda image: auto_create(image, [CONSUMER_OFFSETS], static=self._static, rng=self._shared.rng)
        )

    def _ask(self, group: str, make: Callable[[Token], Request]) -> Awaitable[Any]:
        shard = self._shard_of(group)
        return shard.ask(group, make) if shard is not None else self._refuse(group, make)

    async def _refuse(self, group: str, make: Callable[[Token], Request]) -> Any:  # noqa: ANN401 - as the machine says
        number = self.partition_of(group)
        if number is not None and self._partitions.failure(CONSUMER_OFFSETS, number) is not None:
            return refusal(make(Token(0)), GroupError.COORDINATOR_NOT_AVAILABLE).result
        has_just_gone = number in self._gone_at_ms and self._now_ms() < self._gone_at_ms[number] + JUST_GONE_MS
        refuse = refusal_for_now if has_just_gone else refusal
        return refuse(make(Token(0)), GroupError.NOT_COORDINATOR).result

    def _now_ms(self) -> int:
        return self._shared.clock.monotonic_ms()

    def follow(self, before: Image, after: Image) -> None:
        """Shards come and go with the partitions that keep them."""
        self._close_lost()
        offsets = after.topics.get(CONSUMER_OFFSETS)
        for number in range(len(offsets.partitions) if offsets else 0):
            self._open(number, after)
        if before.topics_by_id != after.topics_by_id:
            topics = _topics(after)
            for shard in self._shards.values():
                shard.follow(topics)

    @property
    def is_restoring(self) -> bool:
        """Something was not kept; the next request has the machines made anew."""
        return any(shard.is_ahead for shard in self._shards.values())

    def let_go(self) -> None:
        """The broker stops: nobody waits for other members any more."""
        for shard in self._shards.values():
            shard.let_go()

    async def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
        if self._shared.store is not None:
            await self._shared.store.close()

    # For operators: reads only

    def listings(self, *, states: Collection[str] = (), types: Collection[GroupType] = ()) -> list[GroupListing]:
        every = (shard.registry.listings(states=states, types=types) for shard in self._shards.values())
        return sorted((listing for listings in every for listing in listings), key=lambda each: each.group)

    def describe(self, name: str) -> Description | None:
        shard = self._shard_of(name)
        return shard.registry.describe(name) if shard is not None else None

    def lag(self, name: str, logs: Mapping[TopicPartition, LogFacts], *, wall_ms: int) -> tuple[Lag, ...]:
        shard = self._shard_of(name)
        return shard.registry.lag(name, logs, wall_ms=wall_ms) if shard is not None else ()

    def committed(self, name: str) -> tuple[OffsetCommitted, ...]:
        shard = self._shard_of(name)
        return shard.registry.committed(name) if shard is not None else ()

    # Which shard

    def leader_of(self, group: str) -> int:
        """The broker that looks after the group; -1 where nobody can, or there is nowhere to keep one."""
        number = self.partition_of(group)
        partition = None
        if number is not None:
            partition = self._metadata.image.partition(TopicPartition(CONSUMER_OFFSETS, number))
        return partition.leader if partition is not None else -1

    def partition_of(self, group: str) -> int | None:
        """Of `__consumer_offsets`; None while there is no such topic."""
        topic = self._metadata.image.topics.get(CONSUMER_OFFSETS)
        return _hash(group) % len(topic.partitions) if topic is not None else None

    def _shard_of(self, group: str) -> GroupShard | None:
        number = self.partition_of(group)
        return self._open(number, self._metadata.image) if number is not None else None

    def _close_lost(self) -> None:
        for number, shard in list(self._shards.items()):
            partition = self._partitions.named(CONSUMER_OFFSETS, number)
            if partition is None or partition.leading is None or partition.leader_epoch != shard.leader_epoch:
                self._shards.pop(number).close()
                self._gone_at_ms[number] = self._now_ms()

    def _open(self, number: int, image: Image) -> GroupShard | None:
        """Also for a partition whose log could not be opened at first."""
        shard = self._shards.get(number)
        partition = self._partitions.named(CONSUMER_OFFSETS, number)
        if shard is None and partition is not None and partition.leading is not None:
            shard = GroupShard(
                partition, lambda group: self.partition_of(group) == number, self._paces_of, self._shared
            )
            self._shards[number] = shard
            shard.load(_topics(image))
        return shard

    def _paces_of(self, group: str) -> Paces:
        config = self.configs.of(group)
        return Paces(
            consumer=Pace(config.consumer_heartbeat_ms, config.consumer_session_timeout_ms),
            share=Pace(config.share_heartbeat_ms, config.share_session_timeout_ms),
        )


def _hash(text: str) -> int:
    """As Kafka spreads groups over partitions: Java's string hash, without its sign."""
    value = 0
    for (unit,) in struct.iter_unpack("!H", text.encode("utf-16-be", "surrogatepass")):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


def _topics(image: Image) -> dict[str, Topic]:
    return {name: Topic(topic.topic_id, len(topic.partitions)) for name, topic in image.topics.items()}
