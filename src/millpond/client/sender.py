"""Drives an outbox: finds leaders and producer ids, sends batches, tells what came of them.

Invariant: after every event (a message, an answer, a connection, a lost one, a timer) the outbox is looked at once
more, and everything it wants sent is sent.
Driven by producer.py and by the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from millpond.client.batches import Batch, Identity
from millpond.client.cluster import Cluster, Purpose
from millpond.client.connection import BrokerConnection
from millpond.client.outbox import Outbox
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.client.settings import ProducerSettings
from millpond.model.errors import BrokerUnreachable, MillpondError
from millpond.model.ids import ProducerEpoch, ProducerId, TopicPartition
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


class Sender:
    def __init__(
        self, cluster: Cluster, outbox: Outbox, settings: ProducerSettings, *, on_progress: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._outbox = outbox
        self._settings = settings
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._is_awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._errands: dict[object, asyncio.Task[None]] = {}
        """Things being found out, one task for each."""
        self._leaderless: set[str] = set()
        self._is_closed = False

    def wake(self) -> None:
        if not self._is_awake and not self._is_closed:
            self._is_awake = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_awake = False
        if self._is_closed:
            return
        now = self._loop.time()
        before = self._outbox.buffered_bytes
        taken = self._outbox.take(now=now, leader_of=self._node_for)
        if taken.wants_identity:
            self._run("identity", self._get_identity)
        if self._leaderless:
            self._run("leaders", self._find_leaders)
        for node, batches in taken.by_node.items():
            self._send(node, batches)
        if self._outbox.buffered_bytes < before:
            self._on_progress()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if taken.wake_at is not None:
            if taken.wake_at <= now:
                self.wake()
            else:
                self._timer = self._loop.call_at(taken.wake_at, self.wake)

    def _node_for(self, at: TopicPartition) -> int | None:
        """Who leads it, if there is a connection to that broker; where something is missing, it is seen to."""
        leader = self._cluster.view.leader_of(at)
        if leader is None:
            self._leaderless.add(at.topic)
            return None
        if self._cluster.ready(leader.node, Purpose.DATA) is None:
            self._run(leader.node, partial(self._connect, leader.node))
            return None
        return leader.node

    # Finding out

    def _run(self, errand: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if errand not in self._errands:
            self._errands[errand] = self._loop.create_task(self._until_done(errand, work))

    async def _until_done(self, errand: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One try of it, and a pause if it failed; then whoever still needs it asks again."""
        try:
            await work()
            self._outbox.trouble = None
        except MillpondError as error:
            self._outbox.trouble = error
            await asyncio.sleep(self._cluster.settings.backoff.pause(2, self._cluster.settings.rng))
        finally:
            del self._errands[errand]
        self.wake()

    async def _connect(self, node: int) -> None:
        try:
            await self._cluster.connection(node, Purpose.DATA)
        except BrokerUnreachable:
            await self._cluster.refresh(list(self._cluster.view.topics))
            raise

    async def _find_leaders(self) -> None:
        topics, self._leaderless = self._leaderless, set()
        refused = await self._cluster.refresh(topics)
        for topic, code in refused.items():
            raise refusal(code, None, of=f"topic {topic}")
        if any(len(each.led) < len(each.partitions) for each in self._cluster.view.topics.values()):
            raise refusal(5, "an election may be under way", of="some partitions have no leader")

    async def _get_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self._cluster.ask(request, InitProducerIdResponse)
        if answer.error_code:
            raise refusal(answer.error_code, None, of="a producer id")
        self._outbox.identity = Identity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    # Sending

    def _send(self, node: int, batches: Sequence[Batch]) -> None:
        connection = self._cluster.ready(node, Purpose.DATA)
        assert connection is not None
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            part = PartitionProduceData(index=batch.at.partition, records=batch.encoded)
            topics.setdefault(batch.at.topic, []).append(part)
        acks = self._settings.acks_code
        request = ProduceRequest(
            acks=acks,
            timeout_ms=int(self._cluster.settings.request_seconds_max * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()],
        )
        # The broker may take as long as it was given; only then is the silence the connection's fault.
        patience = self._loop.call_later(self._cluster.settings.request_seconds_max + 1, connection.close)
        future = connection.send(request, expects_answer=acks != 0)
        future.add_done_callback(partial(self._answered, connection, node, batches, patience))

    def _answered(
        self,
        connection: BrokerConnection,
        node: int,
        batches: Sequence[Batch],
        patience: asyncio.TimerHandle,
        future: "asyncio.Future[memoryview]",
    ) -> None:
        patience.cancel()
        if self._is_closed or future.cancelled():
            return
        now = self._loop.time()
        try:
            frame = future.result()
            if self._settings.acks_code == 0:
                for batch in batches:
                    self._outbox.accepted(batch, base_offset=-1, now=now)
            else:
                self._judge(connection.read(frame, ProduceRequest, ProduceResponse), node, batches, now)
        except MillpondError as error:
            connection.close()
            for batch in batches:
                self._cluster.forget_leader(batch.at, node)
                self._outbox.failed(batch, error, now=now)
        self._on_progress()
        self.wake()

    def _judge(self, answer: ProduceResponse, node: int, batches: Sequence[Batch], now: float) -> None:
        by_place = {batch.at: batch for batch in batches}
        for topic in answer.responses:
            for part in topic.partition_responses:
                batch = by_place.pop(TopicPartition(topic.name, part.index), None)
                if batch is None:
                    continue
                if part.error_code == 0:
                    self._outbox.accepted(
                        batch, base_offset=part.base_offset, append_time=part.log_append_time_ms, now=now
                    )
                    continue
                if part.error_code in NEW_LEADER_CODES:
                    self._cluster.forget_leader(batch.at, node)
                self._outbox.refused(batch, part.error_code, part.error_message, now=now)
        for batch in by_place.values():
            self._outbox.failed(batch, BrokerUnreachable(f"{batch.at}: missing in the answer"), now=now)

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        errands = list(self._errands.values())
        for errand in errands:
            errand.cancel()
        await asyncio.gather(*errands, return_exceptions=True)
