"""Messages of some partitions, from here or from whoever leads them.

Invariant: an answer holds no more than BYTES_MAX of batches and one more, and no more messages than were asked for.
Driven by the routes that give messages.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.refusals import no_such_partition, no_such_topic
from millpond.broker.node import Node
from millpond.broker.operations.fetch import NOTHING, Wanted, fetch, read_now
from millpond.broker.operations.list_offsets import EARLIEST, LATEST, list_offset
from millpond.client.offsets import offsets_at
from millpond.model.addresses import Address
from millpond.model.errors import MillpondError, NotLeader
from millpond.model.ids import NO_EPOCH, Offset, TopicPartition
from millpond.model.limits import MIB
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.records import Record, decode_batch, parse_header

__all__ = ["EARLIEST", "LATEST", "Place", "Read", "Reading"]

BYTES_MAX: Final = 1 * MIB
"""Of the batches of one answer, as they lie on disk."""
INFLATED_BYTES_MAX: Final = 64 * MIB
"""Of one batch that was compressed: this is done on the broker's loop."""


class Place(NamedTuple):
    at: TopicPartition
    offset: int


class Read(NamedTuple):
    at: TopicPartition
    records: list[Record]
    next_offset: int


Batches = Mapping[TopicPartition, memoryview]
"""Of the partitions that have any."""


class Reading:
    def __init__(self, node: Node, neighbours: Neighbours) -> None:
        self._node = node
        self._neighbours = neighbours

    def check(self, at: TopicPartition) -> None:
        topic = self._node.image.topics.get(at.topic)
        if topic is None:
            raise no_such_topic(at.topic)
        if at.partition >= len(topic.partitions):
            raise no_such_partition(at.topic, at.partition, len(topic.partitions))

    def now(self, place: Place, *, count: int) -> Read | None:
        """None where that has to be waited for, or asked for elsewhere."""
        wanted = self._wanted(place)
        if wanted is None:
            return None
        (fetched,), _ = read_now([wanted], bytes_max=BYTES_MAX)
        if fetched.error is not None:
            raise fetched.error
        return _read(place, fetched.data, count=count)

    async def read(self, places: Sequence[Place], *, count: int, wait_ms: int) -> list[Read]:
        """One for each place that has anything, in their order; none where the time is up first."""
        found = await self._look(places, wait_ms=0) or (await self._look(places, wait_ms=wait_ms) if wait_ms else {})
        reads: list[Read] = []
        for place in places:
            if count > 0 and place.at in found:
                read = _read(place, found[place.at], count=count)
                count -= len(read.records)
                reads.append(read)
        return reads

    async def batches(self, place: Place, *, wait_ms: int) -> memoryview:
        """As they lie on disk, whole; empty where the time is up first."""
        return (await self._look([place], wait_ms=wait_ms)).get(place.at, NOTHING)

    async def _look(self, places: Sequence[Place], *, wait_ms: int) -> Batches:
        """The first that has any: this broker, or one of those that lead the rest."""
        here = [(place, wanted) for place in places if (wanted := self._wanted(place)) is not None]
        if len(here) == len(places):
            return await self._look_here(here, wait_ms)
        return await self._neighbours.cluster.retrying(lambda: self._look_around(places, wait_ms))

    async def _look_around(self, places: Sequence[Place], wait_ms: int) -> Batches:
        here: list[tuple[Place, Wanted]] = []
        elsewhere: dict[int, list[Place]] = {}
        for place in places:
            wanted = self._wanted(place)
            if wanted is not None:
                here.append((place, wanted))
            else:
                elsewhere.setdefault(self._leader(place.at), []).append(place)
        looks = [self._look_elsewhere(node, theirs, wait_ms) for node, theirs in elsewhere.items()]
        if here:
            looks.append(self._look_here(here, wait_ms))
        return await _first_with_any(looks)

    async def _look_here(self, here: list[tuple[Place, Wanted]], wait_ms: int) -> Batches:
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        fetched = await fetch([wanted for _, wanted in here], bytes_min=1, bytes_max=BYTES_MAX, deadline=deadline)
        for each in fetched:
            if each.error is not None:
                raise each.error
        return {place.at: each.data for (place, _), each in zip(here, fetched, strict=True) if len(each.data)}

    async def _look_elsewhere(self, node: int, places: Sequence[Place], wait_ms: int) -> Batches:
        broker = self._node.image.brokers.get(node)
        if broker is None:
            raise NotLeader(f"broker {node} leads {places[0].at}, and is not known; ask again later")
        address = Address(broker.endpoints[0].host, broker.endpoints[0].port)
        return await self._neighbours.fetch(node, address, dict(places), bytes_max=BYTES_MAX, wait_ms=wait_ms)

    def _leader(self, at: TopicPartition) -> int:
        """As the metadata say; this broker may only just have lost it, or not be sure."""
        partition = self._node.image.partition(at)
        if partition is None:
            raise no_such_topic(at.topic)
        if partition.leader < 0 or partition.leader == self._node.node_id:
            raise NotLeader(f"nobody surely leads {at} at the moment; ask again later")
        return partition.leader

    def _wanted(self, place: Place) -> Wanted | None:
        """None where another broker leads, or may lead by now."""
        partition = self._node.find(place.at.topic, NO_ID, place.at.partition)
        if isinstance(partition, NotLeader) or (not isinstance(partition, MillpondError) and not partition.is_led_here):
            return None
        return Wanted(partition, Offset(place.offset), BYTES_MAX, NO_EPOCH)

    async def offset_at(self, at: TopicPartition, moment: int) -> int:
        """The first offset not older than that, or of EARLIEST or LATEST; where there is none, the end."""
        partition = self._node.find(at.topic, NO_ID, at.partition)
        if isinstance(partition, MillpondError) and not isinstance(partition, NotLeader):
            raise partition
        if isinstance(partition, NotLeader) or not partition.is_led_here:
            return (await offsets_at(self._neighbours.cluster, {at: moment}))[at]
        found = list_offset(partition, moment).offset
        return found if found >= 0 else list_offset(partition, LATEST).offset


async def _first_with_any(looks: Sequence[Coroutine[Any, Any, Batches]]) -> Batches:
    tasks = [asyncio.ensure_future(look) for look in looks]
    waiting = set(tasks)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if found := {at: data for task in done for at, data in task.result().items()}:
                return found
        return {}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read(place: Place, data: memoryview, *, count: int) -> Read:
    """Offsets that compaction took records from are passed over."""
    records: list[Record] = []
    next_offset = place.offset
    position = 0
    while position < len(data) and len(records) < count:
        header = parse_header(data, position)
        if not header.is_control:
            decoded = decode_batch(data, position, inflated_bytes_max=INFLATED_BYTES_MAX)
            records += [each for each in decoded if each.offset >= place.offset]
        next_offset = header.next_offset
        position += header.size
    if len(records) >= count:
        records = records[:count]
        next_offset = records[-1].offset + 1
    return Read(place.at, records, next_offset)
