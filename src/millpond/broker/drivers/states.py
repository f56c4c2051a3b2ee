"""Durable state for machines that run at the leader of a topic partition, wherever that is: fenced, and in order.

A key's state is kept by one partition of `__share_group_state`, which is made when it is first needed; whoever leads
that has its shard. What waits for the same partition goes to it together, one request at a time: so calls for a key
take effect in their order, and many share one commit. An answer that was lost is asked for again, and the shard knows
by the document's number what it has.

Invariant: a call that returned is kept by all replicas in sync. One that raised FencedState never takes effect, nor
does any later one of its writer. One that raised CoordinatorUnavailable may; until a whole document is kept, or the key
is loaded anew, changes behind it are refused.
Driven by the machines' drivers, by the metadata log through `follow`, and by other brokers through the cluster's door.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from crc32c import crc32c

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.state_shard import UNAVAILABLE, Begun, StateShard, Surroundings
from millpond.core.delivery.kept import (
    Answer,
    Find,
    Forget,
    ForgetGroup,
    Keep,
    Load,
    Outcome,
    Request,
    StateKey,
    Writer,
)
from millpond.core.metadata.controller import auto_create
from millpond.core.metadata.image import Image
from millpond.core.metadata.internal_topics import STATES
from millpond.model.errors import BatchTooLarge, CoordinatorUnavailable, FencedState, MillpondError
from millpond.model.ids import TopicPartition
from millpond.model.limits import MIB, STATE_DOCUMENT_BYTES_MAX
from millpond.model.ports import Clock, Rng
from millpond.model.values import dataclass

__all__ = ["StateKey", "States"]

PATIENCE_SECONDS: Final = 30.0
"""How long a call may look for the leader, and wait for replicas."""
TRY_SECONDS: Final = 1.5
"""How long one attempt may take: less than other brokers wait for an answer."""
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.5
REQUEST_BYTES_MAX: Final = MIB
"""Asked in one go; one document may be larger."""
KEYS_REMEMBERED: Final = 1_000
"""Whose places need not be worked out again."""

AskLeader = Callable[[int, int, Sequence[Request], float], Awaitable[list[Answer] | None]]
"""Asks the broker that leads a partition; None where it has no answer, or none came by a time. Raises nothing."""


async def ask_nobody(leader: int, number: int, requests: Sequence[Request], until: float) -> list[Answer] | None:
    """For a broker that is alone."""
    return None


@dataclass(slots=True)
class _Writing:
    """What a key's writer has sent."""

    writer: Writer
    sequence: int = 0
    whole: int = 0
    """Number of the last whole document; the loaded ones count as number 0."""
    failed: int = -1
    """Number of the last document that may not be kept."""

    @property
    def needs_whole(self) -> bool:
        return self.failed >= self.whole


Answered = Callable[[Answer | CoordinatorUnavailable], None]
"""Is told what became of a request; may not raise."""


@dataclass(slots=True)
class _Waiting:
    request: Request
    until: float
    answered: Answered


class States:
    def __init__(
        self,
        metadata: MetadataLog,
        partitions: PartitionTable,
        *,
        static: Mapping[str, str],
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
        ask_leader: AskLeader = ask_nobody,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._metadata = metadata
        self._partitions = partitions
        self._static = static
        self._clock = clock
        self._rng = rng
        self._ask_leader = ask_leader
        self._shared = Surroundings(clock, self._has_topic, on_error)
        self._shards: dict[int, StateShard] = {}
        self._writing: dict[StateKey, _Writing] = {}
        self._last_session = 0
        self._queues: dict[int, deque[_Waiting]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._under_way: dict[int, object] = {}
        """What was begun here at once, and is not answered yet; a mark for each."""

    # What machines ask

    async def load(self, key: StateKey, epoch: int) -> list[bytes]:
        """The last whole document and the changes since, in order; empty where there is nothing yet.

        From now on writers of an older epoch are fenced, and so is who loaded the key before in this one.
        """
        await self._make_place()
        writer = Writer(epoch, self._next_session())
        answer = await self._ask(self._partition_of(key), Load(key, writer))
        if answer.outcome is Outcome.FENCED and self._was_fenced_by_earlier_life(answer):
            writer = Writer(epoch, self._next_session())
            answer = await self._ask(self._partition_of(key), Load(key, writer))
        known = self._writing.get(key)
        if answer.outcome is not Outcome.DONE or (known is not None and known.writer.session > writer.session):
            raise _fenced(key, epoch)
        self._writing[key] = _Writing(writer)
        return list(answer.documents)

    def keep(self, key: StateKey, epoch: int, document: bytes, *, whole: bool) -> "asyncio.Future[None]":
        """Done when it is kept. A whole document stands for everything before it, a change comes behind it.

        What it does happens in the order of the calls, not in that in which they are awaited.
        """
        kept: asyncio.Future[None] = self._loop.create_future()

        def then(failure: Exception | None) -> None:
            if kept.done():
                return
            if failure is None:
                kept.set_result(None)
            else:
                kept.set_exception(failure)

        self.keep_then(key, epoch, document, whole=whole, then=then)
        return kept

    def keep_then(
        self, key: StateKey, epoch: int, document: bytes, *, whole: bool, then: Callable[[Exception | None], None]
    ) -> None:
        """The same for who needs no future: `then` is called once, perhaps before this returns, and may not raise."""
        writing = self._writing.get(key)
        refusal = _refusal(key, epoch, document, writing, whole=whole)
        if refusal is not None or writing is None:
            then(refusal)
            return
        writing.sequence += 1
        if whole:
            writing.whole = writing.sequence
        request = Keep(key, writing.writer, writing.sequence, bytes(document), whole)
        try:
            number = self._partition_of(key)
        except CoordinatorUnavailable as error:
            writing.failed = writing.sequence
            then(error)
            return
        self._ask_then(number, request, lambda answer: then(self._trouble(request, writing, answer)))

    def _trouble(self, request: Keep, writing: _Writing, answer: Answer | CoordinatorUnavailable) -> Exception | None:
        """Why a document is not kept, or may not be."""
        key, sequence = request.key, request.sequence
        if isinstance(answer, CoordinatorUnavailable):
            writing.failed = sequence
            return answer
        match answer.outcome:
            case Outcome.FENCED:
                if self._writing.get(key) is writing:
                    del self._writing[key]
                return _fenced(key, writing.writer.epoch)
            case Outcome.GAP:
                writing.failed = sequence
                return CoordinatorUnavailable(f"the change before this one was not kept for {key}; send a whole one")
            case Outcome.TOO_LARGE:
                writing.failed = sequence
                return BatchTooLarge(f"too many changes for {key}, or too large; send a whole document")
            case _:
                return None

    async def forget(self, key: StateKey) -> None:
        """What is kept for it, and its writer."""
        self._writing.pop(key, None)
        if self._has_place:
            await self._ask(self._partition_of(key), Forget(key))

    async def forget_group(self, kind: str, group: str) -> None:
        """The same for all its keys, wherever they are kept."""
        for key in [key for key in self._writing if (key.kind, key.group) == (kind, group)]:
            del self._writing[key]
        numbers = range(self._partition_count if self._has_place else 0)
        await asyncio.gather(*(self._ask(number, ForgetGroup(kind, group)) for number in numbers))

    async def find(
        self, kind: str, *, group: str | None = None, topic_id: bytes | None = None
    ) -> dict[StateKey, bytes]:
        """The last document of each key that is meant, as it is kept."""
        numbers = range(self._partition_count if self._has_place else 0)
        request = Find(kind, group, topic_id)
        answers = await asyncio.gather(*(self._ask(number, request) for number in numbers))
        return {
            key: document for answer in answers for key, document in zip(answer.keys, answer.documents, strict=True)
        }

    def _was_fenced_by_earlier_life(self, answer: Answer) -> bool:
        """An epoch has one leader. A session of it that is above all of this process was a process before it, when the
        clock was ahead; from now on this one counts from there."""
        fence = int.from_bytes(answer.documents[0], "big") if answer.documents else 0
        was_earlier = fence > self._last_session
        self._last_session = max(self._last_session, fence)
        return was_earlier

    def _next_session(self) -> int:
        """Greater than any before, also of an earlier life of this broker as far as its clock can tell."""
        self._last_session = max(self._last_session + 1, self._clock.wall_ms())
        return self._last_session

    # Where they are kept

    @property
    def _has_place(self) -> bool:
        return STATES in self._metadata.image.topics

    async def _make_place(self) -> None:
        if not self._has_place:
            await self._metadata.decide(lambda image: auto_create(image, [STATES], static=self._static, rng=self._rng))
        if not self._has_place:
            raise CoordinatorUnavailable(f"{STATES} could not be made; try again when more brokers are there")

    @property
    def _partition_count(self) -> int:
        return len(self._metadata.image.topics[STATES].partitions)

    def _partition_of(self, key: StateKey) -> int:
        place = self._metadata.image.topics.get(STATES)
        if place is None:
            raise CoordinatorUnavailable(f"{STATES} is gone; load {key} again")
        return _number_of(key) % len(place.partitions)

    def _has_topic(self, topic_id: bytes) -> bool:
        return topic_id in self._metadata.image.topics_by_id

    def follow(self, before: Image, after: Image) -> None:
        """Shards go with the partitions that keep them, and states with the topics that they are about."""
        for number in list(self._shards):
            self._shard(number)
        if before.topics_by_id == after.topics_by_id:
            return
        if gone := before.topics_by_id.keys() - after.topics_by_id.keys():
            for shard in self._shards.values():
                shard.forget_topics(gone)
            for key in [key for key in self._writing if key.topic_id in gone]:
                del self._writing[key]

    def _shard(self, number: int) -> StateShard | None:
        """Of a partition that this broker leads; another one for another epoch."""
        partition = self._partitions.named(STATES, number)
        shard = self._shards.get(number)
        is_led = partition is not None and partition.leading is not None
        if shard is not None and (not is_led or partition is None or partition.leader_epoch != shard.leader_epoch):
            self._shards.pop(number).close()
            shard = None
        if shard is None and is_led and partition is not None:
            shard = self._shards[number] = StateShard(partition, self._shared)
        return shard

    async def perform_here(self, number: int, requests: Sequence[Request], *, until: float) -> list[Answer] | None:
        """At this broker's shard; None where it has none, or nothing could be kept."""
        shard = self._shard(number)
        if shard is None:
            return None
        try:
            return await shard.perform(requests, until=until)
        except UNAVAILABLE:
            return None

    # Sending

    def _ask(self, number: int, request: Request) -> "asyncio.Future[Answer]":
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def settle(answer: Answer | CoordinatorUnavailable) -> None:
            if answered.done():
                return
            if isinstance(answer, CoordinatorUnavailable):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        self._ask_then(number, request, settle)
        return answered

    def _ask_then(self, number: int, request: Request, answered: Answered) -> None:
        """However it ends for the caller, it is sent in its turn: what comes behind it is numbered already."""
        waiting = _Waiting(request, self._loop.time() + PATIENCE_SECONDS, answered)
        self._queues.setdefault(number, deque()).append(waiting)
        self._send_soon(number)

    def _send_soon(self, number: int) -> None:
        """Not at once: what others ask in the same turn of the loop goes along."""
        if number not in self._senders and number not in self._under_way:
            self._under_way[number] = None
            self._loop.call_soon(self._send_here, number)

    def _send_here(self, number: int) -> None:
        """Without a task, where this broker keeps it, alone and in memory: that is a queue's every day."""
        queue, shard, begun = self._queues[number], self._shard(number), None
        if number not in self._under_way or not queue:
            self._under_way.pop(number, None)
            return
        if shard is not None:
            with suppress(MillpondError):  # what it is, and whether it passes, shows when it is tried again
                begun = shard.begin(_first(queue))
        if shard is None or begun is None:
            self._send_by_task(number, queue)
            return
        mark = self._under_way[number] = object()
        shard.after_sync(begun, lambda failure: self._sent_here(number, mark, shard, begun))

    def _sent_here(self, number: int, mark: object, shard: StateShard, begun: Begun) -> None:
        if self._under_way.get(number) is not mark:
            return  # closed meanwhile, and those who waited were told
        queue = self._queues[number]
        if not shard.finish(begun):
            self._send_by_task(number, queue)  # the shard knows by their numbers what it has
            return
        del self._under_way[number]
        for answer in begun.answers:
            queue.popleft().answered(answer)
        if queue:
            self._send_soon(number)

    def _send_by_task(self, number: int, queue: deque[_Waiting]) -> None:
        self._under_way.pop(number, None)
        self._senders[number] = self._loop.create_task(self._send(number, queue))

    async def _send(self, number: int, queue: deque[_Waiting]) -> None:
        pause = PAUSE_SECONDS_MIN
        try:
            while queue:
                requests = _first(queue)
                until = min(queue[0].until, self._loop.time() + TRY_SECONDS)
                answers = await self._perform(number, requests, until)
                if answers is not None:
                    pause = PAUSE_SECONDS_MIN
                    for answer in answers:
                        queue.popleft().answered(answer)
                    continue
                _give_up(queue, self._loop.time())
                if queue:
                    at = self._loop.time() + self._rng.uniform(pause / 2, pause)
                    await self._metadata.quorum.wait_change(min(queue[0].until, at))
                    pause = min(PAUSE_SECONDS_MAX, 2 * pause)
        finally:
            self._senders.pop(number, None)

    async def _perform(self, number: int, requests: Sequence[Request], until: float) -> list[Answer] | None:
        partition = self._metadata.image.partition(TopicPartition(STATES, number))
        if partition is None or partition.leader < 0:
            return None
        if partition.leader == self._metadata.quorum.raft.node_id:
            return await self.perform_here(number, requests, until=until)
        return await self._ask_leader(partition.leader, number, requests, until)

    async def close(self) -> None:
        """Whoever waits is told that it is not known what became of it."""
        self._under_way.clear()
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
        for queue in self._queues.values():
            _give_up(queue, float("inf"))
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()


@lru_cache(KEYS_REMEMBERED)
def _number_of(key: StateKey) -> int:
    name = f"{key.group}\0{key.topic_id.hex()}\0{key.partition}"
    return int(crc32c(name.encode("utf-8", "surrogatepass")))


def _refusal(
    key: StateKey, epoch: int, document: bytes, writing: _Writing | None, *, whole: bool
) -> MillpondError | None:
    if writing is None or writing.writer.epoch != epoch:
        return FencedState(f"{key} is not loaded in epoch {epoch}, or has a newer writer; load it first")
    if len(document) > STATE_DOCUMENT_BYTES_MAX:
        return BatchTooLarge(f"a document of {len(document)} bytes; allowed are {STATE_DOCUMENT_BYTES_MAX}")
    if writing.needs_whole and not whole:
        return CoordinatorUnavailable(f"what comes before may not be kept for {key}; send a whole document")
    return None


def _fenced(key: StateKey, epoch: int) -> FencedState:
    return FencedState(f"a newer writer than that of epoch {epoch} has loaded {key}; this one is over")


def _first(queue: deque[_Waiting]) -> list[Request]:
    requests: list[Request] = []
    size = 0
    for waiting in queue:
        size += len(waiting.request.document) if isinstance(waiting.request, Keep) else 0
        if requests and size > REQUEST_BYTES_MAX:
            break
        requests.append(waiting.request)
    return requests


def _give_up(queue: deque[_Waiting], now: float) -> None:
    """Those whose time is up. They all had the same time, so they are the first."""
    while queue and queue[0].until <= now:
        queue.popleft().answered(
            CoordinatorUnavailable(f"{STATES} was not available in time; what was asked may be kept, or not")
        )
