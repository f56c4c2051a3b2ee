"""What a follower does with the answer to its fetch, and where two logs part.

A follower asks with the end of its log and the epoch of its last record. A leader whose log does not have that epoch
up to there answers where its own record of it ends (`diverging`), and the follower cuts off what cannot be common and
asks again (KIP-101, KIP-279, KIP-595).
Invariant: a log is cut only where epochs prove that it differs, never at a high watermark: a follower's is older than
its leader's, and what lies above it may be acknowledged.
Pure functions. Driven by broker/drivers: one fetch at a time for each partition, dropped when the leader epoch changes;
the next one only after what came is synced, because its offset says so.
"""

from typing import Protocol

from millpond.model.errors import (
    FencedLeaderEpoch,
    LogClosed,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset
from millpond.model.values import dataclass

UNKNOWN_OFFSET = Offset(-1)

_LOOK_AGAIN = frozenset(
    error.kafka_code
    for error in (FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition, UnknownTopicId, LogClosed)
)


class EpochHistory(Protocol):
    """Which leader wrote which part of a log, as `storage.epochs.LeaderEpochs` keeps it."""

    @property
    def latest(self) -> LeaderEpoch:
        """-1 where there is none."""

    def at(self, offset: int) -> tuple[LeaderEpoch, Offset]:
        """The epoch `offset` was written in, and the offset at which the next epoch begins."""

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch known that is not above `epoch`, and the offset it ends before."""


@dataclass(frozen=True, slots=True)
class DivergingEpoch:
    epoch: LeaderEpoch
    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    error: int = 0
    """Kafka's code. A leader answers OFFSET_OUT_OF_RANGE with its `log_start`."""

    diverging: DivergingEpoch | None = None
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start: Offset = UNKNOWN_OFFSET
    base_offset: Offset | None = None
    """Of the first batch; None where none came."""


@dataclass(frozen=True, slots=True)
class Append:
    """What came follows on. Keep it, sync it, drop what is before `log_start`, fetch on. Perhaps nothing came."""

    high_watermark: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to end at `to`, believe no high watermark above it, and ask again.

    Only after an unclean election can the known high watermark lie above.
    """

    to: Offset


@dataclass(frozen=True, slots=True)
class StartAnew:
    """Nothing of the log is of use: empty it, begin it at `at`, and ask from there."""

    at: Offset


@dataclass(frozen=True, slots=True)
class BackOff:
    """Ask again after a pause."""

    why: str


@dataclass(frozen=True, slots=True)
class AwaitMetadata:
    """Leader and follower do not agree on who leads: ask again when the image has changed, or after a pause."""


Step = Append | Truncate | StartAnew | BackOff | AwaitMetadata


def follow(answer: FetchAnswer, *, history: EpochHistory, log_start: Offset, log_end: Offset) -> Step:
    """`log_start` and `log_end` are the follower's own; it asked with `log_end`."""
    if answer.error in _LOOK_AGAIN:
        return AwaitMetadata()
    if answer.error == OffsetOutOfRange.kafka_code:
        return _out_of_range(answer, history, log_end)
    if answer.error:
        return BackOff(f"the leader answered with error {answer.error}")
    if answer.diverging is not None:
        return _part(answer.diverging, answer.log_start, history, log_start, log_end)
    if answer.base_offset is not None and answer.base_offset != log_end:
        return BackOff(f"asked for offset {log_end} and got {answer.base_offset}")
    return Append(answer.high_watermark, answer.log_start)


def last_fetched_epoch(history: EpochHistory, *, log_start: Offset, log_end: Offset) -> LeaderEpoch:
    """What a follower asks with: the epoch of its last record, which need not be the last it has a note of."""
    return history.at(log_end - 1)[0] if log_end > log_start else NO_EPOCH


def diverging(
    history: EpochHistory, *, log_end: Offset, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
) -> DivergingEpoch | None:
    """The leader's side: None if its log has everything the follower has, else where the follower is to look.

    A leader that has written nothing yet has no trace of its own epoch; a follower with records of an epoch above all
    that are here has them from a leader that this log never heard of.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None  # it has nothing
    if last_fetched_epoch > history.latest:
        return DivergingEpoch(history.latest, log_end)
    epoch, end = history.end_of(last_fetched_epoch, log_end=log_end)
    if epoch < last_fetched_epoch or end < fetch_offset:
        return DivergingEpoch(epoch, end)
    return None


def high_watermark_of_follower(known: Offset, *, told: Offset, log_end: Offset) -> Offset:
    """As far as it may believe: what it has, of what the leader says; never less than before."""
    return max(known, min(told, log_end))


def _out_of_range(answer: FetchAnswer, history: EpochHistory, log_end: Offset) -> Step:
    if answer.log_start == UNKNOWN_OFFSET:
        return BackOff("the leader does not have the offset, and did not say where its log begins")
    if log_end < answer.log_start or history.latest == NO_EPOCH:
        return StartAnew(answer.log_start)
    return BackOff(f"the leader's log ends before {log_end}, and it found nothing that differs")


def _part(at: DivergingEpoch, leader_start: Offset, history: EpochHistory, log_start: Offset, log_end: Offset) -> Step:
    """To the smaller of where the leader's epoch ends and where one's own record of it ends."""
    _, own_end = history.end_of(at.epoch, log_end=log_end)
    common = min(at.end, log_end if own_end == UNKNOWN_OFFSET else own_end)
    if common < log_start or common < leader_start:
        return StartAnew(max(leader_start, Offset(0)))
    if common >= log_end:
        return BackOff(f"the leader differs from epoch {at.epoch} on, and the log has nothing after it")
    return Truncate(common)
