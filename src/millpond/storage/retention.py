"""Which segments of a log have had their time: by age, by size, and by what was deleted on purpose.

Pure: facts in, a count out. Driven by log.py, which does the removing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from millpond.storage.settings import LogSettings


class SegmentFacts(NamedTuple):
    base_offset: Offset
    next_offset: Offset
    size: int
    max_timestamp: TimestampMs


def expired_segments(
    segments: Sequence[SegmentFacts], settings: LogSettings, *, start_offset: Offset, now_ms: int
) -> int:
    """How many segments, counted from the oldest, may go. The last one counts too: it is rolled before it goes."""
    below_start = _below_start(segments, start_offset)
    if not settings.delete:
        return below_start
    return max(below_start, _expired_by_time(segments, settings, now_ms), _expired_by_size(segments, settings))


def _below_start(segments: Sequence[SegmentFacts], start_offset: Offset) -> int:
    return sum(each.next_offset <= start_offset for each in segments[:-1])


def _expired_by_time(segments: Sequence[SegmentFacts], settings: LogSettings, now_ms: int) -> int:
    if settings.retention_ms is None:
        return 0
    oldest_kept = now_ms - settings.retention_ms
    count = 0
    for number, each in enumerate(segments, start=1):
        if each.max_timestamp >= oldest_kept:
            break
        # A segment without any timestamp goes with a later one that has its time behind it, never by itself.
        if each.max_timestamp != NO_TIMESTAMP:
            count = number
    return count


def _expired_by_size(segments: Sequence[SegmentFacts], settings: LogSettings) -> int:
    if settings.retention_bytes is None:
        return 0
    spare = sum(each.size for each in segments) - settings.retention_bytes
    count = 0
    # A segment goes only if what remains still fills the bound; the growing one stays.
    while count < len(segments) - 1 and segments[count].size <= spare:
        spare -= segments[count].size
        count += 1
    return count
