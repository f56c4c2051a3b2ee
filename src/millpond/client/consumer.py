"""Reading messages, alone or as a member of a group.

    async with Consumer("localhost:9092", topics=["orders"], group="kitchen") as consumer:
        async for message in consumer:
            ...

Invariants: messages of a partition come in order. With a group each partition is read by one member at a time; it is
given up only when the application comes back for more, or when `process` is through with what it has of it, so that
what was dealt with is committed before another goes on from there.
A shell around membership.py and positions.py, which decide. Belongs to its loop, and to one task at a time.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from millpond.client.cluster import Cluster
from millpond.client.fetcher import Fetcher
from millpond.client.group import Group
from millpond.client.interceptors import Interceptors
from millpond.client.membership import Place, Subscription
from millpond.client.messages import Message
from millpond.client.offsets import EARLIEST, LATEST, offsets_at
from millpond.client.positions import UNKNOWN, Held, Positions
from millpond.client.processing import Handler, Order, Processing
from millpond.client.settings import ClientSettings, ConsumerSettings, check, check_options
from millpond.model.errors import ClientClosed, MillpondError, OffsetOutOfRange, UnknownMember, WrongUse
from millpond.model.ids import Offset, TopicPartition

Listener = Callable[[Collection[TopicPartition]], Awaitable[None] | None]
RECONCILE_SECONDS: Final = 0.5
_CLIENT_OPTIONS: Final = frozenset(ClientSettings.__dataclass_fields__)


class Consumer:
    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """The options are those of `ConsumerSettings` and `ClientSettings`; without a group it reads all partitions.

        `on_revoked` is called while the partitions are still this consumer's, unless they were taken from it.
        """
        check_options(options, ConsumerSettings, ClientSettings)
        client = {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
        own = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
        self._client_settings = ClientSettings.of(bootstrap, client)
        self._settings = ConsumerSettings(**own)
        named = [topics] if isinstance(topics, str) else list(topics)
        for each in named:
            check(isinstance(each, str), f"topics has {each!r}; names of topics are text")
        self._first = Subscription(frozenset(named), pattern)
        self._interceptors = Interceptors(self._settings.interceptors)
        self._is_seen = self._interceptors.see_receives
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._positions = Positions()
        self._current: Held | None = None
        """Whose messages are being taken one by one."""
        self._one: Message | None = None
        """The last of those."""
        self._wants_attention = False
        self._placing: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._commit_trouble: MillpondError | None = None
        self._processing: Processing | None = None
        self._group: Group | None = None
        self._cluster: Cluster
        self._fetcher: Fetcher
        self._is_open = False

    # From start to end

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._cluster = Cluster(self._client_settings)
        self._fetcher = Fetcher(
            self._cluster, self._positions, self._settings, on_news=self._news.set, on_unplaced=self._place_soon
        )
        try:
            await self._cluster.start()
            if self._settings.group is not None:
                self._group = Group(self._settings.group, self._cluster, self._settings, on_change=self._group_changed)
            self._is_open = True
            if self._first != Subscription():
                await self._subscribe(self._first)
        except BaseException:
            self._is_open = True
            await self.close(commit=False)
            raise
        if self._group is not None and self._settings.auto_commit:
            self._committing = self._loop.create_task(self._commit_now_and_then())

    async def close(self, *, commit: bool = True) -> None:
        """Commits what was handed out (with automatic commits), leaves the group, closes connections."""
        if not self._is_open:
            return
        self._is_open = False
        tasks = [task for task in (self._committing, self._placing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._group is not None:
            if self._settings.auto_commit:
                offsets = self._positions.handed() if commit else self._positions.done(one=self._one)
                await asyncio.gather(self._commit_changed(offsets), return_exceptions=True)
            await self._group.leave()
        await self._fetcher.close()
        await self._cluster.close()
        self._news.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(commit=error is None)

    # What to read

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """With a group: shares these topics with its other members. Without: reads all their partitions."""
        self._check_open()
        await self._subscribe(Subscription(frozenset(topics), pattern))

    async def _subscribe(self, subscription: Subscription) -> None:
        if self._group is not None:
            self._group.subscribe(subscription)
        elif subscription.pattern is not None:
            raise WrongUse("a pattern needs a group, whose coordinator matches it; name the topics, or a group")
        else:
            found = [await self._cluster.topic(name) for name in sorted(subscription.topics)]
            self._assign(
                [TopicPartition(each.name, number) for each in found for number in range(len(each.partitions))]
            )

    async def unsubscribe(self) -> None:
        """Commits what is dealt with (with automatic commits), leaves the group, and reads nothing more."""
        self._check_open()
        self._positions.settle()
        self._one = None
        await self._let_go(list(self._positions.held), is_lost=False)
        if self._group is not None:
            await self._group.leave()

    async def assign(self, *partitions: TopicPartition) -> None:
        """Reads exactly these, whatever others do; with a group its offsets are used, and no partitions are shared."""
        self._check_open()
        if self._group is not None and self._group.membership is not None:
            raise WrongUse(
                "this consumer has subscribed, and its group assigns; use another consumer to assign by hand"
            )
        for at in partitions:
            if not isinstance(at, TopicPartition):
                raise WrongUse(f'assign was given {at!r}; it takes partitions, such as TopicPartition("orders", 0)')
        for name in sorted({at.topic for at in partitions}):
            topic = await self._cluster.topic(name)
            for at in partitions:
                if at.topic == name and not 0 <= at.partition < len(topic.partitions):
                    raise WrongUse(f"topic {name} has partitions 0 to {len(topic.partitions) - 1}; there is no {at}")
        self._assign(partitions)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        self._positions.release([at for at in self._positions.held if at not in wanted])
        self._positions.hold(sorted(wanted))
        self._wants_attention = True
        self._place_soon()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions.held)

    def pause(self, *partitions: TopicPartition) -> None:
        """Nothing is handed out of these until `resume`; of all, where none are named."""
        for held in self._named(partitions):
            held.is_paused = True
        self._wants_attention = True

    def resume(self, *partitions: TopicPartition) -> None:
        for held in self._named(partitions):
            held.is_paused = False
        self._news.set()
        self._fetcher.wake()

    def seek(self, at: TopicPartition, offset: int) -> None:
        """The next message of this partition is the one at `offset`, or the first after it."""
        if offset < 0:
            raise WrongUse(f"offset is {offset}; it is at least 0. For start and end there are seek_to_start and _end")
        for held in self._named([at]):
            held.seek(offset)
        self._sought()

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """The next message is the first not older than this; of all partitions, where none are named."""
        for held in self._named(partitions):
            held.seek_to_time(max(timestamp_ms, 0))
        self._sought()

    def seek_to_start(self, *partitions: TopicPartition) -> None:
        for held in self._named(partitions):
            held.seek_to_time(EARLIEST)
        self._sought()

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        for held in self._named(partitions):
            held.seek_to_time(LATEST)
        self._sought()

    def _sought(self) -> None:
        self._one = None
        self._positions.settle()
        self._wants_attention = True
        self._place_soon()

    def _named(self, partitions: Collection[TopicPartition]) -> list[Held]:
        self._check_open()
        held = self._positions.held
        for at in partitions:
            if at not in held:
                there = ", ".join(map(str, held)) or "none"
                raise WrongUse(f"{at} is not assigned to this consumer at the moment; assigned are: {there}")
        return [held[at] for at in partitions] if partitions else list(held.values())

    # Reading

    async def poll(self, max_records: int = 1_000, timeout: float = 1.0) -> list[Message]:  # noqa: ASYNC109
        """Up to `max_records` messages, as soon as there are any; none where none come within `timeout` seconds.

        To come back for more says that the last ones are dealt with.
        """
        self._check_open()
        until = self._loop.time() + timeout
        self._positions.settle()
        self._current = self._one = None
        while True:
            await self._attend()
            messages = self._positions.take(max_records)
            if messages:
                self._fetcher.wake()
                return self._seen(messages) if self._is_seen else messages
            if not await self._wait_for_news(until):
                return []

    def _seen(self, messages: list[Message]) -> list[Message]:
        """By the interceptors; where one raises, these messages come again."""
        try:
            return list(map(self._interceptors.receive, messages))
        except BaseException:
            first: dict[TopicPartition, int] = {}
            for each in messages:
                first.setdefault(each.at, each.offset)
            for at, offset in first.items():
                self._positions.held[at].seek(offset)
            self._place_soon()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        held = self._current
        if held is None or held.index >= len(held.messages) or self._wants_attention:
            held = await self._next_held()
        message = held.messages[held.index]
        if self._is_seen:
            self._one = message
            message = self._interceptors.receive(message)  # where it raises, the message comes again
        held.index += 1
        self._one = message
        return message

    async def _next_held(self) -> Held:
        self._check_open()
        self._positions.settle()
        self._one = None
        while True:
            await self._attend()
            self._current = held = self._positions.next_with_messages()
            self._fetcher.wake()
            if held is not None:
                return held
            await self._wait_for_news(None)

    async def _wait_for_news(self, until: float | None) -> bool:
        """Whether it is worth looking again."""
        self._place_soon()
        self._news.clear()
        if self._wants_attention:
            return True
        timer = None if until is None else self._loop.call_at(until, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._check_open()
        return until is None or self._loop.time() < until or self._positions.has_some

    async def process(self, handler: Handler, *, concurrency: int = 16, order: Order = "key") -> None:
        """Calls `handler` for every message, up to `concurrency` at once, until it raises or this is cancelled.

        Messages with the same key (or of the same partition) are handled one after another, in order; with `none` any
        may be handled beside any. Only what is handled is committed, and reading waits for handling.
        """
        self._check_open()
        if self._processing is not None:
            raise WrongUse("this consumer processes already; one call of process() at a time")
        self._processing = Processing(
            handler,
            concurrency=concurrency,
            order=order,
            positions=self._positions,
            poll=self.poll,
            attend=self._attend,
        )
        try:
            await self._processing.run()
        finally:
            self._processing = None
            self._positions.settle()
            self._fetcher.wake()

    # The group's side

    def _group_changed(self) -> None:
        self._wants_attention = True
        self._news.set()
        if self._processing is not None:
            self._processing.wake()

    async def _attend(self) -> None:
        """Everything that has to happen between two messages."""
        if self._commit_trouble is not None:
            trouble, self._commit_trouble = self._commit_trouble, None
            raise trouble
        if not self._wants_attention:
            return
        self._wants_attention = False
        group = self._group
        if group is None or group.membership is None:
            return
        if group.is_lost:
            group.is_lost = False
            await self._let_go(list(self._positions.held), is_lost=True)
        if group.membership.failure is not None:
            raise group.membership.failure
        if group.membership.target is not None:
            await self._reconcile(group, group.membership.target)

    async def _reconcile(self, group: Group, target: frozenset[Place]) -> None:
        """Gives up first, then takes; only then the coordinator hears of it."""
        names = self._cluster.view.names
        if any(each.topic_id not in names for each in target):
            await asyncio.gather(self._cluster.refresh(None), return_exceptions=True)
            names = self._cluster.view.names
        known = frozenset(each for each in target if each.topic_id in names)
        wanted = {TopicPartition(names[each.topic_id], each.partition) for each in known}
        gone = [at for at in self._positions.held if at not in wanted]
        if gone:
            await self._let_go(gone, is_lost=False)
        if group.is_lost:
            self._wants_attention = True
            return
        new = [held.at for held in self._positions.hold(sorted(wanted))]
        group.own(known)
        if known != target:  # nobody could say which topic it is; it is asked again, unless the topic goes meanwhile
            self._loop.call_later(RECONCILE_SECONDS, self._group_changed)
        if new:
            self._place_soon()
            await _call(self._on_assigned, new)

    async def _let_go(self, places: list[TopicPartition], *, is_lost: bool) -> None:
        if self._processing is not None and not is_lost:
            await self._processing.finish(places)
        if not is_lost and self._settings.auto_commit and self._group is not None:
            done = self._positions.done(one=self._one)
            await asyncio.gather(
                self._commit_changed({at: done[at] for at in places if at in done}), return_exceptions=True
            )
        await _call(self._on_revoked, places)
        self._positions.release(places)
        if self._processing is not None:
            self._processing.forget(places)
        for at in places:
            self._committed.pop(at, None)
        if self._current is not None and not self._current.is_held:
            self._current = None

    # Where to begin

    def _place_soon(self) -> None:
        if self._placing is None and any(each.fetch_at == UNKNOWN for each in self._positions.held.values()):
            self._placing = self._loop.create_task(self._place())
        self._fetcher.wake()

    async def _place(self) -> None:
        """Finds out where to begin, in every partition that has no place yet."""
        try:
            while unplaced := [
                each for each in self._positions.held.values() if each.fetch_at == UNKNOWN and each.error is None
            ]:
                try:
                    await self._place_these(unplaced)
                except MillpondError as error:
                    if not error.retriable:
                        for held in unplaced:
                            held.error = error
                        self._news.set()
                        return
                    await asyncio.sleep(self._client_settings.backoff.pause(3, self._client_settings.rng))
        finally:
            self._placing = None
        self._fetcher.wake()

    async def _place_these(self, unplaced: list[Held]) -> None:
        unsaid = [each for each in unplaced if each.seek_time is None]
        if unsaid and self._group is not None:
            committed = await self._group.committed([each.at for each in unsaid])
            for held in unsaid:
                if held.at in committed and held.fetch_at == UNKNOWN and held.seek_time is None:
                    held.seek(committed[held.at])
                    self._committed[held.at] = committed[held.at]
        for held in unsaid:
            if held.fetch_at == UNKNOWN and held.seek_time is None:
                self._reset(held)
        moments = {each: each.seek_time for each in unplaced if each.seek_time is not None}
        if moments:
            found = await offsets_at(self._cluster, {held.at: moment for held, moment in moments.items()})
            for held, moment in moments.items():
                if held.seek_time == moment and held.at in found:
                    held.seek(found[held.at])

    def _reset(self, held: Held) -> None:
        match self._settings.reset:
            case "earliest":
                held.seek_to_time(EARLIEST)
            case "latest":
                held.seek_to_time(LATEST)
            case "error":
                held.error = OffsetOutOfRange(
                    f"group {self._settings.group} has committed no offset of {held.at}; commit one, seek, or say with "
                    "reset where to begin"
                )
                self._news.set()

    # Committing

    async def commit(self, what: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Everything handed out so far; or up to and with one message; or the offsets given, to go on from."""
        self._check_open()
        if self._group is None:
            raise WrongUse("offsets are kept for groups; give the consumer one to commit")
        if what is None:
            offsets: Mapping[TopicPartition, int] = self._positions.handed()
        elif isinstance(what, Message):
            offsets = {what.at: what.offset + 1}
        else:
            offsets = what
        await self._group.commit(offsets)
        self._committed.update(offsets)
        self._tell_committed(offsets)

    async def _commit_changed(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert self._group is not None
        changed = {at: offset for at, offset in offsets.items() if self._committed.get(at) != offset}
        await self._group.commit(changed)
        self._committed.update(changed)
        self._tell_committed(changed)

    def _tell_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """What an interceptor does with it is no reason not to commit again."""
        try:
            if offsets:
                self._interceptors.committed(offsets)
        except Exception as error:
            told = {"message": "an interceptor raised when it was told of a commit", "exception": error}
            self._loop.call_exception_handler(told)

    async def commit_done(self) -> None:
        """Everything that is dealt with, as automatic commits do."""
        await self._commit_changed(self._positions.done(one=self._one))

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.auto_commit_seconds)
            try:
                await self.commit_done()
            except MillpondError as error:
                # A member put out joins again, a coordinator comes back; what was not committed is read again.
                if not error.retriable and not isinstance(error, UnknownMember):
                    self._commit_trouble = error
                    self._group_changed()

    # Looking

    def position(self, at: TopicPartition) -> Offset | None:
        """The offset of the next message; None until it is known."""
        (held,) = self._named([at])
        return None if held.position == UNKNOWN else Offset(held.position)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, Offset]:
        """Where the group would go on; partitions without a committed offset are left out."""
        self._check_open()
        if self._group is None:
            raise WrongUse("offsets are kept for groups; give the consumer one")
        return await self._group.committed(partitions or self._positions.held)

    async def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, Offset]:
        self._check_open()
        return await offsets_at(self._cluster, dict.fromkeys(partitions or self._positions.held, LATEST))

    async def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition are still to come, as of now."""
        ends = await self.end_offsets() if self._positions.held else {}
        return {
            at: max(0, end - position)
            for at, end in ends.items()
            if at in self._positions.held and (position := self._positions.held[at].position) != UNKNOWN
        }

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosed("this consumer is not open: use it inside `async with`, or call start() first")


async def _call(listener: Listener | None, places: Collection[TopicPartition]) -> None:
    if listener is not None and places:
        called = listener(places)
        if inspect.isawaitable(called):
            await called
