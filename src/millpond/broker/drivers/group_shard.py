"""The groups that one partition of `__consumer_offsets` keeps: runs their machines, keeps what they want kept.

Effects are performed in the order in which the machines gave them: an answer goes out once all before it is kept.

Invariant: no client is told of an offset, a generation or an assignment that a restart could forget. Where something
could not be kept, the machines are ahead of it: everybody is told, and they are loaded anew from what is kept.
Driven by groups.py, and by timers.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.core.groups.classic_events import JoinGroup, SyncGroup, Tick
from millpond.core.groups.consumer_events import Topic, TopicsChanged
from millpond.core.groups.effects import Effect, Noted, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets_format import decode, encode
from millpond.core.groups.records import OffsetCommitted, OffsetForgotten, Record
from millpond.core.groups.registry import ForGroup, GroupRegistry
from millpond.core.groups.requests import Request, refusal_for_now
from millpond.core.groups.settings import GroupSettings, Paces
from millpond.core.groups.stores import OffsetChange, OffsetStore
from millpond.model.errors import DiskFailed, InvalidRecord, NotEnoughReplicasAfterAppend, NotLeader, StorageError
from millpond.model.ids import Offset, TimestampMs
from millpond.model.instant import Instant
from millpond.model.limits import MIB
from millpond.model.ports import Clock, Rng
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches
from millpond.storage.log import Appended
from millpond.telemetry.groups import GroupFacts

IsOurs = Callable[[str], bool]
"""Whether this shard looks after the group of that name."""


class Surroundings(NamedTuple):
    """What all shards of a broker share."""

    clock: Clock
    rng: Rng
    settings: GroupSettings
    store: OffsetStore | None
    facts: GroupFacts
    on_error: Callable[[BaseException], None]


class _Waiting(NamedTuple):
    request: Request
    answer: "asyncio.Future[Any]"


class GroupShard:
    def __init__(
        self, partition: Partition, is_ours: IsOurs, paces_of: Callable[[str], Paces], shared: Surroundings
    ) -> None:
        self._partition = partition
        self.leader_epoch = partition.leader_epoch
        self._is_ours = is_ours
        self._paces_of = paces_of
        self._shared = shared
        self._topics: Mapping[str, Topic] = {}
        self._waiting: dict[Token, _Waiting] = {}
        self._tokens = map(Token, itertools.count(1))
        self._outbox: deque[Appended | list[OffsetChange] | Reply] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self.is_ahead = False
        """The machines have gone on from something that was not kept."""
        self.registry = self._new_registry()

    # Coming and going

    def load(self, topics: Mapping[str, Topic]) -> None:
        """Blocks while it reads the log; what a plugin keeps comes later, and requests wait for it."""
        self.is_ahead = False
        self._topics = topics
        records = [record for record in self._kept() if not self._is_elsewhere(record)]
        if self._shared.store is None:
            self._restore(records)
        else:
            self._loading = asyncio.get_running_loop().create_task(self._load_offsets(records, self._shared.store))

    async def _load_offsets(self, records: list[Record], store: OffsetStore) -> None:
        try:
            offsets = await store.load()
        except Exception as error:
            self._shared.on_error(error)
            self._fail()
        else:
            self._restore([*records, *(each for each in offsets if self._is_ours(each.group))])
        finally:
            self._loading = None

    def _restore(self, records: list[Record]) -> None:
        log = self._partition.log
        if self._partition.high_watermark < log.next_offset:
            # What an earlier leader wrote and nobody else may have: it is told once it cannot be lost any more.
            last = Offset(log.next_offset - 1)
            self._outbox.append(Appended(last, last, log.truncations))
        self.registry = self._new_registry()
        self._perform(self.registry.restore(records, self._topics, now=self._now()))

    def _new_registry(self) -> GroupRegistry:
        return GroupRegistry(self._shared.settings, self._shared.rng, now=self._now(), paces=self._paces_of)

    def _is_elsewhere(self, record: Record) -> bool:
        return self._shared.store is not None and isinstance(record, OffsetCommitted | OffsetForgotten)

    def close(self, error: GroupError = GroupError.NOT_COORDINATOR) -> None:
        """Whoever waits is told to look for the coordinator anew."""
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._sender, self._loading):
            if task is not None:
                task.cancel()
        self._refuse_all(error)

    # Asking

    def ask(self, group: str, make: Callable[[Token], Request]) -> Awaitable[Any]:
        """The answer to a request, which takes effect at once unless the shard is loading."""
        if not self._partition.is_led_here:  # else another may have the groups by now, and be ahead of what is here
            return _refused(make, GroupError.NOT_COORDINATOR)
        if self.is_ahead:
            self.load(self._topics)
        if self._loading is not None:
            return self._ask_later(group, make, self._loading)
        request = make(next(self._tokens))
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request.token] = _Waiting(request, answer)
        self._perform(self.registry.step(ForGroup(group, request), now=self._now()))
        return answer

    async def _ask_later(self, group: str, make: Callable[[Token], Request], loading: "asyncio.Task[None]") -> Any:  # noqa: ANN401 - as the machine says
        await asyncio.wait([loading])
        if self.is_ahead:
            return await _refused(make, GroupError.COORDINATOR_NOT_AVAILABLE)
        return await self.ask(group, make)

    def follow(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        if self._loading is None and not self.is_ahead:
            self._perform(self.registry.step(TopicsChanged(topics), now=self._now()))

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
                    self._shared.facts.note(fact)
        if self._outbox and self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())
        self._set_timer()

    def _keep(self, record: Record) -> None:
        if self.is_ahead:
            return
        if self._shared.store is not None and isinstance(record, OffsetCommitted | OffsetForgotten):
            is_free = len(self._outbox) > 1 or self._sender is None  # what the sender is busy with must not grow
            if is_free and self._outbox and isinstance(self._outbox[-1], list):
                self._outbox[-1].append(record)
            else:
                self._outbox.append([record])
            return
        key, value = encode(record)
        stamp = TimestampMs(self._shared.clock.wall_ms())
        try:
            batch = encode_batch([NewRecord(value, key=key, timestamp=stamp)])
            self._outbox.append(self._partition.append(bytearray(batch)))
        except (StorageError, NotLeader):
            self._fail()

    async def _send_all(self) -> None:
        try:
            while self._outbox:
                first = self._outbox[0]
                match first:
                    case Reply() as reply:
                        self._partition.require_leader()
                        self._send(reply)
                    case list() as changes:
                        await self._store(changes)
                    case appended:
                        await self._partition.wait_visible(appended)
                if self._outbox and self._outbox[0] is first:  # a failure empties it, and others may be in by now
                    self._outbox.popleft()
        except (StorageError, NotLeader, NotEnoughReplicasAfterAppend):
            self._fail()
        finally:
            self._sender = None

    async def _store(self, changes: list[OffsetChange]) -> None:
        assert self._shared.store is not None
        try:
            await self._shared.store.keep(changes)
        except Exception as error:  # a plugin may raise anything
            self._shared.on_error(error)
            raise DiskFailed(f"the offset store did not keep {len(changes)} changes: {error}") from error

    def _send(self, reply: Reply) -> None:
        waiting = self._waiting.pop(reply.to, None)  # none where a failure has answered it
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(reply.result)

    def _fail(self) -> None:
        """Everybody who waits is told to try again, and the machines are loaded anew when next asked."""
        self.is_ahead = True
        self._outbox.clear()
        self._refuse_all(GroupError.COORDINATOR_NOT_AVAILABLE)

    def let_go(self) -> None:
        """The broker stops: nobody waits for other members any more. Everything else is answered as ever."""
        for token, (request, answer) in list(self._waiting.items()):
            if isinstance(request, JoinGroup | SyncGroup) and not answer.done():
                del self._waiting[token]
                answer.set_result(refusal_for_now(request, GroupError.NOT_COORDINATOR).result)

    def _refuse_all(self, error: GroupError) -> None:
        waiting, self._waiting = self._waiting, {}
        for request, answer in waiting.values():
            if not answer.done():
                answer.set_result(refusal_for_now(request, error).result)

    # Time

    def _now(self) -> Instant:
        return Instant(self._shared.clock.monotonic_ms(), self._shared.clock.wall_ms())

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.registry.next_deadline
        if due is not None and not self.is_ahead:
            wait_seconds = max(0, due - self._shared.clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._perform(self.registry.step(Tick(), now=self._now()))

    # What is kept

    def _kept(self) -> Iterator[Record]:
        """A record that cannot be read is told of and left out: one bad record must not cost all groups."""
        log = self._partition.log
        at = log.start_offset
        while at < log.next_offset:
            part = log.read(Offset(at), bytes_max=MIB)
            for position, _ in iter_batches(part.data):
                for record in decode_batch(part.data, position):
                    try:
                        found = decode(record.key, record.value) if record.key is not None else None
                    except InvalidRecord as error:
                        self._shared.on_error(error)
                        continue
                    if found is not None:
                        yield found
            at = part.next_offset


async def _refused(make: Callable[[Token], Request], error: GroupError) -> Any:  # noqa: ANN401 - as the machine says
    return refusal_for_now(make(Token(0)), error).result
