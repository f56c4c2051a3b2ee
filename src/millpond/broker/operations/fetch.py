"""Fetch: batches from many partitions at once, waiting a while where there are too few.

The answer comes when there are at least `bytes_min`, when the time is up, or at once where any partition has something
to say that is not data. Whole batches only; the first partition that has any gives at least one, however large.
Driven by the front doors. Waits on the partitions themselves: an append wakes exactly those who wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from millpond.broker.drivers.follower_waits import Question
from millpond.broker.drivers.partition import Partition, end_wait
from millpond.core.replication.following import DivergingEpoch, diverging
from millpond.model.errors import MillpondError
from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.values import dataclass

NOTHING = memoryview(b"")


class Follower(NamedTuple):
    broker: int
    broker_epoch: int
    last_fetched_epoch: LeaderEpoch
    now_ms: int


@dataclass(slots=True)
class Wanted:
    partition: Partition | MillpondError
    """Or why there is none."""
    offset: Offset
    bytes_max: int
    leader_epoch: LeaderEpoch
    follower: Follower | None = None
    """The broker that copies the partition; a consumer otherwise."""


@dataclass(slots=True)
class Fetched:
    data: memoryview = NOTHING
    high_watermark: Offset = Offset(-1)
    start_offset: Offset = Offset(-1)
    error: MillpondError | None = None
    has_more: bool = False
    """More can be read behind the data at once, as behind a segment's end."""
    diverging: DivergingEpoch | None = None
    """Where a follower's log parts from this one."""
    next_offset: Offset = Offset(-1)
    """Where the data takes the consumer; no further than where it asked, if there is none."""


def fetch_now(wanted: list[Wanted], *, bytes_min: int, bytes_max: int) -> list[Fetched] | None:
    """One answer for each, in the same order; None where that is too little, and worth a wait."""
    fetched, size = read_now(wanted, bytes_max=bytes_max)
    if size < bytes_min and not any(each.error or each.has_more or each.diverging for each in fetched):
        return None
    if size:
        _count(wanted, fetched)
    return fetched


async def fetch(
    wanted: list[Wanted], *, bytes_min: int, bytes_max: int, deadline: float, question: Question | None = None
) -> list[Fetched]:
    """The same, when there is enough or the time is up; nothing, where a follower asks something else since."""
    loop = asyncio.get_running_loop()
    while question is None or not question.is_replaced:
        fetched = fetch_now(wanted, bytes_min=bytes_min, bytes_max=bytes_max)
        if fetched is not None:
            return fetched
        if loop.time() >= deadline or any(_lets_go(each.partition) for each in wanted):
            bytes_min = 0
        else:
            await _wait_for_more(wanted, deadline, question)
    return [Fetched() for _ in wanted]


def after_more(wanted: list[Wanted], deadline: float, question: Question, then: Callable[[None], object]) -> bool:
    """Has `then` called once when there is more to copy, the time is up, or the follower asks something else.

    Without a task: followers ask some thousand times a second. What is appended in one turn of the loop is one call.
    """
    loop = asyncio.get_running_loop()
    question.waiter = waiter = loop.create_future()
    timer = loop.call_at(deadline, end_wait, waiter)
    partitions = [each.partition for each in wanted if isinstance(each.partition, Partition)]
    for partition in partitions:
        partition.add_waiter(waiter, for_follower=True)

    def ended(waiter: asyncio.Future[None]) -> None:
        timer.cancel()
        for partition in partitions:
            partition.remove_waiter(waiter)
        then(None)

    waiter.add_done_callback(ended)
    return True


def _count(wanted: list[Wanted], fetched: list[Fetched]) -> None:
    for each, answer in zip(wanted, fetched):  # noqa: B905 - as many as there were; this runs for each fetch
        size_bytes = len(answer.data)
        partition = each.partition
        if size_bytes and isinstance(partition, Partition) and each.follower is None:
            partition.fetched_bytes += size_bytes
            partition.fetched_messages += answer.next_offset - each.offset


def read_now(wanted: list[Wanted], *, bytes_max: int) -> tuple[list[Fetched], int]:
    """And how many bytes that is."""
    fetched: list[Fetched] = []
    bytes_left = bytes_max
    for each in wanted:
        answer = _read(each, bytes_left, is_first=bytes_left == bytes_max)
        bytes_left -= len(answer.data)
        fetched.append(answer)
    return fetched, bytes_max - bytes_left


def _read(wanted: Wanted, bytes_left: int, *, is_first: bool) -> Fetched:
    """Only the first that has anything may give a batch that is larger than the limits."""
    partition = wanted.partition
    if isinstance(partition, MillpondError):
        return Fetched(error=partition)
    log = partition.log
    try:
        partition.check_epoch(wanted.leader_epoch)
        partition.require_leader()
        if wanted.follower is not None:
            return _read_for(wanted.follower, partition, wanted, bytes_left, is_first=is_first)
        room = wanted.bytes_max if wanted.bytes_max < bytes_left else bytes_left  # noqa: FURB136 - twice as fast
        data, next_offset = partition.read(wanted.offset, bytes_max=room) if room > 0 else (NOTHING, wanted.offset)
        if len(data) > room and not is_first:
            data, next_offset = NOTHING, wanted.offset
        high_watermark = partition.high_watermark
        has_more = len(data) > 0 and next_offset < high_watermark
        return Fetched(data, high_watermark, log.start_offset, None, has_more, None, next_offset)
    except MillpondError as error:
        return Fetched(NOTHING, partition.high_watermark, log.start_offset, error)


def _read_for(follower: Follower, partition: Partition, wanted: Wanted, bytes_left: int, *, is_first: bool) -> Fetched:
    """All there is, also what consumers may not see yet; that the follower asks tells what it has."""
    log = partition.log
    parting = diverging(
        log.epochs,
        log_end=log.next_offset,
        last_fetched_epoch=follower.last_fetched_epoch,
        fetch_offset=wanted.offset,
    )
    if parting is not None:
        return Fetched(NOTHING, partition.high_watermark, log.start_offset, diverging=parting)
    room = min(wanted.bytes_max, bytes_left)
    data, next_offset = partition.read_all(wanted.offset, bytes_max=room) if room > 0 else (NOTHING, wanted.offset)
    partition.follower_fetched(
        follower.broker, broker_epoch=follower.broker_epoch, offset=wanted.offset, now_ms=follower.now_ms
    )
    if len(data) > room and not is_first:
        data = NOTHING
    has_more = len(data) > 0 and next_offset < log.next_offset
    return Fetched(data, partition.high_watermark, log.start_offset, has_more=has_more, next_offset=next_offset)


def _lets_go(partition: Partition | MillpondError) -> bool:
    return isinstance(partition, Partition) and partition.lets_go


async def _wait_for_more(wanted: list[Wanted], deadline: float, question: Question | None) -> None:
    waits = [(each.partition, each.follower is not None) for each in wanted if isinstance(each.partition, Partition)]
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = loop.call_at(deadline, end_wait, waiter)
    if question is not None:
        question.waiter = waiter
    for partition, is_followed in waits:
        partition.add_waiter(waiter, for_follower=is_followed)
    try:
        await waiter
    finally:
        timer.cancel()
        for partition, _ in waits:
            partition.remove_waiter(waiter)
