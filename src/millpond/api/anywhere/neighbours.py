"""The rest of the cluster, as the HTTP door asks it: who leads a partition, who looks after a group.

A client of the cluster that this broker is part of, by its Kafka port: so a door asks another broker, or its own, as
any client would, and finds leaders and coordinators as they move. Nothing is opened before it is needed.
Invariant: what may wait long has a connection for itself; at most IDLE_MAX of those are kept for each broker.
Driven by the routes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from millpond.client.admin_groups import Groups
from millpond.client.cluster import Cluster
from millpond.client.connection import BrokerConnection
from millpond.client.producer import Producer
from millpond.client.refusals import refusal
from millpond.client.settings import ClientSettings
from millpond.model.addresses import Address
from millpond.model.ids import TopicPartition
from millpond.model.ports import Clock, Rng
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millpond.protocol.records import NewRecord

CLIENT_ID: Final = "millpond-http"
PATIENCE_SECONDS: Final = 10.0
IDLE_MAX: Final = 8

Result = TypeVar("Result")


class Neighbours:
    def __init__(self, address: Address, clock: Clock, rng: Rng) -> None:
        """`address` is where this broker's own Kafka port is reached."""
        self._address = address
        self._settings = ClientSettings(
            bootstrap=(address,),
            client_id=CLIENT_ID,
            request_seconds_max=PATIENCE_SECONDS,
            retry_seconds_max=PATIENCE_SECONDS,
            wall_ms=clock.wall_ms,
            rng=rng,
        )
        self._cluster: Cluster | None = None
        self._producer: asyncio.Task[Producer] | None = None
        self._idle: dict[int, list[BrokerConnection]] = {}

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        return self._cluster

    async def ask_groups(self, work: Callable[[Groups], Awaitable[Result]]) -> Result:
        """Tried again while the coordinator is not to be had."""
        groups = Groups(self.cluster)
        return await self.cluster.retrying(lambda: work(groups))

    # Messages

    async def produce(self, at: TopicPartition, records: Sequence[NewRecord]) -> list[int]:
        """The offsets they got."""
        producer = await self._producing()
        deliveries = [
            await producer.send_soon(
                at.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=at.partition,
                timestamp=record.timestamp,
            )
            for record in records
        ]
        return [(await each).offset for each in deliveries]

    async def _producing(self) -> Producer:
        if self._producer is None or (self._producer.done() and self._producer.exception() is not None):
            self._producer = asyncio.get_running_loop().create_task(self._start_producer())
        return await asyncio.shield(self._producer)

    async def _start_producer(self) -> Producer:
        producer = Producer(
            str(self._address),
            client_id=CLIENT_ID,
            delivery_seconds_max=3 * PATIENCE_SECONDS,
            create_topics=False,
            wall_ms=self._settings.wall_ms,
            rng=self._settings.rng,
        )
        await producer.start()
        return producer

    async def fetch(
        self, node: int, address: Address, places: Mapping[TopicPartition, int], *, bytes_max: int, wait_ms: int
    ) -> dict[TopicPartition, memoryview]:
        """Batches from these offsets on, from the broker that leads the partitions; nothing of those that have none."""
        topics: dict[str, list[FetchPartition]] = {}
        for at, offset in places.items():
            wanted = FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
            topics.setdefault(at.topic, []).append(wanted)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            topics=[FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        )
        async with self._alone(node, address) as connection:
            answer = await connection.ask(request, FetchResponse, seconds_max=wait_ms / 1000 + PATIENCE_SECONDS)
        found: dict[TopicPartition, memoryview] = {}
        for topic in answer.responses:
            for part in topic.partitions:
                at = TopicPartition(topic.topic, part.partition_index)
                if part.error_code:
                    raise refusal(part.error_code, None, of=str(at))
                if part.records:
                    found[at] = memoryview(part.records)
        return found

    @asynccontextmanager
    async def _alone(self, node: int, address: Address) -> AsyncIterator[BrokerConnection]:
        """A connection that nobody else uses meanwhile; whoever does not wait for its answer loses it."""
        idle = self._idle.setdefault(node, [])
        while idle and not (idle[-1].is_open and idle[-1].address == address):
            idle.pop().close()
        if idle:
            connection = idle.pop()
        else:
            seconds_max = self._settings.connect_seconds_max
            connection = await BrokerConnection.open(address, client_id=CLIENT_ID, seconds_max=seconds_max)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(idle) < IDLE_MAX:
            idle.append(connection)
        else:
            connection.close()

    async def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        if self._producer is not None:
            started = (await asyncio.gather(self._producer, return_exceptions=True))[0]
            if isinstance(started, Producer):
                await started.close(flush=False)
        if self._cluster is not None:
            await self._cluster.close()
