"""Fetches ahead of the application: one long poll at a time to each broker that leads something it reads.

Invariant: no more than `buffer_bytes`, and one answer beyond, lies fetched and not yet handed out; a broker that fails
is left alone for a little while, and its partitions are looked up again.
Driven by consumer.py, and by a task for each broker.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from millpond.client.cluster import Cluster, Purpose
from millpond.client.positions import UNKNOWN, Held, Positions
from millpond.client.refusals import NEW_LEADER_CODES, RETRIED_CODES, refusal
from millpond.client.settings import ConsumerSettings
from millpond.model.errors import BatchTooLarge, BrokerUnreachable, MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from millpond.protocol.records import HEADER_BYTES, LENGTH_END, parse_header

OFFSET_OUT_OF_RANGE: Final = 1
BUSY_WAIT_MS: Final = 10
"""A long poll for idle partitions must not keep those waiting whose buffer empties meanwhile."""
EARLIEST, LATEST = -2, -1
"""As ListOffsets names the start and the end."""


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        settings: ConsumerSettings,
        *,
        on_news: Callable[[], None],
        on_unplaced: Callable[[], None],
    ) -> None:
        """`on_news` where there is something to poll, `on_unplaced` where a partition has to be given a place."""
        self._cluster = cluster
        self._positions = positions
        self._settings = settings
        self._on_news = on_news
        self._on_unplaced = on_unplaced
        self._loop = asyncio.get_running_loop()
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Something changed: partitions, places, room."""
        if self._is_closed:
            return
        missing = False
        for held in self._positions.held.values():
            leader = self._cluster.view.leader_of(held.at)
            if leader is None:
                missing = True
            elif leader.node not in self._fetching and self._wants(held):
                self._fetching[leader.node] = self._loop.create_task(self._fetch_from(leader.node))
        if missing and self._looking is None:
            self._looking = self._loop.create_task(self._find_leaders())

    def _wants(self, held: Held) -> bool:
        return (
            held.fetch_at != UNKNOWN
            and not held.is_paused
            and held.error is None
            and not self._is_full(held)
            and held.not_before <= self._loop.time()
        )

    def _is_full(self, held: Held) -> bool:
        return held.buffered_bytes >= self._settings.partition_bytes_max

    async def _find_leaders(self) -> None:
        try:
            topics = {at.topic for at in self._positions.held if self._cluster.view.leader_of(at) is None}
            await self._cluster.refresh(topics)
        except BrokerUnreachable:
            pass
        finally:
            await asyncio.sleep(self._cluster.settings.backoff.pause(1, self._cluster.settings.rng))
            self._looking = None
        self.wake()

    # Fetching

    async def _fetch_from(self, node: int) -> None:
        try:
            while not self._is_closed:
                mine = self._led_by(node)
                wanted = [held for held in mine if self._wants(held)]
                if not wanted or self._positions.buffered_bytes >= self._settings.buffer_bytes:
                    break
                some_are_full = any(not held.is_paused and self._is_full(held) for held in mine)
                await self._fetch(node, wanted, BUSY_WAIT_MS if some_are_full else self._settings.fetch_wait_ms)
        except MillpondError:
            for held in self._led_by(node):
                self._cluster.forget_leader(held.at, node)
            await asyncio.sleep(self._cluster.settings.backoff.pause(1, self._cluster.settings.rng))
        finally:
            del self._fetching[node]
        if any(self._cluster.view.leader_of(at) is None for at in self._positions.held):
            self.wake()

    def _led_by(self, node: int) -> list[Held]:
        leaders = self._cluster.view.leader_of
        return [
            held
            for at, held in self._positions.held.items()
            if (leader := leaders(at)) is not None and leader.node == node
        ]

    async def _fetch(self, node: int, wanted: list[Held], wait_ms: int) -> None:
        connection = await self._cluster.connection(node, Purpose.DATA)
        asked: dict[TopicPartition, tuple[Held, int]] = {}
        topics: dict[str, list[FetchPartition]] = {}
        for held in wanted:
            leader = self._cluster.view.leader_of(held.at)
            wish = FetchPartition(
                partition=held.at.partition,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                fetch_offset=held.fetch_at,
                partition_max_bytes=self._settings.partition_bytes_max,
            )
            topics.setdefault(held.at.topic, []).append(wish)
            asked[held.at] = (held, held.fetch_at)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._settings.fetch_bytes_min,
            max_bytes=self._settings.fetch_bytes_max,
            topics=[FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        seconds_max = self._cluster.settings.request_seconds_max + wait_ms / 1000
        answer = await connection.ask(request, FetchResponse, seconds_max=seconds_max)
        if answer.error_code:
            raise refusal(answer.error_code, None, of="a fetch")
        has_news = False
        for topic in answer.responses:
            for part in topic.partitions:
                found = asked.get(TopicPartition(topic.topic, part.partition_index))
                if found is not None:
                    has_news |= self._take_in(*found, part, node)
        if has_news:
            self._on_news()

    def _take_in(self, held: Held, asked: int, part: PartitionData, node: int) -> bool:
        """Whether there is something for whoever polls."""
        if part.error_code == 0:
            held.high_watermark = part.high_watermark
            if not part.records:
                return False
            data = memoryview(part.records)
            next_offset, end = _whole_batches(data)
            if end:
                held.fetched(data[:end], asked=asked, next_offset=next_offset)
            elif held.fetch_at == asked:
                held.error = BatchTooLarge(f"{held.at}: the batch at {asked} came cut short; raise partition_bytes_max")
            return True
        if held.fetch_at != asked or not held.is_held:
            return False
        if part.error_code == OFFSET_OUT_OF_RANGE:
            return self._out_of_range(held, asked)
        if part.error_code in NEW_LEADER_CODES:
            self._cluster.forget_leader(held.at, node)
            return False
        if part.error_code in RETRIED_CODES:
            pause = self._cluster.settings.backoff.pause(2, self._cluster.settings.rng)
            held.not_before = self._loop.time() + pause
            self._loop.call_later(pause, self.wake)
            return False
        held.error = refusal(part.error_code, None, of=str(held.at))
        return True

    def _out_of_range(self, held: Held, asked: int) -> bool:
        if self._settings.reset == "error":
            held.error = OffsetOutOfRange(
                f"{held.at} has no offset {asked}; seek to one it has, or say with reset where to go on"
            )
            return True
        if not held.has_some:  # what is fetched already is handed out first
            held.seek_to_time(EARLIEST if self._settings.reset == "earliest" else LATEST)
            self._on_unplaced()
        return False

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._fetching.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _whole_batches(data: memoryview) -> tuple[int, int]:
    """The offset after the last whole batch, and where that ends; 0 where there is none."""
    position, next_offset, size = 0, 0, len(data)
    while position + HEADER_BYTES <= size:
        header = parse_header(data, position) if position + _length(data, position) <= size else None
        if header is None:
            break
        next_offset = header.next_offset
        position += header.length + LENGTH_END
    return next_offset, position


def _length(data: memoryview, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + LENGTH_END], "big", signed=True) + LENGTH_END
