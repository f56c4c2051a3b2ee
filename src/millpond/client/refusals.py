"""Error codes in answers, as the errors of our tree.

    raise refusal(answer.error_code, answer.error_message, of="topic orders")

Pure. Driven by everything that reads an answer.
"""

from typing import Final

from millpond.model import errors
from millpond.model.errors import MillpondError, RefusedByBroker
from millpond.model.topic_names import TOPIC_NAME_ALLOWED
from millpond.telemetry.kafka_errors import error_name

NONE: Final = 0
NEW_LEADER_CODES: Final = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 100})
"""Whoever was asked is not, or not yet, the one to ask: look up the leader again."""
NEW_COORDINATOR_CODES: Final = frozenset({14, 15, 16})
RETRIED_CODES: Final = NEW_LEADER_CODES | NEW_COORDINATOR_CODES | {2, 7, 13, 19, 20, 51, 78, 88}
"""A later try may do."""

_CLASSES: Final[dict[int, type[MillpondError]]] = {
    each.kafka_code: each
    for each in (
        errors.OffsetOutOfRange,
        errors.CorruptBatch,
        errors.UnknownTopicOrPartition,
        errors.NotLeader,
        errors.RequestTimedOut,
        errors.BatchTooLarge,
        errors.BrokerUnreachable,
        errors.CoordinatorUnavailable,
        errors.InvalidTopicName,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.InvalidAcks,
        errors.UnknownMember,
        errors.NotABroker,
        errors.InvalidTimestamp,
        errors.TopicAlreadyExists,
        errors.InvalidPartitions,
        errors.InvalidReplicationFactor,
        errors.InvalidReplicaAssignment,
        errors.InvalidSetting,
        errors.InvalidRequest,
        errors.UnsupportedMagic,
        errors.PolicyViolation,
        errors.OutOfOrderSequence,
        errors.DuplicateSequence,
        errors.StaleProducerEpoch,
        errors.StorageError,
        errors.GroupNotEmpty,
        errors.GroupNotFound,
        errors.MessageNotFound,
        errors.TopicDeletionDisabled,
        errors.FencedLeaderEpoch,
        errors.UnknownLeaderEpoch,
        errors.UnsupportedCompression,
        errors.OffsetNotAvailable,
        errors.PreferredLeaderNotAvailable,
        errors.EligibleLeadersNotAvailable,
        errors.ElectionNotNeeded,
        errors.NoReassignmentInProgress,
        errors.InvalidRecord,
        errors.UnknownTopicId,
    )
}
_CLASSES[5] = errors.NotLeader  # LEADER_NOT_AVAILABLE
_CLASSES[14] = _CLASSES[16] = errors.CoordinatorUnavailable

_REASONS: Final = {
    3: "there is no such topic or partition; create it first, or look for its name among the topics there are",
    17: f"this is no name for a topic; allowed are {TOPIC_NAME_ALLOWED}",
    25: "the group has no such member, or has other members",
    36: "a topic of this name is there already",
    68: "it has members; stop them first",
    69: "there is no such group; it is there once somebody has joined it, or committed for it",
}
"""For answers without words."""


def refusal(code: int, reason: str | None, *, of: str) -> MillpondError:
    """The error for an answer about `of`; with the broker's own words where it said any."""
    text = f"{of}: {reason or _REASONS.get(code, 'refused by the broker')} ({error_name(code)})"
    found = _CLASSES.get(code)
    return RefusedByBroker(code, text) if found is None else found(text)
