"""The client for programs without an event loop: the same classes, whose calls block.

    with Producer("localhost:9092") as producer:
        producer.send("orders", b"one coffee")

Each client has a thread with a loop of its own, and everything happens there; calls may come from any thread, though a
consumer belongs to one at a time, as ever.
Invariant: nothing is decided here. What differs from `millpond.client` is only who waits, and how.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from millpond.client.admin import Admin as AsyncAdmin
from millpond.client.consumer import Consumer as AsyncConsumer
from millpond.client.delivery import Delivery
from millpond.client.messages import Message, RecordMetadata
from millpond.client.producer import GivenHeaders
from millpond.client.producer import Producer as AsyncProducer
from millpond.client.queue import Queue as AsyncQueue
from millpond.client.queue import QueueMessage as AsyncQueueMessage
from millpond.model.errors import ClientClosed, MillpondError
from millpond.model.ids import TopicPartition

P = ParamSpec("P")
Result = TypeVar("Result")
SENDS_WAITING_MAX: Final = 10_000
ITERATION_SECONDS: Final = 1.0


class _Client(Protocol):
    async def start(self) -> None: ...


Inner = TypeVar("Inner", bound=_Client)


class _Face(Generic[Inner]):
    """A client, and the thread it lives in."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millpond-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._inner.start())
        except BaseException:
            self._end()
            raise

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """In the client's loop, while this thread waits."""
        if self._loop is None:
            work.close()
            raise ClientClosed("this client is not open: use it inside `with`, or call start() first")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt ends the work as well as the waiting
            raise

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self


def _waiting(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[_Face[Inner], P], Result]:
    """The method, with the caller waiting for it."""

    @wraps(method)
    def call(self: _Face[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._run(method(self._inner, *args, **kwargs))

    return call


def _there(method: Callable[Concatenate[Inner, P], Result]) -> Callable[Concatenate[_Face[Inner], P], Result]:
    """The method, called in the client's own thread."""

    @wraps(method)
    def call(self: _Face[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        async def work() -> Result:
            return method(self._inner, *args, **kwargs)

        return self._run(work())

    return call


class Producer(_Face[AsyncProducer]):
    def __init__(self, bootstrap: str | Sequence[str] = "localhost:9092", **options: Any) -> None:  # noqa: ANN401
        """The options are those of `millpond.client.Producer`."""
        super().__init__(AsyncProducer(bootstrap, **options))
        self._sends: deque[tuple[Callable[[], Coroutine[Any, Any, Delivery]], Future[RecordMetadata]]] = deque()
        self._room = threading.Semaphore(SENDS_WAITING_MAX)
        self._lock = threading.Lock()
        self._is_sending = False
        self._sending: Future[None] | None = None

    send = _waiting(AsyncProducer.send)
    send_many = _waiting(AsyncProducer.send_many)
    partitions_of = _waiting(AsyncProducer.partitions_of)

    def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> "Future[RecordMetadata]":
        """Returns when there is room for it; the future has its place later, or what kept it from getting there."""
        if self._loop is None:
            raise ClientClosed("this producer is not open: use it inside `with`, or call start() first")
        self._room.acquire()
        future: Future[RecordMetadata] = Future()
        send = partial(
            self._inner.send_soon, topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )
        with self._lock:
            self._sends.append((send, future))
            begins = not self._is_sending
            self._is_sending = True
        if begins:
            self._sending = asyncio.run_coroutine_threadsafe(self._send_those(), self._loop)
        return future

    async def _send_those(self) -> None:
        """In the loop: hands over what was asked for, in order, until nothing is left."""
        while True:
            with self._lock:
                if not self._sends:
                    self._is_sending = False
                    return
                send, future = self._sends.popleft()
            try:
                delivery = await send()
                delivery.on_done(partial(_settle, future))
            except Exception as error:
                future.set_exception(error)
            finally:
                self._room.release()

    def flush(self) -> None:
        """Returns when everything sent so far is acknowledged, or has failed."""
        self._run(self._flush())

    async def _flush(self) -> None:
        if self._sending is not None:
            await asyncio.wrap_future(self._sending)
        await self._inner.flush()

    def close(self, *, flush: bool = True) -> None:
        if self._loop is not None:
            try:
                if flush:
                    self.flush()
                self._run(self._inner.close(flush=flush))
            finally:
                self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(flush=error is None or isinstance(error, Exception))


def _settle(future: "Future[RecordMetadata]", delivery: Delivery) -> None:
    try:
        future.set_result(delivery.result())
    except MillpondError as error:
        future.set_exception(error)


class Consumer(_Face[AsyncConsumer]):
    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """The options are those of `millpond.client.Consumer`."""
        super().__init__(AsyncConsumer(bootstrap, topics=topics, pattern=pattern, **options))
        self._polled: deque[Message] = deque()
        """Polled to be iterated over, and not reached yet."""
        self._one: Message | None = None

    subscribe = _waiting(AsyncConsumer.subscribe)
    unsubscribe = _waiting(AsyncConsumer.unsubscribe)
    committed = _waiting(AsyncConsumer.committed)
    end_offsets = _waiting(AsyncConsumer.end_offsets)

    def assign(self, *partitions: TopicPartition) -> None:
        self._put_back()
        self._run(self._inner.assign(*partitions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment

    def poll(self, max_records: int = 1_000, timeout: float = 1.0) -> list[Message]:
        self._put_back()
        return self._run(self._inner.poll(max_records, timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Waits for as long as it takes; polls many at a time, so that most messages cost nothing."""
        while not self._polled:
            self._one = None
            self._polled.extend(self._run(self._inner.poll(timeout=ITERATION_SECONDS)))
        self._one = self._polled.popleft()
        return self._one

    def _put_back(self) -> None:
        """What was polled and not reached is read again later."""
        self._one = None
        if self._polled:
            first: dict[TopicPartition, int] = {}
            for message in self._polled:
                first.setdefault(message.at, message.offset)
            self._polled.clear()
            self._run(self._seek_back(first))

    async def _seek_back(self, places: Mapping[TopicPartition, int]) -> None:
        for at, offset in places.items():
            if at in self._inner.assignment:
                self._inner.seek(at, offset)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._put_back()
        _there(AsyncConsumer.seek)(self, at, offset)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        self._put_back()
        _there(AsyncConsumer.seek_to_time)(self, timestamp_ms, *partitions)

    def seek_to_start(self, *partitions: TopicPartition) -> None:
        self._put_back()
        _there(AsyncConsumer.seek_to_start)(self, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._put_back()
        _there(AsyncConsumer.seek_to_end)(self, *partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self._put_back()
        _there(AsyncConsumer.pause)(self, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        _there(AsyncConsumer.resume)(self, *partitions)

    def position(self, at: TopicPartition) -> int | None:
        reached = next((each.offset for each in self._polled if each.at == at), None)
        return _there(AsyncConsumer.position)(self, at) if reached is None else reached

    def lag(self) -> dict[TopicPartition, int]:
        """How many messages of each partition are still to come, as of now."""
        waiting = [each.at for each in self._polled]
        return {at: behind + waiting.count(at) for at, behind in self._run(self._inner.lag()).items()}

    def commit(self, what: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Everything reached so far; or up to and with one message; or the offsets given, to go on from."""
        if what is None and self._polled:
            one = self._one
            self._put_back()
            self._one = one
        self._run(self._inner.commit(what))

    def close(self, *, commit: bool = True) -> None:
        if self._loop is not None:
            try:
                if not commit and self._one is not None:
                    self._polled.appendleft(self._one)
                self._put_back()
                self._run(self._inner.close())
            finally:
                self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(commit=error is None)


class QueueMessage:
    """A message that is this consumer's until it is settled, or its time is up."""

    __slots__ = ("_face", "_inner")

    def __init__(self, face: "Queue", inner: AsyncQueueMessage) -> None:
        self._face = face
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """`value`, `key`, `headers`, `attempt` and the rest are the message's own."""
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)

    def ack(self) -> None:
        self._face._run(self._inner.ack())

    def nack(self, *, delay: float | None = None, error: str | None = None) -> None:
        self._face._run(self._inner.nack(delay=delay, error=error))

    def reject(self) -> None:
        self._face._run(self._inner.reject())

    def extend(self) -> None:
        self._face._run(self._inner.extend())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._face._run(self._inner.__aexit__(kind, error, traceback))


class Queue(_Face[AsyncQueue]):
    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        topic: str = "",
        *,
        group: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """The options are those of `millpond.client.Queue`."""
        super().__init__(AsyncQueue(bootstrap, topic, group=group, **options))

    send = _waiting(AsyncQueue.send)

    def receive(self, max: int = 10, wait: float = 0.0) -> list[QueueMessage]:  # noqa: A002
        return [QueueMessage(self, each) for each in self._run(self._inner.receive(max, wait))]

    def ack(self, *messages: QueueMessage) -> None:
        """Many at once, for the price of one."""
        self._run(self._inner.ack(*(each._inner for each in messages)))

    def __iter__(self) -> Iterator[QueueMessage]:
        """For ever. The one before is acknowledged when the next is asked for, unless it was settled meanwhile."""
        messages = self._inner.__aiter__()
        while True:
            yield QueueMessage(self, self._run(_next(messages)))

    def close(self) -> None:
        self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._loop is not None:
            try:
                self._run(self._inner.__aexit__(kind, error, traceback))
            finally:
                self._end()


async def _next(messages: AsyncIterator[AsyncQueueMessage]) -> AsyncQueueMessage:
    return await anext(messages)


class Admin(_Face[AsyncAdmin]):
    def __init__(self, bootstrap: str | Sequence[str] = "localhost:9092", **options: Any) -> None:  # noqa: ANN401
        """The options are those of `millpond.client.Admin`."""
        super().__init__(AsyncAdmin(bootstrap, **options))

    create_topic = _waiting(AsyncAdmin.create_topic)
    delete_topic = _waiting(AsyncAdmin.delete_topic)
    add_partitions = _waiting(AsyncAdmin.add_partitions)
    topics = _waiting(AsyncAdmin.topics)
    describe_topic = _waiting(AsyncAdmin.describe_topic)
    describe_topics = _waiting(AsyncAdmin.describe_topics)
    offsets_at = _waiting(AsyncAdmin.offsets_at)
    topic_configs = _waiting(AsyncAdmin.topic_configs)
    broker_configs = _waiting(AsyncAdmin.broker_configs)
    alter_topic = _waiting(AsyncAdmin.alter_topic)
    group_configs = _waiting(AsyncAdmin.group_configs)
    alter_group = _waiting(AsyncAdmin.alter_group)
    alter_broker = _waiting(AsyncAdmin.alter_broker)
    delete_records = _waiting(AsyncAdmin.delete_records)
    groups = _waiting(AsyncAdmin.groups)
    describe_group = _waiting(AsyncAdmin.describe_group)
    group_offsets = _waiting(AsyncAdmin.group_offsets)
    group_lag = _waiting(AsyncAdmin.group_lag)
    reset_group = _waiting(AsyncAdmin.reset_group)
    delete_group = _waiting(AsyncAdmin.delete_group)
    cluster = _waiting(AsyncAdmin.cluster)
    let_delay = _waiting(AsyncAdmin.let_delay)
    delays = _waiting(AsyncAdmin.delays)
    cancel_delay = _waiting(AsyncAdmin.cancel_delay)
    reschedule_delay = _waiting(AsyncAdmin.reschedule_delay)

    def close(self) -> None:
        if self._loop is not None:
            try:
                self._run(self._inner.close())
            finally:
                self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
