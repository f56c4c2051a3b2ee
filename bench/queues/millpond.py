"""Millpond's queues over Kafka's wire: share fetches and acknowledgements, by a client that does nothing else.

What was received is acknowledged along with asking for more, as stock share consumers do it: the answer, which brings
what comes next, tells that it was heard. `waits` is for who wants to know that first, and asks for more only then.
"""

from collections.abc import Sequence
from typing import TypeVar

from bench.broker.driving import ANSWER_SECONDS_MAX, MARK
from bench.broker.processes import NotReady
from millpond.client.connection import BrokerConnection
from millpond.model.addresses import Address
from millpond.model.limits import MIB
from millpond.protocol.messages import share_acknowledge as acknowledging
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millpond.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from millpond.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

GROUP = "bench"
Answer = TypeVar("Answer", ShareFetchResponse, ShareAcknowledgeResponse)
_ACCEPT = 1
WAIT_MS = 500
_RECORD_LIMIT = 1


class ShareReceiver:
    def __init__(
        self, connection: BrokerConnection, topic_id: bytes, member: str, *, at_once: int, waits: bool
    ) -> None:
        """Use `open`."""
        self._connection = connection
        self._topic_id = topic_id
        self._member = member
        self._at_once = at_once
        self._waits = waits
        self._epoch = 0
        self.held: list[tuple[int, int]] = []
        """Runs of offsets that were received, and not acknowledged."""

    @classmethod
    async def open(cls, port: int, topic: str, member: str, *, at_once: int, waits: bool = False) -> "ShareReceiver":
        connection = await connect(port)
        receiver = cls(connection, await topic_id_of(connection, topic), member, at_once=at_once, waits=waits)
        await receiver.fetch(wait_ms=0)
        return receiver

    async def turn(self) -> int:
        acknowledged = await self.fetch()
        return acknowledged + await self._acknowledge() if self._waits else acknowledged

    async def finish(self) -> None:
        assert not self.held, "every acknowledgement was answered"

    def close(self) -> None:
        self._connection.close()

    async def fetch(self, *, wait_ms: int = WAIT_MS) -> int:
        """Acknowledges what it has, asks for more, and returns how many it acknowledged."""
        request = fetch_request(
            self._topic_id, self._member, self.held, epoch=self._epoch, at_once=self._at_once, wait_ms=wait_ms
        )
        answer = await self._ask(request, ShareFetchResponse)
        acknowledged, self.held = _count(self.held), []
        for found in (part for topic in answer.responses for part in topic.partitions):
            check(found.error_code or found.acknowledge_error_code)
            self.held += [(each.first_offset, each.last_offset) for each in found.acquired_records]
            if bytes(found.records).count(MARK) < _count(self.held):
                raise NotReady("fewer messages came than were announced")
        return acknowledged

    async def _acknowledge(self) -> int:
        if not self.held:
            return 0
        batches = [
            acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[_ACCEPT])
            for first, last in self.held
        ]
        part = acknowledging.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._member,
            share_session_epoch=self._epoch,
            topics=[acknowledging.AcknowledgeTopic(topic_id=self._topic_id, partitions=[part])],
        )
        answer = await self._ask(request, ShareAcknowledgeResponse)
        for settled in (part for topic in answer.responses for part in topic.partitions):
            check(settled.error_code)
        acknowledged, self.held = _count(self.held), []
        return acknowledged

    async def _ask(self, request: Message, response_class: type[Answer]) -> Answer:
        answer = await self._connection.ask(request, response_class, seconds_max=ANSWER_SECONDS_MAX)
        check(answer.error_code)
        self._epoch += 1
        return answer


async def connect(port: int) -> BrokerConnection:
    return await BrokerConnection.open(Address("127.0.0.1", port), client_id="bench", seconds_max=ANSWER_SECONDS_MAX)


async def topic_id_of(connection: BrokerConnection, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = await connection.ask(request, MetadataResponse, seconds_max=ANSWER_SECONDS_MAX)
    return answer.topics[0].topic_id


def fetch_request(
    topic_id: bytes,
    member: str,
    held: Sequence[tuple[int, int]],
    *,
    epoch: int,
    at_once: int,
    wait_ms: int = WAIT_MS,
) -> ShareFetchRequest:
    """Acknowledges what is held. The first request, of epoch 0, names the partition; others only to acknowledge."""
    batches = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[_ACCEPT]) for first, last in held
    ]
    part = FetchPartition(partition_index=0, acknowledgement_batches=batches)
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=MIB,
        max_records=at_once,
        batch_size=at_once,
        share_acquire_mode=_RECORD_LIMIT if at_once == 1 else 0,
        topics=[FetchTopic(topic_id=topic_id, partitions=[part])] if batches or epoch == 0 else [],
        forgotten_topics_data=[],
    )


def _count(held: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in held)


def check(code: int) -> None:
    if code:
        raise NotReady(f"error {code}")
