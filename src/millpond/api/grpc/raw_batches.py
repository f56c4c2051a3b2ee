"""Record batches as they lie on disk, into a partition and out of it, here or at whoever leads it.

Invariant: a batch is answered only when its partition has kept it, as with acks=all on the Kafka wire.
Driven by the Messages servicer.
"""

import asyncio
from typing import Final, NamedTuple

from millpond.api.http.neighbours import Neighbours
from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.broker.operations.fetch import Wanted, fetch
from millpond.broker.operations.produce import TIMEOUT_MS, Pending, begin, finish, finish_now
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.model.errors import BrokerUnreachable, MillpondError, NotLeader
from millpond.model.ids import NO_EPOCH, Offset, TopicPartition
from millpond.model.limits import MIB
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millpond.protocol.records import parse_header

BYTES_MAX: Final = 1 * MIB
"""Of one answer; one batch more, where it is larger."""

Kept = int | MillpondError
"""The base offset a batch got, or why it got none."""


class Batches(NamedTuple):
    data: memoryview
    next_offset: int
    high_watermark: int


class RawBatches:
    def __init__(self, node: Node, neighbours: Neighbours) -> None:
        self._node = node
        self._neighbours = neighbours
        self._loop = asyncio.get_running_loop()

    async def append(self, at: TopicPartition, batch: bytes) -> "asyncio.Future[Kept]":
        """Returns when it is in line behind those that were appended before."""
        partition = self._node.find(at.topic, NO_ID, at.partition)
        pending = begin(partition, batch, now_ms=self._node.clock.wall_ms(), acks_all=True)
        if not isinstance(pending.error, NotLeader):
            if (produced := finish_now([pending])) is None:
                return self._loop.create_task(_kept(pending))
            return self._known(produced[0].error or produced[0].base_offset)
        try:
            return self._known(await self._neighbours.cluster.retrying(lambda: self._forward(at, batch)))
        except MillpondError as error:
            return self._known(error)

    def _known(self, kept: Kept) -> "asyncio.Future[Kept]":
        answer = self._loop.create_future()
        answer.set_result(kept)
        return answer

    async def _forward(self, at: TopicPartition, batch: bytes) -> int:
        cluster = self._neighbours.cluster
        leader = cluster.view.leader_of(at)
        if leader is None:
            await cluster.refresh([at.topic])
            leader = cluster.view.leader_of(at)
        if leader is None:
            raise NotLeader(f"nobody leads {at} at the moment; ask again later")
        part = PartitionProduceData(index=at.partition, records=batch)
        topic = TopicProduceData(name=at.topic, topic_id=cluster.view.topics[at.topic].topic_id, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        try:
            answer = await cluster.ask(request, ProduceResponse, node=leader.node)
        except BrokerUnreachable:
            cluster.forget_leader(at, leader.node)
            raise
        kept = answer.responses[0].partition_responses[0]
        if kept.error_code in NEW_LEADER_CODES:
            cluster.forget_leader(at, leader.node)
        if kept.error_code:
            raise refusal(kept.error_code, kept.error_message, of=str(at))
        return kept.base_offset

    async def read(self, at: TopicPartition, offset: int, *, wait_ms: int) -> Batches:
        """Without data where the time is up first."""
        partition = self._node.find(at.topic, NO_ID, at.partition)
        if isinstance(partition, NotLeader) or (isinstance(partition, Partition) and not partition.is_led_here):
            data, high_watermark = await self._neighbours.fetch(at, offset, bytes_max=BYTES_MAX, wait_ms=wait_ms)
            return Batches(data, _next_offset(data, offset), high_watermark)
        wanted = Wanted(partition, Offset(offset), BYTES_MAX, NO_EPOCH)
        (fetched,) = await fetch([wanted], bytes_min=1, bytes_max=BYTES_MAX, wait_ms=wait_ms)
        if fetched.error is not None:
            raise fetched.error
        return Batches(fetched.data, fetched.next_offset, fetched.high_watermark)


async def _kept(pending: Pending) -> Kept:
    (produced,) = await finish([pending])
    return produced.error or produced.base_offset


def _next_offset(data: memoryview, offset: int) -> int:
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        offset = header.next_offset
        position += header.size
    return offset
