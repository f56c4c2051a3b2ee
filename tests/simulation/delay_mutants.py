"""Bugs in the delivery of delayed messages, planted on purpose, one at a time: each leaves out one step that works on
every day on which nothing goes wrong."""

import asyncio
from array import array
from collections.abc import Callable, Iterable

import pytest

from millpond.broker.drivers import delays as driver
from millpond.broker.drivers import upkeep
from millpond.broker.drivers.delays import PartitionDelays
from millpond.broker.drivers.partition import Partition
from millpond.core.delivery import wheel
from millpond.core.delivery.delays import Delays, Waiting
from millpond.core.delivery.parked_format import (
    Aside,
    Cancelled,
    Carried,
    CheckpointPart,
    Fact,
    Moved,
    Rescheduled,
    cancelled_batch,
    fact_of,
    parked_batch,
)
from millpond.model.ids import NO_PRODUCER, Offset, ProducerEpoch, Sequence
from millpond.model.ports import Buffer
from millpond.protocol.records import BatchHeader, Record, encode_survivors, stamp_producer

Mutant = Callable[[pytest.MonkeyPatch], None]


def forget_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    """A new leader looks at control batches alone."""
    _overlook(patch, Moved)


def forget_what_was_put_off(patch: pytest.MonkeyPatch) -> None:
    _overlook(patch, Rescheduled)


def forget_what_was_cancelled(patch: pytest.MonkeyPatch) -> None:
    _overlook(patch, Cancelled)


def _overlook(patch: pytest.MonkeyPatch, kind: type[Fact]) -> None:
    def seen(buffer: Buffer, position: int, header: BatchHeader) -> Fact | None:
        fact = fact_of(buffer, position, header)
        return None if isinstance(fact, kind) else fact

    patch.setattr(driver, "fact_of", seen)


def deliver_a_little_early(patch: pytest.MonkeyPatch) -> None:
    due = Delays.due
    patch.setattr(Delays, "due", lambda self, now, **more: due(self, now + 300, **more))


def trust_that_clocks_never_go_back(patch: pytest.MonkeyPatch) -> None:
    """What comes in behind the wheel is due at once."""

    def advance(self: wheel.TimerWheel, now: int, *, work_max: int = 1 << 62) -> list[wheel.Due]:
        return original(self, max(now, self._now), work_max=work_max)

    original = wheel.TimerWheel.advance
    patch.setattr(wheel.TimerWheel, "advance", advance)


def let_retention_take_what_waits(patch: pytest.MonkeyPatch) -> None:
    async def removable(partition: Partition, now_ms: int) -> Offset:
        return partition.high_watermark

    patch.setattr(upkeep, "removable", removable)


def remove_before_the_log_was_read(patch: pytest.MonkeyPatch) -> None:
    async def make_way(self: PartitionDelays, before: Offset) -> Offset:
        return await original(self, before) if self.is_loaded else self._partition.high_watermark

    original = PartitionDelays.make_way
    patch.setattr(PartitionDelays, "make_way", make_way)
    read_slowly(patch)


def read_slowly(patch: pytest.MonkeyPatch) -> None:
    """No bug: the log is long."""

    async def last_checkpoint(self: PartitionDelays) -> Offset:
        await asyncio.sleep(3)
        return await original(self)

    original = PartitionDelays._last_checkpoint
    patch.setattr(PartitionDelays, "_last_checkpoint", last_checkpoint)


def park_without_the_producers_numbers(patch: pytest.MonkeyPatch) -> None:
    def parked(batch: Buffer, dues: Iterable[int], *, now: int) -> bytes:
        data = bytearray(batch)
        stamp_producer(data, producer_id=NO_PRODUCER, epoch=ProducerEpoch(-1), base_sequence=Sequence(-1))
        return parked_batch(bytes(data), dues, now=now)

    patch.setattr(driver, "parked_batch", parked)


def answer_a_cancellation_at_once(patch: pytest.MonkeyPatch) -> None:
    async def cancel(self: PartitionDelays, id_: int, *, until: float | None = None) -> Waiting:
        found = self._find(id_)
        self._note(cancelled_batch([id_], now=self._now()), Cancelled(array("q", [id_])))
        return found

    patch.setattr(PartitionDelays, "cancel", cancel)


def give_up_what_could_not_be_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "put_back", lambda self, messages: None)


def forget_what_came_between_the_parts_of_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def restore(self: Delays, fact: CheckpointPart) -> None:
        if self._since_parts is not None:
            self._since_parts = []
        original(self, fact)

    original = Delays._restore
    patch.setattr(Delays, "_restore", restore)


def forget_what_was_put_aside(patch: pytest.MonkeyPatch) -> None:
    _overlook(patch, Aside)


def count_a_note_that_nothing_followed(patch: pytest.MonkeyPatch) -> None:
    """What was put aside waits, though the rest of its batch is not in the log."""

    def seen(buffer: Buffer, position: int, header: BatchHeader) -> Fact | None:
        fact = fact_of(buffer, position, header)
        return Carried(*fact[:4]) if isinstance(fact, Aside) else fact

    patch.setattr(driver, "fact_of", seen)


def leave_the_rest_without_the_producers_numbers(patch: pytest.MonkeyPatch) -> None:
    def rest_of(records: list[Record], *, of: BatchHeader) -> bytes:
        data = bytearray(encode_survivors(records, of=of))
        stamp_producer(data, producer_id=NO_PRODUCER, epoch=ProducerEpoch(-1), base_sequence=Sequence(-1))
        return bytes(data)

    patch.setattr(driver, "encode_survivors", rest_of)


MUTANTS: tuple[Mutant, ...] = (
    forget_what_was_delivered,
    forget_what_was_put_off,
    forget_what_was_cancelled,
    deliver_a_little_early,
    trust_that_clocks_never_go_back,
    let_retention_take_what_waits,
    remove_before_the_log_was_read,
    park_without_the_producers_numbers,
    answer_a_cancellation_at_once,
    give_up_what_could_not_be_appended,
    forget_what_came_between_the_parts_of_a_checkpoint,
)

MIXED: tuple[Mutant, ...] = (
    forget_what_was_put_aside,
    count_a_note_that_nothing_followed,
    leave_the_rest_without_the_producers_numbers,
)
"""Of batches with messages for now and for later."""
