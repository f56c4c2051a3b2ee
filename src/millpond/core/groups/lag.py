"""How far a group is behind, in messages and in time. Pure arithmetic; the caller knows the logs.

Invariant: lag is never negative; what is not known is None, not zero.
"""

from collections.abc import Iterable, Mapping

from millpond.core.groups.records import OffsetCommitted
from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Of one partition, at one moment."""

    start: Offset
    end: Offset
    """What a consumer may read ends here: the high watermark, or the last stable offset."""
    next_unread_at: TimestampMs | None
    """Timestamp of the record at the committed offset; None where that is the end, or was not looked up."""


@dataclass(frozen=True, slots=True)
class Lag:
    at: TopicPartition
    committed: Offset
    end: Offset | None
    messages: int | None
    ms: int | None


def lag_of(
    committed: Iterable[OffsetCommitted], logs: Mapping[TopicPartition, LogFacts], *, wall_ms: int
) -> tuple[Lag, ...]:
    return tuple(_lag(each, logs.get(each.at), wall_ms) for each in committed)


def _lag(committed: OffsetCommitted, log: LogFacts | None, wall_ms: int) -> Lag:
    if log is None:
        return Lag(committed.at, committed.offset, None, None, None)
    # What retention has removed can no longer be read, and is not waited for.
    position = max(committed.offset, log.start)
    messages = max(log.end - position, 0)
    if messages == 0:
        return Lag(committed.at, committed.offset, log.end, 0, 0)
    late_ms = max(wall_ms - log.next_unread_at, 0) if log.next_unread_at is not None else None
    return Lag(committed.at, committed.offset, log.end, messages, late_ms)
