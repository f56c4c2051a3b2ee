"""What logs need now and then: segments rolled by age, old ones removed, compacted topics compacted, and another try
for those that could not be opened.

One log after another, so that upkeep never crowds out clients. Driven by app, which starts and cancels it.
"""

import asyncio
from collections.abc import Callable

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partitions import PartitionTable
from millpond.model.errors import LogClosed, StorageError
from millpond.model.ports import Clock


async def keep_up(
    metadata: MetadataLog,
    partitions: PartitionTable,
    clock: Clock,
    *,
    pause_seconds: float,
    on_error: Callable[[BaseException], None],
) -> None:
    while True:
        await asyncio.sleep(pause_seconds)
        partitions.open_what_failed(metadata.image)
        for partition in list(partitions):
            try:
                await partition.log.upkeep(now_ms=clock.wall_ms(), until=partition.high_watermark)
                await partition.log.compact(now_ms=clock.wall_ms(), until=partition.high_watermark)
            except LogClosed:
                continue  # its topic was deleted meanwhile
            except StorageError as error:
                on_error(error)
