"""What is kept of groups: values, each replacing the one with the same key. `offsets_format.py` makes bytes of them.

Pure. A record whose name ends in `Forgotten` removes what was kept before under its key.
"""

from typing import NamedTuple

from millpond.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from millpond.model.values import dataclass


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    group: str
    at: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: TimestampMs
    expires_at: TimestampMs | None = None
    """Only where an old client asked for a time of its own."""


@dataclass(frozen=True, slots=True)
class OffsetForgotten:
    group: str
    at: TopicPartition


@dataclass(frozen=True, slots=True)
class ClassicMemberRecord:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Under the protocol of the generation; the others are sent anew with the next join."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupRecord:
    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[ClassicMemberRecord, ...]
    changed_at: TimestampMs
    """For an empty group, since when."""


@dataclass(frozen=True, slots=True)
class GroupForgotten:
    """Of a classic group."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    group: str
    epoch: int
    changed_at: TimestampMs


@dataclass(frozen=True, slots=True)
class ConsumerGroupForgotten:
    group: str


@dataclass(frozen=True, slots=True)
class ConsumerMemberRecord:
    group: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: frozenset[str]
    regex: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    assigned: frozenset[TopicIdPartition]
    revoking: frozenset[TopicIdPartition]
    target: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class ConsumerMemberForgotten:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupRecord:
    group: str
    epoch: int
    changed_at: TimestampMs


@dataclass(frozen=True, slots=True)
class ShareGroupForgotten:
    group: str


@dataclass(frozen=True, slots=True)
class ShareMemberRecord:
    group: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    epoch: int
    previous_epoch: int
    assigned: frozenset[TopicIdPartition]
    target: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class ShareMemberForgotten:
    group: str
    member_id: str


Record = (
    OffsetCommitted
    | OffsetForgotten
    | ClassicGroupRecord
    | GroupForgotten
    | ConsumerGroupRecord
    | ConsumerGroupForgotten
    | ConsumerMemberRecord
    | ConsumerMemberForgotten
    | ShareGroupRecord
    | ShareGroupForgotten
    | ShareMemberRecord
    | ShareMemberForgotten
)
