"""A topic as a queue: send, receive, and say what became of each message.

    async with Queue("localhost:9092", "jobs", group="workers") as queue:
        await queue.send(b"one coffee", delay=60)
        async for message in queue:
            await make(message.value)

In the loop a message is acknowledged when the next one is asked for, and given back when an error ends the `async with`
around it. It speaks Kafka's share groups (KIP-932) to the leaders of all partitions, and needs no coordinator.

Invariants: `receive` returns no more than asked for; what came beyond that, from several leaders at once, waits for the
next one. When a broker fails, its messages come again from whoever leads then.
Belongs to its loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

from millpond.client.admin import Admin
from millpond.client.cluster import Cluster
from millpond.client.connection import BrokerConnection
from millpond.client.messages import RecordMetadata
from millpond.client.producer import GivenHeaders, Producer
from millpond.client.settings import ClientSettings, check
from millpond.client.share_session import ACCEPT, REJECT, RELEASE, RENEW, Got, ShareSession
from millpond.model.errors import BrokerUnreachable, ClientClosed, LeaseLost, MillpondError, NotLeader, WrongUse
from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.protocol.records import Headers

POLL_WAIT_MS: Final = 250
"""What is acknowledged meanwhile waits so long at most: a broker answers a connection in order."""
ITERATION_SECONDS: Final = 5.0
DELAY: Final = "millpond-delay-ms"
ASKING_FOR_DELAY: Final = frozenset({DELAY, "millpond-deliver-at", "millpond-cron"})
MESSAGE_ID: Final = "millpond-message-id"
PRIORITY: Final = "millpond-priority"
TTL: Final = "millpond-ttl-ms"
STALE_PART: Final = 0.5
"""Of the lease: what has waited longer than this part of it is made to last before it is handed out."""

Priority = Literal["high", "normal", "low"] | int


class QueueMessage:
    """A message that is this consumer's until it is settled, or its time is up."""

    __slots__ = (
        "_kind",
        "_queue",
        "_session",
        "attempt",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(self, queue: "Queue", session: ShareSession, got: Got) -> None:
        self._queue = queue
        self._session = session
        self._kind: int | None = None
        self.topic: str = queue.topic
        self.partition: int = got.partition
        self.attempt: int = got.attempt
        """1 for the first."""
        self.offset: Offset
        self.timestamp: TimestampMs
        self.key: bytes | None
        self.value: bytes | None
        self.headers: Headers
        self.offset, self.timestamp, self.key, self.value, self.headers = got.record

    @property
    def message_id(self) -> str:
        """Of one that was delayed, the one that its sender was told, as over HTTP."""
        place = f"{self.topic}/{self.partition}/"
        for name, value in self.headers:
            if name == MESSAGE_ID and value is not None and value.startswith(place.encode()):
                return value.decode(errors="replace")
        return f"{place}{self.offset}"

    @property
    def is_settled(self) -> bool:
        return self._kind is not None

    def __repr__(self) -> str:
        return f"<QueueMessage {self.message_id}, attempt {self.attempt}>"

    async def ack(self) -> None:
        """It is done. Raises `LeaseLost` where it was not this consumer's any more: it may be delivered again."""
        await self._settle(ACCEPT)

    async def nack(self, *, delay: float | None = None, error: str | None = None) -> None:
        """It shall be delivered again; after its last attempt it becomes a dead letter.

        Kafka's wire has no place for a delay or an error: the group's own backoff (`millpond.retry.backoff.ms`) holds
        in any case, so a delay is refused rather than forgotten. `error` is for callers' own records.
        """
        if delay is not None:
            raise WrongUse(
                f"nack with a delay of {delay:g} s: Kafka's wire has no place for it; leave it out and set the group's "
                "millpond.retry.backoff.ms, or give the message back over HTTP"
            )
        await self._settle(RELEASE)

    async def reject(self) -> None:
        """It is a dead letter now, whatever attempts are left."""
        await self._settle(REJECT)

    async def extend(self) -> None:
        """It is this consumer's for the group's whole `share.record.lock.duration.ms` again, from now on."""
        self._check_open()
        self._session = await self._queue._tell(self._session, self, RENEW)

    async def _settle(self, kind: int) -> None:
        self._check_open()
        self._kind = kind
        self._session = await self._queue._tell(self._session, self, kind)

    def _check_open(self) -> None:
        if self._kind is not None:
            raise WrongUse(f"{self.message_id} was settled before; say one thing of each message")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Acknowledged, or given back where an error came; unless it was settled inside."""
        if not self.is_settled:
            await (self.ack() if error is None else self.nack())


class _Waiting(NamedTuple):
    message: QueueMessage
    until: float
    """By the loop's clock: after that it is not certain that it is still held."""


class Queue:
    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        topic: str = "",
        *,
        group: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """The options are those of `ClientSettings`. Who only sends needs no group."""
        check(bool(topic), "a queue needs the name of its topic")
        check(group != "", "group is empty; leave it out, or name one")
        self.topic = topic
        self.group = group
        self._bootstrap = bootstrap
        self._options = options
        self._settings = ClientSettings.of(bootstrap, options)
        self._cluster: Cluster
        self._producer: asyncio.Task[Producer] | None = None
        self._sessions: dict[int, ShareSession] = {}
        self._polls: dict[int, asyncio.Task[None]] = {}
        self._buffer: deque[_Waiting] = deque()
        self._current: QueueMessage | None = None
        """The one that the application's loop is at."""
        self._failures = 0
        self._trouble: MillpondError | None = None
        self._looked_at = 0.0
        self._is_open = False
        self._delays = False
        """Whether the topic is known to delay messages."""

    # From start to end

    async def start(self) -> None:
        """Connects; raises `BrokerUnreachable` where nobody answers."""
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(self._settings)
        self._opening = asyncio.Lock()
        self._member_id = f"{self._settings.rng.getrandbits(128):032x}"
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        """What was received and not settled is for others at once."""
        if not self._is_open:
            return
        self._is_open = False
        for poll in self._polls.values():
            poll.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        if self._producer is not None:
            started = (await asyncio.gather(self._producer, return_exceptions=True))[0]
            if isinstance(started, Producer):
                await started.close()
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current, self._current = self._current, None
        if error is not None and current is not None and not current.is_settled:
            await asyncio.gather(current.nack(), return_exceptions=True)
        await self.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosed("this queue is not open: use it inside `async with`, or call start() first")

    # Sending

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = (),
        delay: float | None = None,
        priority: Priority | None = None,
        ttl: float | None = None,
    ) -> RecordMetadata:
        """Returns when it is kept. `delay` and `ttl` are in seconds; `priority` is high, normal or low, or 9 to 0.

        A topic that was never told whether it delays messages does, once one is sent with a delay.
        """
        self._check_open()
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        headers = [*pairs, *_asked(delay, priority, ttl)]
        if not self._delays and any(name in ASKING_FOR_DELAY for name, _ in headers):
            await self._require_delays()
        if self._producer is None:
            self._producer = self._loop.create_task(self._start_producer())
        producer = await asyncio.shield(self._producer)
        return await producer.send(self.topic, value, key=key, headers=headers)

    async def _require_delays(self) -> None:
        """A topic without delays would deliver at once what is to come later."""
        async with Admin(self._bootstrap, **self._options) as admin:
            await admin.let_delay(self.topic)
        self._delays = True

    async def _start_producer(self) -> Producer:
        producer = Producer(self._bootstrap, **self._options)
        await producer.start()
        return producer

    # Receiving

    async def receive(self, max: int = 10, wait: float = 0.0) -> list[QueueMessage]:  # noqa: A002
        """At most `max` messages; waits so many seconds for the first."""
        self._check_open()
        if self.group is None:
            raise WrongUse("who receives needs a group; name one when the queue is made")
        check(max >= 1, f"max is {max}; it is at least 1")
        check(wait >= 0, f"wait is {wait}; it is at least 0 seconds")
        return await self._receive(max, self._loop.time() + wait)

    async def _receive(self, count_max: int, until: float) -> list[QueueMessage]:
        was_asked = False
        while True:
            if found := await self._take(count_max):
                return found
            self._raise_trouble()
            left = max(0.0, until - self._loop.time())
            if was_asked and not left:
                return []
            was_asked = True
            await self._plan()
            self._poll_all(count_max, wait_ms=min(POLL_WAIT_MS, int(left * 1000)))
            if not self._polls:
                await self._pause(left)
            elif left:
                await asyncio.wait(self._polls.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.wait(self._polls.values())

    async def _take(self, count_max: int) -> list[QueueMessage]:
        """What has waited here for long is this consumer's for its whole time again, if it is still."""
        found: list[QueueMessage] = []
        while self._buffer and len(found) < count_max:
            message, until = self._buffer.popleft()
            if self._loop.time() >= until:
                try:
                    await message.extend()
                except MillpondError:
                    continue
            found.append(message)
        return found

    async def _plan(self) -> None:
        """Who leads what, as far as that is to be had."""
        age = self._loop.time() - self._looked_at
        topic = self._cluster.view.topics.get(self.topic)
        if (
            topic is not None
            and len(topic.led) == len(topic.partitions)
            and age < self._settings.metadata_age_seconds_max
        ):
            return
        if topic is None:
            await self._cluster.topic(self.topic)
        else:
            await asyncio.gather(self._cluster.refresh([self.topic]), return_exceptions=True)
        self._looked_at = self._loop.time()

    async def _pause(self, seconds_max: float) -> None:
        self._failures += 1
        await asyncio.sleep(min(seconds_max, self._settings.backoff.pause(self._failures, self._settings.rng)))

    def _poll_all(self, count_max: int, *, wait_ms: int) -> None:
        by_leader: dict[int, list[int]] = {}
        topic = self._cluster.view.topics.get(self.topic)
        for number in range(len(topic.partitions) if topic is not None else 0):
            leader = self._cluster.view.leader_of(TopicPartition(self.topic, number))
            if leader is not None:
                by_leader.setdefault(leader.node, []).append(number)
        for node, partitions in by_leader.items():
            if node not in self._polls:
                poll = self._loop.create_task(self._poll(node, partitions, count_max, wait_ms))
                self._polls[node] = poll
                poll.add_done_callback(partial(self._polled, node))

    def _polled(self, node: int, poll: "asyncio.Task[None]") -> None:
        del self._polls[node]
        if not poll.cancelled() and (error := poll.exception()) is not None:
            raise error  # a bug: the loop tells of it

    async def _poll(self, node: int, partitions: Iterable[int], count_max: int, wait_ms: int) -> None:
        asked_at = self._loop.time()
        try:
            session = await self._session(node)
            polled = await session.poll(partitions, count_max=count_max, wait_ms=wait_ms)
        except MillpondError as error:
            await self._failed(node, partitions, error)
            return
        self._failures = 0
        until = asked_at + STALE_PART * polled.lock_ms / 1000 + wait_ms / 1000
        self._buffer.extend(_Waiting(QueueMessage(self, session, got), until) for got in polled.messages)
        if polled.errors:
            first = next(iter(polled.errors.values()))
            await self._failed(node, polled.errors, first, session_is_over=False)

    async def _failed(
        self, node: int, partitions: Iterable[int], error: MillpondError, *, session_is_over: bool = True
    ) -> None:
        """The leaders are looked for anew, after a little while."""
        if session_is_over and (session := self._sessions.pop(node, None)) is not None:
            session.end(error)
        if not error.retriable and not isinstance(error, BrokerUnreachable) and not _is_session_code(error):
            self._trouble = error
        for each in partitions:
            self._cluster.forget_leader(TopicPartition(self.topic, each), node)
        self._failures += 1
        await asyncio.sleep(self._settings.backoff.pause(self._failures, self._settings.rng))

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    async def _session(self, node: int) -> ShareSession:
        async with self._opening:
            return await self._open_session(node)

    async def _open_session(self, node: int) -> ShareSession:
        topic = await self._cluster.topic(self.topic)
        session = self._sessions.get(node)
        if session is not None and session.is_open and session.topic_id == topic.topic_id:
            return session
        address = self._cluster.view.brokers.get(node)
        if address is None:
            raise BrokerUnreachable(f"it is not known where broker {node} is")
        connection = await BrokerConnection.open(
            address, client_id=self._settings.client_id, seconds_max=self._settings.connect_seconds_max
        )
        assert self.group is not None
        session = self._sessions[node] = ShareSession(
            connection,
            group=self.group,
            member_id=self._member_id,
            topic_id=topic.topic_id,
            seconds_max=self._settings.request_seconds_max,
        )
        return session

    async def _tell(self, session: ShareSession, message: QueueMessage, kind: int) -> ShareSession:
        """To who handed it out; or, where that broker is gone, to who leads now, and knows of the lease."""
        try:
            await session.tell(message.partition, message.offset, kind)
        except (BrokerUnreachable, NotLeader):
            self._check_open()
            return await self._cluster.retrying(lambda: self._tell_leader(message, kind))
        return session

    async def _tell_leader(self, message: QueueMessage, kind: int) -> ShareSession:
        await self._plan()
        at = TopicPartition(self.topic, message.partition)
        leader = self._cluster.view.leader_of(at)
        if leader is None:
            raise NotLeader(f"nobody leads {at} at the moment; try again later")
        try:
            session = await self._session(leader.node)
            if not session.is_begun:
                await session.begin()
            await session.tell(message.partition, message.offset, kind)
        except (BrokerUnreachable, NotLeader):
            self._cluster.forget_leader(at, leader.node)
            raise
        return session

    async def ack(self, *messages: QueueMessage) -> None:
        """Many at once, in as few requests as there are leaders. Raises the first refusal; the others are done."""
        outcomes = await asyncio.gather(*(each.ack() for each in messages), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    # One by one

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        """For ever. The one before is acknowledged when the next is asked for, unless it was settled meanwhile."""
        while True:
            for message in await self.receive(1, ITERATION_SECONDS):
                self._current = message
                yield message
                self._current = None
                if not message.is_settled:
                    with suppress(LeaseLost):  # it comes again: nothing that the loop could do about it
                        await message.ack()


def _is_session_code(error: MillpondError) -> bool:
    """The broker does not know the session, or not this step of it: another one is opened."""
    return getattr(error, "code", None) in (122, 123)


def _asked(delay: float | None, priority: Priority | None, ttl: float | None) -> list[tuple[str, bytes]]:
    """What a message asks of its queue, as headers."""
    for name, span in (("delay", delay), ("ttl", ttl)):
        check(span is None or isinstance(span, int | float), f"{name} is {span!r}; it is a number of seconds")
    check(delay is None or delay >= 0, f"delay is {delay}; it is at least 0 seconds")
    check(ttl is None or ttl > 0, f"ttl is {ttl}; it is more than 0 seconds")
    check(
        priority is None or priority in ("high", "normal", "low") or (isinstance(priority, int) and 0 <= priority <= 9),
        f"priority is {priority!r}; it is high, normal or low, or 0 to 9",
    )
    asked: list[tuple[str, bytes]] = []
    if delay is not None:
        asked.append((DELAY, b"%d" % round(delay * 1000)))
    if priority is not None:
        asked.append((PRIORITY, str(priority).encode()))
    if ttl is not None:
        asked.append((TTL, b"%d" % max(1, round(ttl * 1000))))
    return asked
