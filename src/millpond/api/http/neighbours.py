"""The rest of the cluster, as the HTTP door asks it: who leads a partition, who looks after a group.

A client of the cluster that this broker is part of, by its Kafka port: so a door asks another broker, or its own, as
any client would, and finds leaders and coordinators as they move. Nothing is opened before it is needed.
Invariant: what may wait long has a connection for itself; at most IDLE_MAX of those are kept for each broker.
Driven by the routes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from millpond.client.admin_groups import Groups
from millpond.client.cluster import Cluster
from millpond.client.connection import BrokerConnection
from millpond.client.producer import Producer
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.client.settings import ClientSettings
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable, NotLeader
from millpond.model.ids import TopicPartition
from millpond.model.ports import Clock, Rng
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millpond.protocol.messages.fields import Message
from millpond.protocol.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
            wall_ms=self._settings.wall_ms,
            rng=self._settings.rng,
        )
        await producer.start()
        return producer

    async def fetch(self, at: TopicPartition, offset: int, *, bytes_max: int, wait_ms: int) -> tuple[memoryview, int]:
        """Batches from the partition's leader, wherever that is, and the end of what can be read."""

        async def ask() -> tuple[memoryview, int]:
            cluster = self.cluster
            leader = cluster.view.leader_of(at)
            if leader is None:
                await cluster.refresh([at.topic])
                leader = cluster.view.leader_of(at)
            if leader is None:
                raise NotLeader(f"nobody leads {at} at the moment; ask again later")
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=bytes_max,
                topics=[FetchTopic(topic=at.topic, partitions=[_wanted(at, offset, bytes_max)])],
            )
            try:
                async with self._alone(leader.node) as connection:
                    seconds_max = wait_ms / 1000 + PATIENCE_SECONDS
                    answer = await connection.ask(request, FetchResponse, seconds_max=seconds_max)
            except BrokerUnreachable:
                cluster.forget_leader(at, leader.node)
                raise
            part = answer.responses[0].partitions[0]
            if part.error_code in NEW_LEADER_CODES:
                cluster.forget_leader(at, leader.node)
            if part.error_code:
                raise refusal(part.error_code, None, of=str(at))
            return memoryview(part.records or b""), part.high_watermark

        return await self.cluster.retrying(ask)

    @asynccontextmanager
    async def _alone(self, node: int) -> "AsyncIterator[BrokerConnection]":
        """A connection that nobody else uses meanwhile; whoever does not wait for its answer loses it."""
        idle = self._idle.setdefault(node, [])
        while idle and not idle[-1].is_open:
            idle.pop()
        if idle:
            connection = idle.pop()
        else:
            address = self.cluster.view.brokers.get(node)
            if address is None:
                raise BrokerUnreachable(f"it is not known where broker {node} is")
            connection = await BrokerConnection.open(
                address, client_id=CLIENT_ID, seconds_max=self._settings.connect_seconds_max
            )
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if len(idle) < IDLE_MAX:
            idle.append(connection)
        else:
            connection.close()

    async def ask_coordinator(self, group: str, request: Message, response_class: type[Result]) -> Result:
        return await self.cluster.ask_coordinator(group, request, response_class)  # type: ignore[type-var]

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


def _wanted(at: TopicPartition, offset: int, bytes_max: int) -> FetchPartition:
    return FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
