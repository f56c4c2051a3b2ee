"""Delete records: a partition forgets what lies before an offset.

Invariant: what consumers have not been able to see yet is never deleted, nor are messages that wait to be delivered:
they are carried on to the end of the log first. Driven by the front doors.
"""

from millpond.broker.drivers.partition import Partition
from millpond.core.metadata.internal_topics import INTERNAL
from millpond.model.errors import (
    InvalidTopicName,
    NotLeader,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
)
from millpond.model.ids import Offset

HIGH_WATERMARK = Offset(-1)


async def delete_records(partition: Partition | None, before: Offset) -> Offset:
    """Returns the new start, durable; it is the old one where that is further on."""
    if partition is None:
        raise UnknownTopicOrPartition("this broker has no such partition; ask for metadata")
    if partition.at.topic in INTERNAL:
        raise InvalidTopicName(f"{partition.at.topic} is one of Millpond's own; its records stay")
    if partition.config.compact and not partition.config.delete:
        raise PolicyViolation(
            f"{partition.at.topic} is compacted, so the last record of each key stays; add delete to its cleanup.policy"
        )
    partition.require_leader()
    end = partition.high_watermark
    if before == HIGH_WATERMARK:
        before = end
    if not 0 <= before <= end:
        raise OffsetOutOfRange(f"offset {before} is not in {partition.at}; allowed is 0 to {end}, or -1 for all")
    log = partition.log
    try:
        if partition.delays is not None and await partition.delays.make_way(before) < before:
            raise RequestTimedOut(f"messages that wait in {partition.at} are not all carried on yet; ask again")
        await log.delete_before(before)
    except StorageError as error:
        if log.is_closed:  # and perhaps its files are gone: no fault of the disk
            raise NotLeader(f"{partition.at} was deleted meanwhile, or is kept elsewhere; ask for metadata") from error
        raise
    return log.start_offset
