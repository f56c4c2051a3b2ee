"""An idempotent producer as stock clients have it: up to five batches of a partition under way at a time.

What it does is what librdkafka does, because brokers have to live with that:
  a batch that failed goes back to its place; nothing more of its partition is sent until everything under way there
      is answered; then all of it is sent again, in order, with the same limits and sequences, to whoever leads then
  an acknowledged batch acknowledges those before it, since a broker takes them in order or not at all
  DUPLICATE_SEQUENCE_NUMBER means that the batch is kept, somewhere
  OUT_OF_ORDER_SEQUENCE_NUMBER ends the producer's epoch: everything that is not acknowledged is numbered anew, and what
      a broker had kept of it without saying so is then there twice. So nobody may be told that; it ends the run here

Invariant: batches of one partition are sent, and acknowledged, in the order in which they were made.
Driven by replicated_clients.py.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.records import encode_values
from tests.simulation.broker_history import Acknowledged, Sent
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.history import Violation
from tests.simulation.replicated_history import AcknowledgedSomewhere, Queued
from tests.simulation.wire_client import (
    ANSWER_SECONDS_MAX,
    LOOK_AGAIN,
    UNSURE,
    Produced,
    Refused,
    Unanswered,
    UnderWay,
    WireClient,
)

UNDER_WAY_MAX = 5
OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER = 45, 46
RETRY = UNSURE.keys() | LOOK_AGAIN.keys()


@dataclass(eq=False)
class Batch:
    values: tuple[bytes, ...]
    timestamp: int
    sequence: int = -1
    """Given when it is first sent."""
    wire: WireClient | None = None
    answer: UnderWay | None = None
    """While it is under way."""


@dataclass(eq=False)
class Lane:
    """One partition's part of a producer."""

    place: int
    queue: list[Batch] = field(default_factory=list)
    under_way: list[Batch] = field(default_factory=list)
    next_sequence: int = 0
    is_draining: bool = False
    has_failed: bool = False
    """Since it was last drained."""

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.under_way


class PipelinedProducer:
    def __init__(
        self,
        wire: ClusterClient,
        producer_id: int,
        places: tuple[tuple[str, int], ...],
        rng: random.Random,
        *,
        note: Callable[[Any], None],
        pause_seconds: float,
    ) -> None:
        self._wire = wire
        self._producer_id = ProducerId(producer_id)
        self._places = places
        self._rng = rng
        self._note = note
        self._pause_seconds = pause_seconds
        self._lanes = [Lane(place) for place in range(len(places))]
        self.name = f"producer {producer_id}"

    async def send_all(self, work: dict[int, list[tuple[int, list[bytes]]]]) -> None:
        """Timestamps and values of batches, by place. Returns when all are acknowledged."""
        for place, batches in work.items():
            for timestamp, values in batches:
                self._lanes[place].queue.append(Batch(tuple(values), timestamp))
                self._note(Queued(self.name, place, tuple(values)))
        await asyncio.gather(*(self._run(lane) for lane in self._lanes))

    async def _run(self, lane: Lane) -> None:
        while not lane.is_idle:
            if lane.under_way and (lane.is_draining or not await self._send_more(lane)):
                await self._hear(lane)
            elif not lane.under_way:
                if lane.has_failed:
                    await asyncio.sleep(self._pause_seconds)
                lane.is_draining = lane.has_failed = False
                await self._send_more(lane)

    # Out

    async def _send_more(self, lane: Lane) -> bool:
        """Whether a batch was sent."""
        if lane.is_draining or not lane.queue or len(lane.under_way) >= UNDER_WAY_MAX:
            return False
        if lane.under_way and self._rng.random() < 0.2:
            return False  # the next one is not made yet
        try:
            wire = await self._wire.wire_to(*self._places[lane.place])
            behind = lane.under_way[-1].answer if lane.under_way else None
            batch = lane.queue[0]
            encoded = self._encode(lane, batch)
            batch.answer = await wire.send_batch(*self._places[lane.place], encoded, behind=behind)
        except Unanswered:
            self._fail(lane)
            return False
        if batch.answer is None:
            lane.is_draining = True  # another leads now, or the same one on another connection
            return False
        batch.wire = wire
        lane.under_way.append(lane.queue.pop(0))
        return True

    def _encode(self, lane: Lane, batch: Batch) -> bytes:
        if batch.sequence < 0:
            batch.sequence = lane.next_sequence
            lane.next_sequence += len(batch.values)
            self._note(Sent(lane.place, batch.values, is_idempotent=True))
        return encode_values(
            list(batch.values),
            timestamp=TimestampMs(batch.timestamp),
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(batch.sequence),
        )

    def _fail(self, lane: Lane) -> None:
        lane.is_draining = lane.has_failed = True
        self._wire.forget(*self._places[lane.place])

    # In

    async def _hear(self, lane: Lane) -> None:
        batch = lane.under_way[0]
        assert batch.wire is not None
        assert batch.answer is not None
        try:
            produced = await batch.wire.hear_produced(batch.answer, seconds_max=ANSWER_SECONDS_MAX)
        except Unanswered:
            self._take_back(lane)
        except Refused as refusal:
            self._refused(lane, refusal)
        else:
            self._acknowledged(lane, produced)

    def _acknowledged(self, lane: Lane, produced: Produced | None) -> None:
        """None where nobody says at which offset."""
        batch = lane.under_way.pop(0)
        while lane.queue and lane.queue[0].sequence >= 0 and lane.queue[0].sequence < batch.sequence:
            self._note(AcknowledgedSomewhere(lane.place, lane.queue.pop(0).values))
        if produced is None:
            self._note(AcknowledgedSomewhere(lane.place, batch.values))
        else:
            self._note(Acknowledged(self.name, lane.place, produced.base_offset, batch.values))

    def _refused(self, lane: Lane, refusal: Refused) -> None:
        if refusal.code == DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledged(lane, None)
        elif refusal.code == OUT_OF_ORDER_SEQUENCE_NUMBER:
            raise Violation(f"ProducersKeepTheirEpoch: {self.name} at {lane.under_way[0].values!r}: {refusal}")
        elif refusal.code in RETRY:
            self._take_back(lane)
        else:
            raise refusal

    def _take_back(self, lane: Lane) -> None:
        batch = lane.under_way.pop(0)
        batch.answer = batch.wire = None
        position = sum(0 <= each.sequence < batch.sequence for each in lane.queue)
        lane.queue.insert(position, batch)
        self._fail(lane)
