"""Messages as clients send them, on their way into partitions.

A message that cannot be placed refuses its whole request, before anything of it is sent.
Driven by the Messages servicer.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.queues import Asked, caps_of, find_queue, let_delay
from millpond.api.anywhere.refusals import Refusal, wrong
from millpond.api.anywhere.shipment import Numbered, Shipment
from millpond.api.grpc.failures import Failed, failure_of
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.queue_messages import asked_of, headers_of
from millpond.broker.node import Node
from millpond.model.errors import MillpondError
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import Headers, NewRecord

MESSAGES_MAX: Final = 10_000
"""Of one request: they are put into batches on the broker's loop, and others wait meanwhile."""

Sent = list[wire.Place] | Failed


class Sending:
    def __init__(self, node: Node, neighbours: Neighbours, producing: Producing) -> None:
        self._node = node
        self._neighbours = neighbours
        self._producing = producing
        self._loop = asyncio.get_running_loop()

    async def send(self, messages: Sequence[wire.NewMessage]) -> "asyncio.Future[Sent]":
        """Returns when they are in line behind those that were sent before; waits only for topics to be made."""
        answer: asyncio.Future[Sent] = self._loop.create_future()
        try:
            await self._prepare(messages)
            self._send(messages, answer)
        except (MillpondError, Refusal) as error:
            answer.set_result(failure_of(error))
        return answer

    async def _prepare(self, messages: Sequence[wire.NewMessage]) -> None:
        if len(messages) > MESSAGES_MAX:
            raise Refusal(413, "too_many_messages", f"a request has {MESSAGES_MAX} messages at most; send several")
        later = [(number, each) for number, each in enumerate(messages) if _is_for_later(each)]
        for number, message in later:  # before a topic is made for it, or told to delay messages
            self._delayed(number, message, headers_of(message), self._node.clock.wall_ms())
        for name in sorted({message.topic for message in messages}):
            if not self._producing.has_topic(name):
                await self._producing.make_topic(name)
        for number, message in later:
            topic = find_queue(self._node, message.topic)
            await let_delay(self._node, self._neighbours, topic, f"messages[{number}].topic")

    def _send(self, messages: Sequence[wire.NewMessage], answer: "asyncio.Future[Sent]") -> None:
        if not messages:
            answer.set_result([])
            return
        now_ms = self._node.clock.wall_ms()
        placed: dict[TopicPartition, list[Numbered]] = {}
        for number, message in enumerate(messages):
            at, record = self._record(number, message, now_ms)
            placed.setdefault(at, []).append((number, record))

        def done(shipment: Shipment) -> None:
            if not answer.done():  # nobody waits for it any more
                answer.set_result(_sent(shipment))

        Shipment(len(messages), done).send(self._producing, placed)

    def _record(self, number: int, message: wire.NewMessage, now_ms: int) -> tuple[TopicPartition, NewRecord]:
        partition = message.partition if message.HasField("partition") else None
        if partition is not None and partition < 0:
            raise wrong("partition", f"messages[{number}].partition is {partition}; it is at least 0, or left out")
        timestamp = message.timestamp_ms if message.HasField("timestamp_ms") else now_ms
        if timestamp < 0:
            raise wrong("timestamp_ms", f"messages[{number}].timestamp_ms is {timestamp}; it is at least 0")
        key = message.key if message.HasField("key") else None
        value = message.value if message.HasField("value") else None
        headers = headers_of(message)
        if _is_for_later(message):
            headers = self._delayed(number, message, headers, now_ms)
        at = self._producing.place(message.topic, key, partition)
        return at, NewRecord(value, key, TimestampMs(timestamp), headers)

    def _delayed(self, number: int, message: wire.NewMessage, own: Headers, now_ms: int) -> Headers:
        asked = Asked(
            delay_ms=message.delay_ms if message.HasField("delay_ms") else None,
            deliver_at=message.deliver_at_ms if message.HasField("deliver_at_ms") else None,
        )
        return asked_of(number, own, asked, now_ms=now_ms, caps=caps_of(self._node))[0]


def _is_for_later(message: wire.NewMessage) -> bool:
    return message.HasField("delay_ms") or message.HasField("deliver_at_ms")


def _sent(shipment: Shipment) -> Sent:
    if not shipment.errors:
        return [wire.Place(partition=partition, offset=offset) for partition, offset in shipment.places]
    return failure_in(shipment)


def failure_in(shipment: Shipment) -> Failed:
    """Where some were refused."""
    detail = shipment.told() if len(shipment.places) > 1 else None
    return failure_of(shipment.first_error, detail=detail)
