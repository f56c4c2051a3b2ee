"""Messages as clients send them, on their way into partitions.

A message that cannot be placed refuses its whole request, before anything of it is sent.
Driven by the Messages servicer.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.refusals import Refusal, wrong
from millpond.api.anywhere.shipment import Numbered, Shipment
from millpond.api.grpc.failures import Failed, failure_of
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.model.errors import MillpondError
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.model.ports import Clock
from millpond.protocol.records import NewRecord

MESSAGES_MAX: Final = 10_000
"""Of one request: they are put into batches on the broker's loop, and others wait meanwhile."""

Sent = list[wire.Place] | Failed


class Sending:
    def __init__(self, producing: Producing, clock: Clock) -> None:
        self._producing = producing
        self._clock = clock
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
        for topic in sorted({message.topic for message in messages}):
            if not self._producing.has_topic(topic):
                await self._producing.make_topic(topic)

    def _send(self, messages: Sequence[wire.NewMessage], answer: "asyncio.Future[Sent]") -> None:
        if not messages:
            answer.set_result([])
            return
        now_ms = self._clock.wall_ms()
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
        headers = tuple([(each.name, each.value if each.HasField("value") else None) for each in message.headers])
        at = self._producing.place(message.topic, key, partition)
        return at, NewRecord(value, key, TimestampMs(timestamp), headers)


def _sent(shipment: Shipment) -> Sent:
    if not shipment.errors:
        return [wire.Place(partition=partition, offset=offset) for partition, offset in shipment.places]
    detail = shipment.told() if len(shipment.places) > 1 else None
    return failure_of(shipment.first_error, detail=detail)
