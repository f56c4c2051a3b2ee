"""All queue groups on all partitions that this broker leads: each is opened when it is first asked for, or else soon
after this broker begins to lead it, so that what nobody asks for goes on as well.

Invariant: one `QueuePartition` for each group and partition, and only in the epoch in which the broker leads it.
Driven by broker/operations, and by the metadata log through `follow`.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_partition import KIND, QueuePartition, Surroundings
from millpond.core.delivery.encoding import first_unfinished
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.metadata.broker_configs import layers, whole
from millpond.core.metadata.group_configs import Expired, GroupConfig, Order, StartAt, group_config, has_graveyard
from millpond.core.metadata.image import Image
from millpond.model.errors import CoordinatorUnavailable, MillpondError, NotLeader
from millpond.model.ids import Offset, TimestampMs

CONFIGS_MAX = 10_000


class Queues:
    def __init__(self, metadata: MetadataLog, *, static: Mapping[str, str], shared: Surroundings) -> None:
        self._metadata = metadata
        self._static = static
        self._shared = shared
        self._open: dict[tuple[str, Partition], QueuePartition] = {}
        self._opening: dict[tuple[str, Partition], asyncio.Task[QueuePartition]] = {}
        """Those that are not open yet."""
        self._attended: dict[Partition, int] = {}
        """Partitions of which all that is kept is open, and since which epoch."""
        self.lock_ms_max = whole("millpond.visibility.max.ms", static)
        self._configs: dict[str, GroupConfig] = {}
        """What groups that were asked for are told, as long as nobody changes a setting."""
        self._settings_seen: tuple[object, object] = ((), ())

    def config(self, group: str) -> GroupConfig:
        image = self._metadata.image
        groups, brokers = self._settings_seen
        if groups is not image.group_configs or brokers is not image.broker_configs:
            self._configs, self._settings_seen = {}, (image.group_configs, image.broker_configs)
        found = self._configs.get(group)
        if found is None:
            if len(self._configs) >= CONFIGS_MAX:
                self._configs.clear()
            found = group_config(image, layers(image, self._static).merged(), group)
            found = replace(found, lock_ms=min(found.lock_ms, self.lock_ms_max))
            self._configs[group] = found
        return found

    def open_at(self, group: str, partition: Partition) -> QueuePartition | None:
        """If it is open already."""
        queue = self._open.get((group, partition))
        return None if queue is None or queue.is_over else queue

    async def at(self, group: str, partition: Partition) -> QueuePartition:
        """Opened, and this broker's."""
        partition.require_leader()
        queue = self.open_at(group, partition)
        if queue is not None:
            return queue
        opening = self._opening.get((group, partition))
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._begin(group, partition))
            self._opening[group, partition] = opening
            opening.add_done_callback(lambda task: self._opened(group, partition, task))
        return await asyncio.shield(opening)

    def _opened(self, group: str, partition: Partition, opening: asyncio.Task[QueuePartition]) -> None:
        self._opening.pop((group, partition), None)
        if not opening.cancelled():
            opening.exception()  # whoever waited to be told may be gone

    async def _begin(self, group: str, partition: Partition) -> QueuePartition:
        while True:
            config = self.config(group)
            settings = delivery_settings(config, partition.at.topic)
            start = self.beginning(group, partition)
            queue = QueuePartition(group, partition, settings, self._shared, start=start)
            await queue.open()
            if delivery_settings(self.config(group), partition.at.topic) == settings:
                self._open[group, partition] = queue
                return queue
            queue.end(CoordinatorUnavailable(f"the settings of {group} changed meanwhile"))

    async def open_kept(self, partitions: Iterable[Partition]) -> None:
        """What was begun before this broker led it, or closed since: so its leases run out, its dead letters are sent
        and metrics tell of it, whether somebody comes for it or not. What cannot be opened now is tried next time."""
        for (group, partition), queue in list(self._open.items()):
            if queue.failure is not None:
                del self._open[group, partition]
                self._attended.pop(partition, None)
        led = {each: each.leader_epoch for each in partitions if each.is_led_here}
        new = {(each.topic_id, each.at.partition): each for each in led if self._attended.get(each) != led[each]}
        self._attended = {each: epoch for each, epoch in self._attended.items() if led.get(each) == epoch}
        if not new:
            return
        topics = {each.topic_id for each in new.values()}
        kept = await self._shared.states.find(KIND, topic_id=topics.pop() if len(topics) == 1 else None)
        self._attended |= {each: led[each] for each in new.values()}
        for key in kept:
            place = new.get((key.topic_id, key.partition))
            if place is not None:
                try:
                    await self.at(key.group, place)
                except MillpondError:
                    self._attended.pop(place, None)

    async def expire(self) -> None:
        """Messages that have outlived their time while nobody came for them."""
        for queue in self:
            with suppress(MillpondError):  # it is over, or will be tried next time
                await queue.expire()

    def beginning(self, group: str, partition: Partition) -> Offset:
        """Where the group begins that was never here."""
        return _first_offset(self.config(group), partition, self._shared.clock.wall_ms())

    async def acknowledged_by_all(self, partition: Partition) -> Offset:
        """No group has to have what is before this any more, and that is kept; the log's start where none has come."""
        kept = await self._shared.states.find(KIND, topic_id=partition.topic_id)
        starts = [
            first_unfinished(document) for key, document in kept.items() if key.partition == partition.at.partition
        ]
        return Offset(min(starts, default=partition.log.start_offset))

    def __iter__(self) -> Iterator[QueuePartition]:
        """Those that are open."""
        return iter([queue for queue in self._open.values() if not queue.is_over])

    def release_all(self, group: str, holder: str) -> None:
        """The consumer is gone: others may have what it held."""
        for queue in self:
            if queue.group == group:
                queue.release_all(holder)

    def reload(self, group: str, topic_id: bytes, number: int) -> None:
        """What is kept of it was changed by an administrator."""
        for queue in self:
            at = queue.partition
            if (queue.group, at.topic_id, at.at.partition) == (group, topic_id, number):
                queue.end(CoordinatorUnavailable(f"{group} was moved; ask again"))

    def follow(self, before: Image, after: Image) -> None:
        """What this broker leads no more, or in another epoch, is over; so is what is to work otherwise from now on."""
        for (group, partition), queue in list(self._open.items()):
            if queue.is_over or partition.leading is None or partition.log.is_closed:
                del self._open[group, partition]
                queue.end(NotLeader(f"{partition.at} has another leader; ask for metadata"))
            elif delivery_settings(self.config(group), partition.at.topic) != queue.settings:
                del self._open[group, partition]
                self._attended.pop(partition, None)
                queue.end(CoordinatorUnavailable(f"the settings of {group} have changed; ask again"))

    async def close(self) -> None:
        openings = list(self._opening.values())
        for opening in openings:
            opening.cancel()
        if openings:
            await asyncio.wait(openings)
        for queue in self._open.values():
            queue.end(NotLeader("the broker stops; ask for metadata"))
        self._open.clear()


def delivery_settings(config: GroupConfig, topic: str) -> DeliverySettings:
    return DeliverySettings(
        attempts_max=config.deliveries_max,
        lock_ms=config.lock_ms,
        leased_max=config.locks_per_partition_max,
        held_max=config.unacked_per_consumer_max,
        backoff_ms=config.retry_backoff_ms,
        backoff_ms_max=config.retry_backoff_ms_max,
        jitter=config.retry_jitter,
        has_dead_letters=has_graveyard(topic, config),
        buries_expired=config.expired is Expired.DEAD_LETTER,
        is_ordered_by_key=config.order is Order.KEY,
        priority=config.priority,
        priority_age_ms_max=config.priority_age_ms_max,
    )


def _first_offset(config: GroupConfig, partition: Partition, wall_ms: int) -> Offset:
    match config.start:
        case StartAt.EARLIEST:
            return partition.log.start_offset
        case StartAt.LATEST:
            return partition.high_watermark
        case StartAt.BY_DURATION:
            found = partition.log.first_since(TimestampMs(wall_ms - config.start_age_ms))
            return partition.high_watermark if found is None else found[0]
