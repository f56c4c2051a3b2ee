"""List offsets: where a partition starts and ends, and what was there at a time.

Driven by the front doors.
"""

from typing import NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.model.errors import InvalidTimestamp, OffsetNotAvailable
from millpond.model.ids import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


class Listed(NamedTuple):
    offset: Offset = Offset(-1)
    timestamp: TimestampMs = NO_TIMESTAMP
    leader_epoch: LeaderEpoch = NO_EPOCH


def list_offset(partition: Partition, timestamp: int) -> Listed:
    """The first offset at or after that time, or one of the places above; -1 where there is none."""
    log, leading = partition.log, partition.require_leader()
    if timestamp == LATEST:
        if not leading.is_caught_up_with_the_past:
            raise OffsetNotAvailable(f"the end of {partition.at} is not known yet to its new leader; ask again")
        return Listed(partition.high_watermark, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Listed(log.start_offset, leader_epoch=_epoch_at(partition, log.start_offset))
    if timestamp == LATEST_TIERED:
        return Listed()  # nothing is anywhere else
    if timestamp == MAX_TIMESTAMP:
        newest = max([each.max_timestamp for each in log.facts()], default=NO_TIMESTAMP)
        return Listed() if newest == NO_TIMESTAMP else _first_since(partition, newest)
    if timestamp < 0:
        raise InvalidTimestamp(f"timestamp is {timestamp}; allowed are times from 0 on, and -1 to -5 for places")
    return _first_since(partition, TimestampMs(timestamp))


def _first_since(partition: Partition, timestamp: TimestampMs) -> Listed:
    found = partition.log.first_since(timestamp)
    if found is None or found[0] >= partition.high_watermark:
        return Listed()
    return Listed(*found, leader_epoch=_epoch_at(partition, found[0]))


def _epoch_at(partition: Partition, offset: Offset) -> LeaderEpoch:
    epoch, _ = partition.log.epochs.at(offset)
    return partition.leader_epoch if epoch == NO_EPOCH else epoch
