"""Committed offsets of one group.

Invariant: an offset changes only because somebody committed, deleted it, or its time was over; never by itself, and
never by a commit that was refused.
Pure: what has to be kept comes back as records. Who may commit is the group's to say; `registry.py` asks it first.
"""

from collections.abc import Callable, Iterable, Iterator

from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import OffsetCommitted, OffsetForgotten
from millpond.core.groups.settings import GroupSettings
from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset, TimestampMs, TopicPartition
from millpond.model.values import dataclass

_LAST_MS = 2**63 - 1
"""The latest time that can be kept; whoever asks for more time than there is gets until then."""


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    at: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """`generation` is the member epoch, where the group is a consumer group; -1 for whoever is no member."""

    token: Token
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    retention_ms: int = -1
    """Only versions 2 to 4 may ask for a time of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    token: Token
    partitions: tuple[TopicPartition, ...] | None = None
    """None for all there are."""
    member_id: str = ""
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    token: Token
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionErrors:
    """The answer to a commit or a deletion."""

    error: GroupError = GroupError.NONE
    partitions: tuple[tuple[TopicPartition, GroupError], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    error: GroupError = GroupError.NONE
    offsets: tuple[tuple[TopicPartition, OffsetCommitted | None], ...] = ()


class GroupOffsets:
    __slots__ = ("_committed", "_group", "_settings")

    def __init__(self, group: str, settings: GroupSettings) -> None:
        self._group = group
        self._settings = settings
        self._committed: dict[TopicPartition, OffsetCommitted] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[OffsetCommitted]:
        return iter(self._committed.values())

    def commit(
        self, event: CommitOffsets, *, wall_ms: int
    ) -> tuple[list[OffsetCommitted], tuple[tuple[TopicPartition, GroupError], ...]]:
        """What is to be kept, and the answer for each partition; one that is refused does not hinder the others."""
        records: list[OffsetCommitted] = []
        answers: list[tuple[TopicPartition, GroupError]] = []
        expires_at = TimestampMs(min(wall_ms + event.retention_ms, _LAST_MS)) if event.retention_ms >= 0 else None
        for each in event.offsets:
            metadata = each.metadata or ""
            if len(metadata) > self._settings.offset_metadata_chars_max:
                answers.append((each.at, GroupError.OFFSET_METADATA_TOO_LARGE))
                continue
            record = OffsetCommitted(
                self._group, each.at, each.offset, each.leader_epoch, metadata, TimestampMs(wall_ms), expires_at
            )
            self._committed[each.at] = record
            records.append(record)
            answers.append((each.at, GroupError.NONE))
        return records, tuple(answers)

    def fetch(
        self, partitions: Iterable[TopicPartition] | None
    ) -> tuple[tuple[TopicPartition, OffsetCommitted | None], ...]:
        wanted = sorted(self._committed) if partitions is None else partitions
        return tuple((at, self._committed.get(at)) for at in wanted)

    def delete(
        self, partitions: Iterable[TopicPartition], *, is_subscribed: Callable[[str], bool]
    ) -> tuple[list[OffsetForgotten], tuple[tuple[TopicPartition, GroupError], ...]]:
        records: list[OffsetForgotten] = []
        answers: list[tuple[TopicPartition, GroupError]] = []
        for at in partitions:
            if is_subscribed(at.topic):
                answers.append((at, GroupError.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            if self._committed.pop(at, None) is not None:
                records.append(OffsetForgotten(self._group, at))
            answers.append((at, GroupError.NONE))
        return records, tuple(answers)

    def forget_topic(self, topic: str) -> list[OffsetForgotten]:
        return self._forget(lambda each: each.at.topic == topic)

    def forget_all(self) -> list[OffsetForgotten]:
        return self._forget(lambda _: True)

    def expire(
        self, *, wall_ms: int, empty_since: TimestampMs | None, is_subscribed: Callable[[str], bool]
    ) -> list[OffsetForgotten]:
        """Forgets what nobody has wanted for the retention time.

        An offset is wanted while a member subscribes to its topic, and counts from when the group became empty
        (`empty_since`), or from its commit if that is later; for a group that never had members, and for a topic
        nobody subscribes to any more, from its commit.
        """

        def is_over(each: OffsetCommitted) -> bool:
            if is_subscribed(each.at.topic):
                return False
            if each.expires_at is not None:
                return wall_ms >= each.expires_at
            since = max(each.committed_at, empty_since or each.committed_at)
            return wall_ms >= since + self._settings.offsets_retention_ms

        return self._forget(is_over)

    def restore(self, record: OffsetCommitted | OffsetForgotten) -> None:
        if isinstance(record, OffsetCommitted):
            self._committed[record.at] = record
        else:
            self._committed.pop(record.at, None)

    def _forget(self, is_over: Callable[[OffsetCommitted], bool]) -> list[OffsetForgotten]:
        over = [at for at, each in self._committed.items() if is_over(each)]
        for at in over:
            del self._committed[at]
        return [OffsetForgotten(self._group, at) for at in over]
