"""Fetch: batches from many partitions at once, waiting a while where there are too few.

The answer comes when there are at least `bytes_min`, when the time is up, or at once where any partition has something
to say that is not data. Whole batches only; the first partition that has any gives at least one, however large.
Driven by the front doors. Waits on the partitions themselves: an append wakes exactly those who wait for it.
"""

import asyncio
from typing import NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.model.errors import MillpondError
from millpond.model.ids import LeaderEpoch, Offset

NOTHING = memoryview(b"")


class Wanted(NamedTuple):
    partition: Partition | MillpondError
    """Or why there is none."""
    offset: Offset
    bytes_max: int
    leader_epoch: LeaderEpoch


class Fetched(NamedTuple):
    data: memoryview = NOTHING
    high_watermark: Offset = Offset(-1)
    start_offset: Offset = Offset(-1)
    error: MillpondError | None = None
    has_more: bool = False
    """More can be read behind the data at once, as behind a segment's end."""
    next_offset: Offset = Offset(-1)
    """Where the data takes the consumer; no further than where it asked, if there is none."""


def fetch_now(wanted: list[Wanted], *, bytes_min: int, bytes_max: int) -> list[Fetched] | None:
    """One answer for each, in the same order; None where that is too little, and worth a wait."""
    fetched = read_now(wanted, bytes_max=bytes_max)
    size = sum([len(each.data) for each in fetched])
    if size < bytes_min and not any(each.error or each.has_more for each in fetched):
        return None
    if size:
        _count(wanted, fetched)
    return fetched


async def fetch(wanted: list[Wanted], *, bytes_min: int, bytes_max: int, wait_ms: int) -> list[Fetched]:
    """The same, when there is enough or the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while (fetched := fetch_now(wanted, bytes_min=bytes_min, bytes_max=bytes_max)) is None:
        if loop.time() >= deadline:
            bytes_min = 0
        else:
            await _wait_for_more([each.partition for each in wanted if isinstance(each.partition, Partition)], deadline)
    return fetched


def _count(wanted: list[Wanted], fetched: list[Fetched]) -> None:
    for each, answer in zip(wanted, fetched):  # noqa: B905 - as many as there were; this runs for each fetch
        size_bytes = len(answer.data)
        partition = each.partition
        if size_bytes and isinstance(partition, Partition):
            partition.fetched_bytes += size_bytes
            partition.fetched_messages += answer.next_offset - each.offset


def read_now(wanted: list[Wanted], *, bytes_max: int) -> list[Fetched]:
    fetched: list[Fetched] = []
    bytes_left = bytes_max
    for each in wanted:
        answer = _read(each, bytes_left, is_first=bytes_left == bytes_max)
        bytes_left -= len(answer.data)
        fetched.append(answer)
    return fetched


def _read(wanted: Wanted, bytes_left: int, *, is_first: bool) -> Fetched:
    """Only the first that has anything may give a batch that is larger than the limits."""
    partition = wanted.partition
    if isinstance(partition, MillpondError):
        return Fetched(error=partition)
    log = partition.log
    try:
        partition.check_epoch(wanted.leader_epoch)
        room = min(wanted.bytes_max, bytes_left)
        data, next_offset = partition.read(wanted.offset, bytes_max=room) if room > 0 else (NOTHING, wanted.offset)
        if len(data) > room and not is_first:
            data, next_offset = NOTHING, wanted.offset
        has_more = len(data) > 0 and next_offset < partition.high_watermark
        return Fetched(data, partition.high_watermark, log.start_offset, None, has_more, next_offset)
    except MillpondError as error:
        return Fetched(NOTHING, partition.high_watermark, log.start_offset, error)


async def _wait_for_more(partitions: list[Partition], deadline: float) -> None:
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = loop.call_at(deadline, _end_wait, waiter)
    for partition in partitions:
        partition.add_waiter(waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        for partition in partitions:
            partition.remove_waiter(waiter)


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
