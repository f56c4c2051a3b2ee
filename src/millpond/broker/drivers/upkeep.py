"""What logs need now and then: segments rolled by age, old ones removed, compacted topics compacted, and another try
for those that could not be opened.

One log after another, so that upkeep never crowds out clients. Driven by app, which starts and cancels it.
"""

import asyncio
from collections.abc import Callable

from millpond.broker.drivers.delays import DelayKeeper
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.queues import Queues
from millpond.model.errors import CoordinatorUnavailable, LogClosed, NotLeader, StorageError
from millpond.model.ids import Offset
from millpond.model.ports import Clock


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
    while True:
        await asyncio.sleep(pause_seconds)
        partitions.open_what_failed(metadata.image)
        delays.look()
        for partition in list(partitions):
            try:
                await remove_acknowledged(partition, queues)
                until = await removable(partition, clock.wall_ms())
                await partition.log.upkeep(now_ms=clock.wall_ms(), until=until)
                await partition.log.compact(now_ms=clock.wall_ms(), until=partition.high_watermark)
            except (LogClosed, NotLeader, CoordinatorUnavailable):
                continue  # its topic was deleted meanwhile, or another broker leads it, or its queues
            except StorageError as error:
                on_error(error)


async def remove_acknowledged(partition: Partition, queues: Queues) -> None:
    """Of a topic that keeps messages only until every queue group has acknowledged them."""
    if not partition.config.retains_unacknowledged or partition.leading is None:
        return
    start = await queues.acknowledged_by_all(partition)
    if start > partition.log.start_offset:
        if partition.delays is not None:
            await partition.delays.make_way(start)
        await partition.log.delete_before(start)


async def removable(partition: Partition, now_ms: int) -> Offset:
    """How far retention may go. Where messages are delayed, only the leader knows which of them still wait: it carries
    them on first, and its followers remove what it has removed."""
    if not partition.config.delay:
        return partition.high_watermark
    if partition.delays is None:
        return partition.log.start_offset
    return await partition.delays.make_way(partition.log.expires_before(now_ms))
