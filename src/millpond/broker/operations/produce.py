"""Produce: one batch for each of some partitions, appended at once and answered when they are kept.

`begin` appends, without waiting, so that the order in which a connection sends is the order in the log; `finish` waits,
and `after_kept` calls back, which is cheaper.
On plain topics nothing here looks inside a batch. A topic that stamps its own time has its batches stamped; one with a
codec of its own has them compressed anew; a compacted topic has their records looked at, since one without a key would
stay for ever; one with delays looks for them.
Driven by the front doors.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from millpond.broker.drivers.partition import Partition
from millpond.core.metadata.config_keys import INT64_MAX
from millpond.core.metadata.internal_topics import INTERNAL
from millpond.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicName,
    MalformedBatch,
    MillpondError,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    RequestError,
    UnsupportedMagic,
)
from millpond.model.ids import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from millpond.model.ports import Buffer
from millpond.protocol.records import (
    BatchHeader,
    Record,
    check_batch,
    check_produced,
    decode_batch,
    encode_survivors,
    parse_header,
    stamp_append_time,
)
from millpond.storage.commit import Ended
from millpond.storage.log import Appended, check_size

INFLATION_MAX = 16
"""A batch for a topic that looks inside may inflate to this many times `max.message.bytes`: it is done on the loop."""


TIMEOUT_MS = 30_000
Refusal = TypeVar("Refusal", InvalidRecord, InvalidTimestamp)


class Produced(Struct, frozen=True):
    base_offset: Offset = Offset(-1)
    append_time: TimestampMs = NO_TIMESTAMP
    """Where the topic stamps its own time."""
    start_offset: Offset = Offset(-1)
    error: MillpondError | None = None


class Pending(Struct, frozen=True):
    """A batch that is in the log, or why it is not."""

    partition: Partition | None = None
    appended: Appended | None = None
    append_time: TimestampMs = NO_TIMESTAMP
    error: MillpondError | None = None
    acks_all: bool = True
    """Whether it is acknowledged when every replica in sync has it, or when this one has."""
    leader_epoch: LeaderEpoch = NO_EPOCH
    """In which it was appended."""


def begin(partition: Partition | MillpondError, batch: Buffer | None, *, now_ms: int, acks_all: bool) -> Pending:
    """In the place of a partition, why there is none."""
    if isinstance(partition, MillpondError):
        return Pending(error=partition)
    try:
        if not batch:
            raise InvalidRecord("the request holds no batch for the partition; a producer sends one")
        _check_takes(partition, acks_all=acks_all)
        # Before anything else looks inside or stamps a new checksum: damage must not be made to look whole.
        header = check_batch(batch)
        if partition.refusals and (error := partition.refusals.why_not_yet(header)):
            return Pending(error=error)
        config, append_time = partition.config, NO_TIMESTAMP
        if config.log_append_time or config.compact or config.codec is not None:
            batch, header, append_time = _prepared(partition, batch, header, now_ms)
        else:
            _check_time(partition, batch, header, now_ms)
        if header.base_sequence > 0 and (error := _if_unknown(partition, header)):
            return Pending(error=error)
        appended = _append_or_park(partition, batch) if config.delay else partition.append(batch, header)
        return Pending(partition, appended, append_time, None, acks_all, partition.leader_epoch)
    except (MalformedBatch, UnsupportedMagic) as error:
        if isinstance(error, CorruptBatch):
            _note_refusal(partition, batch, error)
            return Pending(error=error)
        return Pending(error=InvalidRecord(str(error)))  # nothing that could be sent again
    except OutOfOrderSequence as error:
        return Pending(error=_for_now(partition, parse_header(batch or b"")) or error)
    except MillpondError as error:
        if error.retriable:
            _note_refusal(partition, batch, error)
        return Pending(error=error)


def _append_or_park(partition: Partition, batch: Buffer) -> Appended:
    if partition.delays is None:
        raise NotLeader(f"this broker has only just come to lead {partition.at}; send the batch again")
    return partition.delays.append(batch, inflated_bytes_max=partition.config.batch_bytes_max * INFLATION_MAX)


def _if_unknown(partition: Partition, header: BatchHeader) -> NotLeader | None:
    return None if partition.log.producers.knows(header.producer_id) else _for_now(partition, header)


def _for_now(partition: Partition, header: BatchHeader) -> NotLeader | None:
    """Why a batch that leaves a gap shall come again: what is missing may have been refused where nobody noted it.

    By the leader before this one, or by this broker, before it knew of the partition.
    """
    leading = partition.leading
    last_offset = partition.log.producers.last_offset(header.producer_id)
    if leading is None or (last_offset is not None and last_offset >= leading.epoch_start):
        return None
    error = NotLeader(
        f"producer {header.producer_id} began with sequence {header.base_sequence} at this leader of {partition.at}, "
        "which knows of nothing before it; send both again, or this one if there is nothing"
    )
    return error if partition.refusals.forgives(header, error) else None


def _note_refusal(partition: Partition, batch: Buffer | None, error: MillpondError) -> None:
    with suppress(RequestError):  # where it is no batch either
        partition.refusals.refused(parse_header(batch or b""), error)


def finish_now(pending: Sequence[Pending]) -> list[Produced] | None:
    """One answer for each, in the same order, where nobody has to wait; None otherwise."""
    produced = []
    for each in pending:
        partition, appended = each.partition, each.appended
        if partition is None or appended is None:
            produced.append(Produced(error=each.error))
        elif partition.may_acknowledge(appended, leader_epoch=each.leader_epoch, acks_all=each.acks_all):
            produced.append(Produced(appended.base_offset, each.append_time, partition.log.start_offset))
        else:
            return None
    return produced


class Deadline:
    """When copies have been waited for long enough: from when that is first asked for, which most requests never do."""

    __slots__ = ("_at", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._at: float | None = None

    def at(self) -> float:
        if self._at is None:
            self._at = time_is_up(self._timeout_ms)
        return self._at


def after_kept(pending: Sequence[Pending], deadline: Deadline, then: Ended) -> bool:
    """Has `then` called once, when all that was appended may be kept, or cannot be: time for `finish_now`.

    False, and no call, where nothing is left to wait for.
    """
    waits = []
    for each in pending:
        partition, appended = each.partition, each.appended
        if partition is not None and appended is not None:
            if each.acks_all and partition.has_followers:
                if partition.high_watermark <= appended.last_offset:
                    waits.append((partition, appended, True))
            elif partition.log.is_unsynced(appended):
                waits.append((partition, appended, False))
    if len(waits) > 1:
        then = _when_all_have_ended(then, len(waits))
    for partition, appended, by_all in waits:
        if by_all:
            partition.after_visible(appended, then, until=deadline.at())
        else:
            partition.log.after_sync(appended, then)
    return bool(waits)


def _when_all_have_ended(then: Ended, left: int) -> Ended:
    def ended(failure: Exception | None) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then(failure)

    return ended


def time_is_up(timeout_ms: int) -> float:
    """When it will be, on the loop's clock."""
    return asyncio.get_running_loop().time() + timeout_ms / 1000


async def finish(pending: Sequence[Pending], *, until: float | None = None) -> list[Produced]:
    """The same, when all are kept, or the time for copies to be made is up."""
    until = time_is_up(TIMEOUT_MS) if until is None else until
    if len(pending) == 1:
        return [await _finish(pending[0], until)]
    return list(await asyncio.gather(*[_finish(each, until) for each in pending]))


async def _finish(pending: Pending, until: float) -> Produced:
    partition, appended = pending.partition, pending.appended
    if partition is None or appended is None:
        return Produced(error=pending.error)
    if partition.leader_epoch != pending.leader_epoch:  # before anybody waited here: see `after_kept`
        return Produced(error=NotLeader(f"{partition.at} has another leader since; send the batch again"))
    try:
        if pending.acks_all:
            await partition.wait_visible(appended, until=until)
        else:
            await partition.wait_kept(appended)
    except MillpondError as failure:
        return Produced(error=failure)
    return Produced(appended.base_offset, pending.append_time, partition.log.start_offset)


def _check_takes(partition: Partition, *, acks_all: bool) -> None:
    """That its topic is there for producers; and in sync on enough brokers, where that is asked for."""
    if partition.at.topic in INTERNAL:
        raise InvalidTopicName(f"{partition.at.topic} is one of Millpond's own; nobody else writes to it")
    if not acks_all:
        return
    members = partition.require_leader().members
    if len(members.isr) < members.insync_min:
        raise NotEnoughReplicas(
            f"{partition.at} has {len(members.isr)} replicas in sync and its topic's min.insync.replicas is "
            f"{members.insync_min}; start the brokers that are down, lower it, or produce with acks=1"
        )


def _prepared(
    partition: Partition, batch: Buffer, header: BatchHeader, now_ms: int
) -> tuple[Buffer, BatchHeader, TimestampMs]:
    """As the topic wants it, with its header then, and the time that the topic has stamped."""
    config = partition.config
    append_time = NO_TIMESTAMP
    check_size(len(batch), config.batch_bytes_max)
    if config.codec is not None and header.codec is not config.codec:
        check_produced(header)
        batch = bytearray(encode_survivors(_records(partition, batch), of=header, codec=config.codec))
        header = check_batch(batch)
    if config.log_append_time:
        batch = batch if isinstance(batch, bytearray) else bytearray(batch)
        append_time = TimestampMs(now_ms)
        stamp_append_time(batch, timestamp=append_time)
        header = check_batch(batch)
    else:
        _check_time(partition, batch, header, now_ms)
    if config.compact:
        records = _records(partition, batch)
        if keyless := tuple(number for number, record in enumerate(records) if record.key is None):
            raise _about(
                InvalidRecord(f"a record without a key, and {partition.at.topic} is compacted: every record needs one"),
                keyless,
            )
    return batch, header, append_time


def _records(partition: Partition, batch: Buffer) -> list[Record]:
    inflated_bytes_max = partition.config.batch_bytes_max * INFLATION_MAX
    return decode_batch(memoryview(batch), inflated_bytes_max=inflated_bytes_max)


def _about(error: Refusal, records: tuple[int, ...]) -> Refusal:
    error.records = records
    return error


def _check_time(partition: Partition, batch: Buffer, header: BatchHeader, now_ms: int) -> None:
    """By the batch's newest record alone, unless the topic refuses old ones: then each is looked at."""
    config = partition.config
    newest = header.max_timestamp
    if newest == NO_TIMESTAMP or (
        newest - now_ms <= config.timestamp_after_ms_max and config.timestamp_before_ms_max == INT64_MAX
    ):
        return
    times = [record.timestamp for record in _records(partition, batch)]
    first, last = now_ms - config.timestamp_before_ms_max, now_ms + config.timestamp_after_ms_max
    if outside := tuple(number for number, time in enumerate(times) if not first <= time <= last):
        raise _about(
            InvalidTimestamp(
                f"record {outside[0]} of the batch has the time {times[outside[0]]}, now is {now_ms}; "
                f"{partition.at.topic} allows {config.timestamp_before_ms_max} ms before and "
                f"{config.timestamp_after_ms_max} ms after now"
            ),
            outside,
        )
