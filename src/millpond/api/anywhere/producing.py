"""Messages of many requests, put into partitions together.

What is sent while a partition's disk is busy with the batch before waits, and goes as one batch: however small the
requests, a partition has one group commit at a time, and each of them brings all that came meanwhile.

Invariant: a message is answered only when its partition has kept it, as with acks=all on the Kafka wire; what is wrong
with one request's messages refuses that request's alone.
Driven by the produce route, on the broker's loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.refusals import no_such_partition, no_such_topic
from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.broker.operations.produce import Pending, Produced, begin, finish, finish_now
from millpond.client.partitioners import by_murmur2
from millpond.core.delivery.delay_headers import ASKING
from millpond.core.metadata.controller import auto_create
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.model.errors import MillpondError, NotLeader, TopicAlreadyExists
from millpond.model.ids import TopicPartition
from millpond.model.limits import KIB
from millpond.protocol.records import NewRecord, encode_batch

BATCH_BYTES_MAX = 512 * KIB
"""As much is gathered at most, unless one message alone has more."""

Done = Callable[[Sequence[int], MillpondError | None], None]
"""Told the offsets of the records, or what went wrong."""


class Parcel:
    """Records of one request for one partition; all of them for later, or none."""

    __slots__ = ("done", "records", "size")

    def __init__(self, records: list[NewRecord], size: int, done: Done) -> None:
        self.records = records
        self.size = size
        self.done = done

    @property
    def is_for_later(self) -> bool:
        return asks_for_delay(self.records[0])


def asks_for_delay(record: NewRecord) -> bool:
    """A batch with such a one is put aside as a whole, and what else is in it comes at other offsets than was said."""
    return any(name in ASKING for name, _ in record.headers)


class Producing:
    def __init__(self, node: Node, neighbours: Neighbours, *, on_error: Callable[[BaseException], None]) -> None:
        self._node = node
        self._neighbours = neighbours
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._gatherings: dict[Partition, _Gathering] = {}
        self._led: dict[str, tuple[Topic, Sequence[int]]] = {}
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Where to

    def has_topic(self, topic: str) -> bool:
        return topic in self._node.image.topics

    async def make_topic(self, topic: str) -> None:
        """Where the cluster makes topics for those who write to them; raises the refusal otherwise."""
        node = self._node
        decision = await node.metadata.decide(
            lambda image: auto_create(image, [topic], static=node.static, rng=node.rng)
        )
        for answer in decision.answers:
            if isinstance(answer, Refused) and not isinstance(answer.error, TopicAlreadyExists):
                raise answer.error
        if not self.has_topic(topic):
            raise no_such_topic(topic)

    def place(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        """Of a topic that is there: as asked, or by the key, or one that this broker leads, in turns."""
        known = self._node.image.topics.get(topic)
        if known is None:
            raise no_such_topic(topic)
        count = len(known.partitions)
        if partition is None:
            partition = by_murmur2(topic, key, count)
        elif partition >= count:
            raise no_such_partition(topic, partition, count)
        if partition is None:
            led = self._led_here(topic, known)
            partition = led[self._turn % len(led)]
        return TopicPartition(topic, partition)

    def _led_here(self, topic: str, known: Topic) -> Sequence[int]:
        found = self._led.get(topic)
        if found is None or found[0] is not known:
            here = [number for number, each in enumerate(known.partitions) if each.leader == self._node.node_id]
            found = self._led[topic] = (known, here or range(len(known.partitions)))
            self._led = {name: each for name, each in self._led.items() if name in self._node.image.topics}
        return found[1]

    # Sending

    def send(self, at: TopicPartition, parcel: Parcel) -> None:
        partition = self._node.partitions.named(*at)
        if partition is None or not partition.is_led_here:
            self.forward(at, parcel)
            return
        gathering = self._gatherings.get(partition)
        if gathering is None:
            gathering = self._gatherings[partition] = _Gathering(partition, self)
        gathering.add(parcel)

    def forward(self, at: TopicPartition, parcel: Parcel) -> None:
        """To whoever leads the partition."""
        self.spawn(self._forward(at, parcel))

    async def _forward(self, at: TopicPartition, parcel: Parcel) -> None:
        try:
            offsets = await self._neighbours.produce(at, parcel.records)
        except MillpondError as error:
            parcel.done((), error)
        else:
            parcel.done(offsets, None)

    # The gatherings' side

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    def flushed(self, partition: Partition, *, is_empty: bool) -> None:
        self._turn += 1
        if is_empty:
            self._gatherings.pop(partition, None)

    def wall_ms(self) -> int:
        return self._node.clock.wall_ms()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Gathering:
    """What waits for one partition's next batch; exists only while something does, or is on its way to disk."""

    def __init__(self, partition: Partition, producing: Producing) -> None:
        self._partition = partition
        self._producing = producing
        self._waiting: deque[Parcel] = deque()
        # Not at once: whatever else the loop reads in this turn goes along.
        asyncio.get_running_loop().call_soon(self._flush)

    def add(self, parcel: Parcel) -> None:
        self._waiting.append(parcel)

    def _flush(self) -> None:
        """Goes on until a batch has to be waited for, or nothing is left."""
        while self._waiting:
            appended = self._append(self._take())
            self._producing.flushed(self._partition, is_empty=False)
            if appended:
                produced = finish_now([pending for _, pending in appended])
                if produced is None:
                    self._producing.spawn(self._wait(appended))
                    return
                self._tell(appended, produced)
        self._producing.flushed(self._partition, is_empty=True)

    def _take(self) -> list[Parcel]:
        taken = [self._waiting.popleft()]
        config, size = self._partition.config, taken[0].size
        most = min(BATCH_BYTES_MAX, config.batch_bytes_max // 2)
        while self._waiting and (size := size + self._waiting[0].size) <= most:
            if config.delay and self._waiting[0].is_for_later != taken[0].is_for_later:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _append(self, parcels: list[Parcel]) -> list[tuple[list[Parcel], Pending]]:
        """As one batch; each for itself where that is refused, so that nobody suffers for another's mistake."""
        records = parcels[0].records if len(parcels) == 1 else [each for parcel in parcels for each in parcel.records]
        try:
            batch = encode_batch(records)
        except MillpondError as error:
            pending = Pending(error=error)
        else:
            pending = begin(self._partition, batch, now_ms=self._producing.wall_ms(), acks_all=True)
        if pending.error is None:
            return [(parcels, pending)]
        if isinstance(pending.error, NotLeader):
            for parcel in parcels:
                self._producing.forward(self._partition.at, parcel)
        elif len(parcels) == 1 or pending.error.retriable:
            for parcel in parcels:
                parcel.done((), pending.error)
        else:
            return [each for parcel in parcels for each in self._append([parcel])]
        return []

    async def _wait(self, appended: list[tuple[list[Parcel], Pending]]) -> None:
        self._tell(appended, await finish([pending for _, pending in appended]))
        self._flush()

    def _tell(self, appended: list[tuple[list[Parcel], Pending]], produced: Sequence[Produced]) -> None:
        for (parcels, _), answer in zip(appended, produced, strict=True):
            start: int = answer.base_offset
            for parcel in parcels:
                end = start + len(parcel.records)
                parcel.done(range(start, end) if answer.error is None else (), answer.error)
                start = end
