"""Names that are Millpond's own, and names that are too much alike.

Invariant: two topics never differ only in `.` and `_`, because metrics write one for the other.
Pure. Used by controller.py and image.py.
"""

from millpond.model.values import dataclass

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
STATES = "__share_group_state"


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that Millpond makes for itself when it is first needed."""

    partitions_setting: str
    replication_setting: str
    configs: tuple[tuple[str, str], ...]


INTERNAL = {
    CONSUMER_OFFSETS: InternalTopic(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        (("cleanup.policy", "compact"), ("segment.bytes", "104857600")),
    ),
    TRANSACTION_STATE: InternalTopic(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        (("cleanup.policy", "compact"), ("segment.bytes", "104857600")),
    ),
    STATES: InternalTopic(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        (
            ("cleanup.policy", "delete"),
            ("retention.ms", "-1"),
            ("retention.bytes", "-1"),
            ("segment.bytes", "4194304"),
            ("max.message.bytes", "4194304"),
        ),
    ),
}

RESERVED = frozenset({*INTERNAL, "__cluster_metadata", "__delays", "__traces"})
"""Names nobody else may take, among them those of internal topics yet to come."""


def folded(name: str) -> str:
    """The same for two names that metrics could not tell apart."""
    return name.replace(".", "_")
