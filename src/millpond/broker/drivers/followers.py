"""Following: this broker copies the partitions that others lead, with one long fetch or two under way to each leader.

What a fetch brings is appended and synced before the next one asks for what follows: that question tells the leader
what is safe here. What to do with an answer is decided by core/replication/following.py. A fetch that waits is given
up for one that asks for more, when a partition comes to be followed, or has a new leader.

Where many partitions are copied from a leader, those that were busy of late are asked for in a stream of their own: a
message costs something for each partition that is named in a fetch, on both sides, and most are quiet.

Invariants: a log changes here only by the answer to a fetch of the leader epoch that the partition is still in; each
partition is in one stream, and no other asks for it meanwhile.
Driven by partitions.py, which tells of changes, and by its own tasks.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.core.metadata.commands import NO_LEADER
from millpond.core.metadata.image import Image
from millpond.core.replication.following import (
    Append,
    AwaitMetadata,
    BackOff,
    DivergingEpoch,
    FetchAnswer,
    StartAnew,
    Truncate,
    follow,
    last_fetched_epoch,
)
from millpond.model.errors import LogClosed, MillpondError, StorageError
from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.limits import MIB
from millpond.model.ports import Rng
from millpond.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from millpond.protocol.records import parse_header

FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 16 * MIB
PARTITION_BYTES_MAX = 4 * MIB
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.5
"""After a refusal, or a leader that does not answer."""

FEW = 1
"""As many partitions of one leader are asked for together, busy or not."""
BUSY_SECONDS = 5.0
"""A partition is busy for so long after something was copied."""


class Fetch(Protocol):
    async def __call__(self, leader: int, request: FetchRequest, *, is_quiet: bool) -> FetchResponse | None:
        """None where no answer came."""


class Stream(NamedTuple):
    """Fetches that follow one another."""

    leader: int
    is_quiet: bool


class Asked(NamedTuple):
    """One partition in a fetch, and the leader epoch it was asked in."""

    partition: Partition
    leader_epoch: LeaderEpoch
    offset: Offset


class Followers:
    def __init__(
        self,
        node_id: int,
        partitions: PartitionTable,
        fetch: Fetch,
        rng: Rng,
        *,
        image: Callable[[], Image],
        broker_epoch: Callable[[], int],
        throttled_bytes_per_second: Callable[[], int],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """The throttle is for partitions that move to this broker; what it keeps already is copied at full speed."""
        self._throttled_bytes_per_second = throttled_bytes_per_second
        self._throttled_until = 0.0
        self._node_id = node_id
        self._partitions = partitions
        self._fetch = fetch
        self._rng = rng
        self._image = image
        self._broker_epoch = broker_epoch
        self._on_error = on_error
        self._streams: dict[Stream, list[Partition]] = {}
        """What each copies."""
        self._moving_here: set[Partition] = set()
        """Those that this broker is given, and does not count for yet."""
        self._busy_until: dict[Partition, float] = {}
        self._calm_at: dict[Stream, float] = {}
        """When somebody in it may have been busy no more for long enough."""
        self._tasks: dict[Stream, asyncio.Task[None]] = {}
        self._asked: dict[Stream, frozenset[tuple[Partition, LeaderEpoch]]] = {}
        """What each was to copy when it asked last."""
        self._waiting: set[Stream] = set()
        """Those that wait for an answer."""
        self._outdated: set[Stream] = set()
        """Those that have more to copy than they asked for."""
        self._changed = asyncio.Event()
        partitions.listen(self._look_again)

    def _look_again(self) -> None:
        """Leaders may have changed."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._arrange()

    def _arrange(self) -> None:
        """Each stream has a task for as long as it has anything to copy."""
        self._streams = self._arranged()
        for stream, partitions in self._streams.items():
            if stream not in self._tasks:
                self._tasks[stream] = asyncio.get_running_loop().create_task(self._run(stream))
            elif stream in self._asked and not _epochs(partitions) <= self._asked[stream]:
                self._outdated.add(stream)
                if stream in self._waiting:
                    self._waiting.remove(stream)  # a second time would be taken for the end
                    self._tasks[stream].cancel()

    def _arranged(self) -> dict[Stream, list[Partition]]:
        by_leader: dict[int, list[Partition]] = {}
        image = self._image()
        self._moving_here.clear()
        for partition in self._partitions:
            facts = image.partition(partition.at)
            if facts is not None and facts.leader not in (NO_LEADER, self._node_id):
                by_leader.setdefault(facts.leader, []).append(partition)
                if self._node_id in facts.adding:
                    self._moving_here.add(partition)
        self._busy_until = {
            each: until for each, until in self._busy_until.items() if self._partitions.named(*each.at) is each
        }
        streams: dict[Stream, list[Partition]] = {}
        for leader, partitions in by_leader.items():
            for each in partitions:
                is_quiet = len(partitions) > FEW and each not in self._busy_until
                streams.setdefault(Stream(leader, is_quiet), []).append(each)
        return streams

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # One stream

    async def _run(self, stream: Stream) -> None:
        not_before: dict[Partition, float] = {}
        loop = asyncio.get_running_loop()
        asked: list[Partition] = []
        try:
            while mine := self._streams.get(stream):
                for each in mine:
                    if each.damaged_in is not None:
                        await self._copy_anew(each, each.damaged_in)
                now = loop.time()
                ready = [each for each in mine if not_before.get(each, 0) <= now and _may_follow(each)]
                pauses = [until for each in mine if (until := not_before.get(each, 0)) > now]
                if not ready:
                    await self._pause(min(pauses) - now if pauses else PAUSE_SECONDS_MAX)
                    continue
                self._outdated.discard(stream)
                if mine is not asked:  # there is another list whenever anything changes
                    asked, self._asked[stream] = mine, _epochs(mine)
                paused = await self._fetch_once(stream, ready, until=min(pauses, default=None))
                not_before = {each: until for each, until in not_before.items() if until > now}
                if paused:
                    not_before |= dict.fromkeys(paused, loop.time() + self._pause_seconds())
                if self._throttled_until > now:
                    not_before |= dict.fromkeys(self._moving_here.intersection(mine), self._throttled_until)
        except Exception as error:
            self._on_error(error)
        finally:
            if self._tasks.get(stream) is asyncio.current_task():
                del self._tasks[stream]
                self._asked.pop(stream, None)

    def _note_busy(self, stream: Stream, copied: list[Partition]) -> None:
        """A partition changes streams where it is in neither's fetch: when the one it leaves has taken an answer."""
        now = asyncio.get_running_loop().time()
        for each in copied:
            self._busy_until[each] = now + BUSY_SECONDS
        leaving = copied
        if not stream.is_quiet:
            leaving = self._calmed(stream, now) if now >= self._calm_at.get(stream, 0) else []
        if leaving:
            self._arrange()

    def _calmed(self, stream: Stream, now: float) -> list[Partition]:
        mine = self._streams.get(stream, ())
        calmed = [each for each in mine if self._busy_until.get(each, now + 1) <= now]
        for each in calmed:
            del self._busy_until[each]
        busy = [self._busy_until[each] for each in mine if each in self._busy_until]
        self._calm_at[stream] = min(busy, default=now + BUSY_SECONDS)  # who comes to be busy is so for longer
        return calmed

    def _pause_seconds(self) -> float:
        return self._rng.uniform(PAUSE_SECONDS_MIN, PAUSE_SECONDS_MIN * 4)

    def _throttle(self, size_bytes: int) -> None:
        """What came of moving partitions has to last for a while."""
        if not size_bytes:
            return
        seconds = size_bytes / self._throttled_bytes_per_second()
        self._throttled_until = max(self._throttled_until, asyncio.get_running_loop().time()) + seconds

    async def _pause(self, seconds: float) -> None:
        """Or until the image changes."""
        changed = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait([changed], timeout=seconds)
        changed.cancel()

    async def _fetch_once(self, stream: Stream, ready: list[Partition], *, until: float | None) -> list[Partition]:
        """Returns those that should pause."""
        loop = asyncio.get_running_loop()
        # What this broker wrote as a leader, or got from another one, may be on its way to disk still; a question that
        # begins behind it would say that it is there.
        await self._sync(ready)
        wait_ms = FETCH_WAIT_MS if until is None else max(1, min(FETCH_WAIT_MS, round((until - loop.time()) * 1000)))
        asked = {
            (each.topic_id, each.at.partition): Asked(each, each.leader_epoch, each.log.next_offset)
            for each in ready
            if _is_synced(each)
        }
        if not asked:
            return ready
        response = await self._ask(stream, self._request(list(asked.values()), wait_ms))
        if response is None or response.error_code:
            return [] if stream in self._outdated else ready
        answers = [
            (asked[topic.topic_id, part.partition_index], part)
            for topic in response.responses
            for part in topic.partitions
            if (topic.topic_id, part.partition_index) in asked
        ]
        copied = [(each.partition, len(part.records)) for each, part in answers if part.records]
        if self._moving_here:
            self._throttle(sum(size for partition, size in copied if partition in self._moving_here))
        paused = [each.partition for each, part in answers if not await self._take(each, part)]
        await self._sync([partition for partition, _ in copied])
        for each, part in answers:
            if each.partition.leader_epoch == each.leader_epoch and not part.error_code:
                each.partition.learn_high_watermark(Offset(part.high_watermark))
        self._note_busy(stream, [partition for partition, _ in copied])
        return paused

    async def _ask(self, stream: Stream, request: FetchRequest) -> FetchResponse | None:
        """None where no answer came, or is not waited for any more."""
        if stream in self._outdated:
            return None
        self._waiting.add(stream)
        try:
            return await self._fetch(stream.leader, request, is_quiet=stream.is_quiet)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stream not in self._outdated or task is None or task.uncancel() > 0:
                raise  # this broker stops, perhaps besides
            return None
        finally:
            self._waiting.discard(stream)

    def _request(self, asked: list[Asked], wait_ms: int) -> FetchRequest:
        by_topic: dict[bytes, list[FetchPartition]] = {}
        for partition, leader_epoch, offset in asked:
            log = partition.log
            epoch = last_fetched_epoch(log.epochs, log_start=log.start_offset, log_end=offset)
            by_topic.setdefault(partition.topic_id, []).append(
                FetchPartition(
                    partition=partition.at.partition,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=epoch,
                    log_start_offset=log.start_offset,
                    partition_max_bytes=self._bytes_max(partition),
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            topics=[FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()],
        )

    def _bytes_max(self, partition: Partition) -> int:
        if partition not in self._moving_here:
            return PARTITION_BYTES_MAX
        return min(PARTITION_BYTES_MAX, self._throttled_bytes_per_second())

    async def _copy_anew(self, partition: Partition, damaged_in: LeaderEpoch) -> None:
        """What was found damaged while this broker led: once nobody counts on it, in an epoch whose leader never heard
        of what it had, and so does not take it for more than it has."""
        facts, epoch = self._image().partition(partition.at), partition.leader_epoch
        if facts is None or facts.leader_epoch != epoch or epoch <= damaged_in or partition.leading is not None:
            return
        if self._node_id in facts.isr or self._node_id in facts.elr:
            return
        try:
            await self._partitions.begin_anew(partition, partition.log.start_offset)
        except LogClosed:
            pass  # its topic was deleted
        except MillpondError as error:
            self._on_error(error)

    # One answer

    async def _take(self, asked: Asked, answer: PartitionData) -> bool:
        """Whether to ask again at once."""
        partition, _, offset = asked
        log = partition.log
        if not _is_still_followed(asked) or log.next_offset != offset:
            return True  # it has another leader since
        try:
            match follow(_answer(answer), history=log.epochs, log_start=log.start_offset, log_end=log.next_offset):
                case Append(log_start=start):
                    if answer.records:
                        log.append_replicated(answer.records)
                    if start > log.start_offset:
                        await log.delete_before(min(start, log.next_offset))
                case Truncate(to):
                    partition.high_watermark = min(partition.high_watermark, to)
                    await log.truncate(to, if_still=lambda: _is_still_followed(asked))
                case StartAnew(at):
                    await self._partitions.begin_anew(partition, at)
                case BackOff() | AwaitMetadata():
                    return False
        except LogClosed:
            return False
        except MillpondError as error:
            self._on_error(error)
            return False
        return True

    async def _sync(self, partitions: list[Partition]) -> None:
        """All of them at once; a log that fails refuses from then on, and is not asked for again."""
        for flush in [each.log.flush_soon() for each in partitions if not _is_synced(each)]:
            try:
                await flush
            except LogClosed:
                pass
            except StorageError as error:
                self._on_error(error)


def _epochs(partitions: Iterable[Partition]) -> frozenset[tuple[Partition, LeaderEpoch]]:
    return frozenset((each, each.leader_epoch) for each in partitions)


def _is_still_followed(asked: Asked) -> bool:
    """Else the log is another leader's, or this broker's own to write."""
    return asked.partition.leader_epoch == asked.leader_epoch and asked.partition.leading is None


def _may_follow(partition: Partition) -> bool:
    return partition.log.failure is None and partition.damaged_in is None


def _is_synced(partition: Partition) -> bool:
    return partition.log.kept_end >= partition.log.next_offset


def _answer(data: PartitionData) -> FetchAnswer:
    diverging = data.diverging_epoch
    return FetchAnswer(
        error=data.error_code,
        diverging=None
        if diverging is None or diverging.end_offset < 0  # an epoch of -1 is that of a leader that has nothing
        else DivergingEpoch(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
        high_watermark=Offset(data.high_watermark),
        log_start=Offset(data.log_start_offset),
        base_offset=parse_header(data.records).base_offset if data.records else None,
    )
