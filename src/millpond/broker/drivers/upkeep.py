"""What logs need now and then: segments rolled by age, old ones removed, compacted topics compacted, another try for
those that could not be opened; and queues that nobody asks for.

One log after another, so that upkeep never crowds out clients. Driven by app, which starts and cancels it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from millpond.broker.drivers.delays import DelayKeeper
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.queues import Queues
from millpond.model.errors import CoordinatorUnavailable, LogClosed, NotLeader, StorageError
from millpond.model.ids import Offset
from millpond.model.ports import Clock

ACKNOWLEDGED_SECONDS: Final = 3.0
"""How soon messages are gone that every queue group has acknowledged, where a topic keeps none of those."""


async def keep_up(
    metadata: MetadataLog,
    partitions: PartitionTable,
    delays: DelayKeeper,
    queues: Queues,
    clock: Clock,
    *,
    pause_seconds: float,
    on_error: Callable[[BaseException], None],
) -> None:
    turns = max(1, round(pause_seconds / ACKNOWLEDGED_SECONDS))
    while True:
        for _ in range(turns):
            await asyncio.sleep(pause_seconds / turns)
            await _do(queues.open_kept(partitions), on_error)
            await _do(queues.expire(), on_error)
            for partition in [each for each in partitions if each.config.retains_unacknowledged]:
                await _do(remove_acknowledged(partition, queues), on_error)
        await tend(metadata, partitions, delays, clock, on_error=on_error)


async def tend(
    metadata: MetadataLog,
    partitions: PartitionTable,
    delays: DelayKeeper,
    clock: Clock,
    *,
    on_error: Callable[[BaseException], None],
) -> None:
    """Once, all that has to do with time or size."""
    partitions.open_what_failed(metadata.image)
    delays.look()
    for partition in list(partitions):
        await _do(_tend(partition, clock), on_error)


async def _do(work: Coroutine[Any, Any, None], on_error: Callable[[BaseException], None]) -> None:
    try:
        await work
    except (LogClosed, NotLeader, CoordinatorUnavailable):
        pass  # its topic was deleted meanwhile, or another broker leads it, or its queues
    except StorageError as error:
        on_error(error)


async def _tend(partition: Partition, clock: Clock) -> None:
    until = await removable(partition, clock.wall_ms())
    await partition.log.upkeep(now_ms=clock.wall_ms(), until=until)
    await partition.log.compact(now_ms=clock.wall_ms(), until=partition.high_watermark)


async def remove_acknowledged(partition: Partition, queues: Queues) -> None:
    """Of a topic that keeps messages only until every queue group has acknowledged them."""
    if not partition.config.retains_unacknowledged or partition.leading is None:
        return
    start = await queues.acknowledged_by_all(partition)
    if partition.config.delay and start > partition.log.start_offset:
        # What is parked there waits for its time, not for a queue.
        start = (
            partition.log.start_offset
            if partition.delays is None
            else min(start, await partition.delays.make_way(start))
        )
    if start > partition.log.start_offset:
        await partition.log.delete_before(start)


async def removable(partition: Partition, now_ms: int) -> Offset:
    """How far retention may go. Where messages are delayed, only the leader knows which of them still wait: it carries
    them on first, and its followers remove what it has removed."""
    if not partition.config.delay:
        return partition.high_watermark
    if partition.delays is None:
        return partition.log.start_offset
    return await partition.delays.make_way(partition.log.expires_before(now_ms))
