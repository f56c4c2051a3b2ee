"""Record batches as they lie on disk, put into a partition here, or by whoever leads it.

Invariant: a batch is answered only when its partition has kept it, as with acks=all on the Kafka wire.
Driven by the Messages servicer.
"""

import asyncio

from millpond.api.anywhere.neighbours import Neighbours
from millpond.broker.node import Node
from millpond.broker.operations.produce import TIMEOUT_MS, Pending, begin, finish, finish_now
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.model.errors import BrokerUnreachable, MillpondError, NotLeader
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millpond.protocol.records import parse_header

Kept = int | MillpondError
"""The base offset a batch got, or why it got none."""


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


async def _kept(pending: Pending) -> Kept:
    (produced,) = await finish([pending])
    return produced.error or produced.base_offset


def next_offset(data: memoryview) -> int:
    """Behind the last of some batches."""
    position = 0
    while True:
        header = parse_header(data, position)
        position += header.size
        if position >= len(data):
            return header.next_offset
