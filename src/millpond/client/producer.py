"""Sending messages.

    async with Producer("localhost:9092") as producer:
        where = await producer.send("orders", b"one coffee", key=b"table 4")

`send` waits for the acknowledgement, `send_soon` only for room in the buffer, `send_many` sends very many at once.
Invariant: with acks of all (the default) a message that was acknowledged is in the log once, however often it had to be
sent, and messages of one partition are there in the order they were sent.
A shell around outbox.py, which decides. Belongs to the loop it was made in.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice, repeat
from types import TracebackType
from typing import Any, Final, Self

from millpond.client.batches import RECORD_BYTES_EXTRA, Batch, record_bytes
from millpond.client.cluster import Cluster
from millpond.client.delivery import Delivery, finished
from millpond.client.interceptors import Interceptors, Outgoing
from millpond.client.messages import RecordMetadata, Written
from millpond.client.outbox import Outbox
from millpond.client.partitioners import choose
from millpond.client.sender import Sender
from millpond.client.settings import ClientSettings, ProducerSettings, check_options
from millpond.model.errors import ClientClosed, MillpondError, WrongUse
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import Headers, NewRecord

GivenHeaders = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]

CHUNK_MESSAGES: Final = 1 << 16
"""Of `send_many`, looked at together."""
_CLIENT_OPTIONS: Final = frozenset(ClientSettings.__dataclass_fields__)

_NEW_RECORD: Final[Any] = partial(tuple.__new__, NewRecord)


class Producer:
    def __init__(self, bootstrap: str | Sequence[str] = "localhost:9092", **options: Any) -> None:  # noqa: ANN401
        """The options are those of `ProducerSettings` and `ClientSettings`."""
        check_options(options, ProducerSettings, ClientSettings)
        client = {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
        own = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
        self._client_settings = ClientSettings.of(bootstrap, client)
        self._settings = ProducerSettings(**own)
        self._partitioner = self._settings.make_partitioner()
        self._interceptors = Interceptors(self._settings.interceptors)
        self._is_seen = self._interceptors.see_sends
        self._wall_ms = self._client_settings.wall_ms
        self._places: dict[str, tuple[TopicPartition, ...]] = {}
        self._seen_version = -1
        self._sticky: dict[str, int] = {}
        self._outbox = Outbox(self._settings, backoff=self._client_settings.backoff, rng=self._client_settings.rng)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Who waits for how much room."""
        self._promised_bytes = 0
        self._cluster: Cluster
        self._sender: Sender
        self._keeping_fresh: asyncio.Task[None] | None = None
        self._is_open = False

    # From start to end

    async def start(self) -> None:
        """Connects; raises `BrokerUnreachable` where nobody answers."""
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(self._client_settings)
        self._sender = Sender(self._cluster, self._outbox, self._settings, on_progress=self._make_room)
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._keeping_fresh = self._loop.create_task(self._keep_fresh())
        self._is_open = True

    async def close(self, *, flush: bool = True) -> None:
        """Waits for everything that was sent, unless told not to; what is not acknowledged then is failed."""
        if not self._is_open:
            return
        if flush:
            await self.flush()
        self._is_open = False
        if self._keeping_fresh is not None:
            self._keeping_fresh.cancel()
            await asyncio.gather(self._keeping_fresh, return_exceptions=True)
        await self._sender.close()
        self._outbox.fail_everything(ClientClosed("the producer was closed before this was acknowledged"))
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(ClientClosed("the producer was closed while this waited for room"))
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(flush=error is None or isinstance(error, Exception))

    async def _keep_fresh(self) -> None:
        """So that new partitions are found without an error to point at them."""
        while True:
            await asyncio.sleep(self._client_settings.metadata_age_seconds_max)
            await asyncio.gather(self._cluster.refresh(list(self._cluster.view.topics)), return_exceptions=True)

    # Sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Returns when it is acknowledged, with its place; raises what kept it from getting there."""
        return await (
            await self.send_soon(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        )

    async def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Returns when there is room for it; the `Delivery` can be awaited, now, later or never."""
        seen: Outgoing | None = None
        if self._is_seen:
            pairs = _pairs(headers) if headers else ()
            seen = self._interceptors.send(Outgoing(topic, value, key, pairs, partition, timestamp))
            topic, value, key, headers, partition, timestamp = seen
        if (value is not None and type(value) is not bytes) or (key is not None and type(key) is not bytes):
            raise _not_bytes(value if type(value) is not bytes and value is not None else key)
        paired = _pairs(headers) if headers else ()
        if timestamp is not None:
            _check_timestamp(timestamp)
        size = record_bytes(value, key, paired)
        if not self._is_open or topic not in self._places:
            await self._learn(topic)
        if self._waiting or self._outbox.buffered_bytes + size > self._settings.buffer_bytes - self._promised_bytes:
            await self._room(size)
        at = self._place(topic, key, partition)
        stamp = TimestampMs(self._wall_ms() if timestamp is None else timestamp)
        batch, place = self._outbox.add(at, _NEW_RECORD((value, key, stamp, paired)), size, now=self._loop.time())
        self._sender.wake()
        delivery = Delivery(batch, place, stamp)
        if seen is not None:
            delivery.on_done(partial(self._tell, seen))
        return delivery

    def _tell(self, message: Outgoing, delivery: Delivery) -> None:
        """Called amid the work of a batch, which is not to suffer from what an interceptor does."""
        try:
            try:
                where = delivery.result()
            except MillpondError as error:
                self._interceptors.failed(message, error)
            else:
                self._interceptors.acknowledged(where)
        except Exception as error:
            told = {"message": "an interceptor raised when it was told of a message's end", "exception": error}
            self._loop.call_exception_handler(told)

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Written]:
        """Very many at once, in their order within each partition; returns when all are acknowledged.

        Values without keys are the fast way: they go batch by batch to one partition after another.
        """
        if not self._is_open or topic not in self._places:
            await self._learn(topic)
        if self._is_seen:
            return await self._send_many_seen(topic, values, keys, partition, timestamp)
        if timestamp is not None:
            _check_timestamp(timestamp)
        stamp = TimestampMs(self._wall_ms() if timestamp is None else timestamp)
        batches: list[Batch] = []
        values, keyed = iter(values), None if keys is None else iter(keys)
        while chunk := list(islice(values, CHUNK_MESSAGES)):
            if keyed is None and set(map(type, chunk)) == {bytes}:
                made = self._value_batches(topic, chunk, partition, stamp)
            else:
                chunk_keys = [None] * len(chunk) if keyed is None else list(islice(keyed, len(chunk)))
                made = self._record_batches(topic, chunk, chunk_keys, partition, stamp)
            for batch in made:
                await self._room(batch.size)
                self._outbox.add_batch(batch)
                self._sender.wake()
                batches.append(batch)
                await asyncio.sleep(0)
        if keyed is not None and next(keyed, _NOTHING) is not _NOTHING:
            raise WrongUse("send_many was given more keys than values; all values were sent")
        return await self._written(batches)

    async def _send_many_seen(
        self,
        topic: str,
        values: Iterable[bytes],
        keys: Iterable[bytes | None] | None,
        partition: int | None,
        timestamp: int | None,
    ) -> list[Written]:
        """One by one, since each may be changed; the interceptors' price."""
        deliveries = [
            await self.send_soon(topic, value, key=key, partition=partition, timestamp=timestamp)
            for value, key in zip(values, repeat(None) if keys is None else keys, strict=keys is not None)
        ]
        places = [await each for each in deliveries]
        return [Written(each.topic, each.partition, each.offset, 1) for each in places]

    async def flush(self) -> None:
        """Returns when everything sent so far is acknowledged, or has failed."""
        self._check_open()
        batches = self._outbox.seal()
        self._sender.wake()
        for batch in batches:
            await finished(batch)

    async def partitions_of(self, topic: str) -> int:
        await self._learn(topic)
        return len(self._places[topic])

    # Where to

    async def _learn(self, topic: str) -> None:
        self._check_open()
        if not isinstance(topic, str):
            raise WrongUse(f"topic is {topic!r}; it is a text")
        found = await self._cluster.topic(topic, create=self._settings.create_topics)
        self._places[topic] = tuple(TopicPartition(topic, number) for number in range(len(found.partitions)))

    def _place(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        if self._seen_version != self._cluster.view.version:
            self._look_again()
        places = self._places[topic]
        if partition is None:
            partition = choose(self._partitioner, topic, key, len(places))
            if partition is None:
                return self._stick(topic, places)
        elif not isinstance(partition, int):
            raise WrongUse(f"partition is {partition!r}; it is a whole number")
        elif not 0 <= partition < len(places):
            raise WrongUse(f"topic {topic} has partitions 0 to {len(places) - 1}; there is no {partition}")
        return places[partition]

    def _look_again(self) -> None:
        """Topics may have grown since."""
        self._seen_version = self._cluster.view.version
        for topic, places in self._places.items():
            known = self._cluster.view.topics.get(topic)
            if known is not None and len(known.partitions) != len(places):
                self._places[topic] = tuple(TopicPartition(topic, number) for number in range(len(known.partitions)))

    def _stick(self, topic: str, places: tuple[TopicPartition, ...]) -> TopicPartition:
        """The partition whose batch is open; else the next that somebody leads."""
        last = self._sticky.get(topic)
        if last is not None and last < len(places) and self._outbox.is_open(places[last]):
            return places[last]
        known = self._cluster.view.topics.get(topic)
        led = known.led if known is not None and known.led else range(len(places))
        if last is None:
            chosen = led[self._client_settings.rng.randrange(0, len(led))]
        else:
            chosen = led[bisect_right(led, last) % len(led)]
        self._sticky[topic] = chosen
        return places[chosen]

    # Many

    def _value_batches(
        self, topic: str, values: list[bytes], partition: int | None, stamp: TimestampMs
    ) -> Iterator[Batch]:
        ends = list(accumulate(map(RECORD_BYTES_EXTRA.__add__, map(len, values))))
        start, before = 0, 0
        while start < len(values):
            stop = max(start + 1, bisect_right(ends, before + self._settings.batch_bytes))
            now = self._loop.time()
            yield Batch.of_values(
                self._place(topic, None, partition),
                values[start:stop],
                size=ends[stop - 1] - before,
                timestamp=stamp,
                now=now,
                expires=now + self._settings.delivery_seconds_max,
            )
            start, before = stop, ends[stop - 1]

    def _record_batches(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        partition: int | None,
        stamp: TimestampMs,
    ) -> Iterator[Batch]:
        if len(keys) < len(values):
            raise WrongUse(f"send_many was given {len(keys)} keys for {len(values)} values; each value has one")
        for kind in set(map(type, values)) | set(map(type, keys)):
            if kind not in (bytes, type(None)):
                raise _not_bytes(kind())
        records: Iterator[NewRecord] = map(_NEW_RECORD, zip(values, keys, repeat(stamp), repeat(())))
        by_place: dict[TopicPartition, list[NewRecord]] = {}
        for record in records:
            by_place.setdefault(self._place(topic, record.key, partition), []).append(record)
        for at, mine in by_place.items():
            ends = list(accumulate(record_bytes(value, key, ()) for value, key, _, _ in mine))
            start, before = 0, 0
            while start < len(mine):
                stop = max(start + 1, bisect_right(ends, before + self._settings.batch_bytes))
                now = self._loop.time()
                expires = now + self._settings.delivery_seconds_max
                size = ends[stop - 1] - before
                yield Batch.of_records(at, mine[start:stop], size=size, now=now, expires=expires)
                start, before = stop, ends[stop - 1]

    @staticmethod
    async def _written(batches: Sequence[Batch]) -> list[Written]:
        done: list[Written] = []
        for batch in batches:
            await finished(batch)
            for part in batch.parts():
                assert part.outcome is not None
                if part.outcome.error is not None:
                    raise part.outcome.error.with_traceback(None)
                done.append(Written(batch.at.topic, batch.at.partition, part.outcome.base_offset, part.count))
        return done

    # Room

    async def _room(self, size: int) -> None:
        """Waits until the buffer has room, those first who came first. What is larger than the buffer has it alone."""
        if not self._waiting and self._fits(size):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((size, future))
        self._sender.wake()
        try:
            await future
        finally:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._promised_bytes -= size
            self._make_room()

    def _fits(self, size: int) -> bool:
        taken = self._outbox.buffered_bytes + self._promised_bytes
        return not taken or taken + size <= self._settings.buffer_bytes

    def _make_room(self) -> None:
        """Promises room to the first who wait."""
        while self._waiting:
            size, future = self._waiting[0]
            if not future.done():
                if not self._fits(size):
                    return
                self._promised_bytes += size
                future.set_result(None)
            self._waiting.popleft()

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosed("this producer is not open: use it inside `async with`, or call start() first")


_NOTHING: Final = object()
TIMESTAMP_MAX: Final = 2**63 - 1


def _pairs(headers: GivenHeaders) -> Headers:
    """Checked here: in a batch a wrong one would be found too late, and would hold up all others."""
    expected = "it is pairs of a name and bytes, or a mapping"
    try:
        pairs: tuple[Any, ...] = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    except TypeError:
        raise WrongUse(f"headers is {headers!r}; {expected}") from None
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WrongUse(f"headers has {pair!r}; {expected}")
        name, value = pair
        if not isinstance(name, str):
            raise WrongUse(f"a header's name is {name!r}; names of headers are text")
        if value is not None and not isinstance(value, bytes):
            raise WrongUse(
                f"header {name} is of type {type(value).__name__}; values of headers are bytes, so encode it"
            )
    return tuple((name, value) for name, value in pairs)


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, int) or not -1 <= timestamp <= TIMESTAMP_MAX:
        raise WrongUse(f"timestamp is {timestamp!r}; it is a whole number of milliseconds since 1970")


def _not_bytes(value: object) -> WrongUse:
    return WrongUse(
        f"a key or value is of type {type(value).__name__}; messages are bytes, so encode it first, as in "
        'b"text" or "text".encode()'
    )
