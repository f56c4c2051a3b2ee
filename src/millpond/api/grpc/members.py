"""One member of a group, as long as its call lasts: it is told its partitions, is given messages, and commits.

A consumer of the Python client does the work, by the broker's own Kafka port: so coordinators and leaders are found as
they move, and members of every door share groups.
Invariants: nothing is committed that the caller did not say. Messages of a partition come only between an assignment
that has it and one that has not. Answers to commits come in their order.
Driven by the Messages servicer, one for each call; when that ends, for whatever reason, the member leaves its group.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from millpond.api.anywhere.refusals import Refusal, wrong
from millpond.api.grpc.consuming import fill
from millpond.api.grpc.failures import failure_of
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.client.consumer import Consumer
from millpond.client.messages import Message
from millpond.model.addresses import Address
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.model.limits import KIB, MIB
from millpond.model.ports import Clock, Rng

CLIENT_ID: Final = "millpond-grpc"
MESSAGES_PER_DELIVERY: Final = 500
DELIVERY_BYTES_MAX: Final = 512 * KIB
"""Of keys and values, unless one message alone has more."""
BUFFER_BYTES: Final = 2 * MIB
"""Read ahead for one member."""
POLL_SECONDS: Final = 1.0

Write = Callable[[wire.SubscribeResponse], Awaitable[None]]


class Member:
    def __init__(self, kafka: Address, clock: Clock, rng: Rng, write: Write) -> None:
        """`kafka` is where this broker's own Kafka port is reached."""
        self._kafka = kafka
        self._clock = clock
        self._rng = rng
        self._unguarded = write
        self._turn = asyncio.Lock()
        self._consumer: Consumer

    async def run(self, requests: AsyncIterator[wire.SubscribeRequest]) -> None:
        self._consumer = self._join(await anext(requests, None))
        async with self._consumer:
            loop = asyncio.get_running_loop()
            works = [loop.create_task(self._take_commits(requests)), loop.create_task(self._deliver())]
            try:
                done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
                for work in done:
                    work.result()
            finally:
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)

    def _join(self, first: wire.SubscribeRequest | None) -> Consumer:
        if first is None or first.WhichOneof("what") != "join":
            raise wrong("join", "the first request is no join; say which group and which topics")
        if not first.join.group or not first.join.topics:
            raise wrong("join", "the join has no group, or no topics; it needs both")
        return Consumer(
            str(self._kafka),
            topics=first.join.topics,
            group=first.join.group,
            reset="latest" if first.join.from_latest else "earliest",
            auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            buffer_bytes=BUFFER_BYTES,
            partition_bytes_max=BUFFER_BYTES // 2,
            client_id=CLIENT_ID,
            wall_ms=self._clock.wall_ms,
            rng=self._rng,
        )

    async def _write(self, response: wire.SubscribeResponse) -> None:
        async with self._turn:
            await self._unguarded(response)

    # What the caller is told

    async def _assigned(self, _new: Collection[TopicPartition]) -> None:
        await self._tell(self._consumer.assignment)

    async def _revoked(self, gone: Collection[TopicPartition]) -> None:
        await self._tell(self._consumer.assignment.difference(gone))

    async def _tell(self, places: Iterable[TopicPartition]) -> None:
        partitions = [wire.Partition(topic=at.topic, partition=at.partition) for at in sorted(places)]
        await self._write(wire.SubscribeResponse(assignment=wire.Assignment(partitions=partitions)))

    async def _deliver(self) -> None:
        while True:
            for delivery in _deliveries(await self._consumer.poll(MESSAGES_PER_DELIVERY, POLL_SECONDS)):
                await self._write(wire.SubscribeResponse(delivery=delivery))

    # What the caller says

    async def _take_commits(self, requests: AsyncIterator[wire.SubscribeRequest]) -> None:
        """One by one: those that come meanwhile wait in gRPC, and beyond its window at the caller's."""
        async for request in requests:
            if request.WhichOneof("what") != "commit":
                raise wrong("commit", "a member joins once; after that it commits, or ends the call")
            answer = wire.SubscribeResponse()
            try:
                await self._consumer.commit(self._checked(request.commit.offsets))
                answer.committed.CopyFrom(request.commit)
            except (MillpondError, Refusal) as error:
                answer.commit_failure.CopyFrom(failure_of(error).message())
            await self._write(answer)

    def _checked(self, offsets: Sequence[wire.Committed]) -> dict[TopicPartition, int]:
        said = {TopicPartition(each.topic, each.partition): each.offset for each in offsets}
        for at, offset in said.items():
            if offset < 0:
                raise wrong("offsets", f"the offset of {at} is {offset}; it is at least 0")
            if at not in self._consumer.assignment:
                raise Refusal(409, "not_assigned", f"{at} is not this member's, or no longer; nothing was committed")
        return said


def _deliveries(messages: Sequence[Message]) -> Iterator[wire.Delivery]:
    delivery, size = wire.Delivery(), 0
    for message in messages:
        more = len(message.key or b"") + len(message.value or b"")
        if size and size + more > DELIVERY_BYTES_MAX:
            yield delivery
            delivery, size = wire.Delivery(), 0
        fill(delivery.messages.add(), message, message.topic, message.partition)
        size += more
    if delivery.messages:
        yield delivery
