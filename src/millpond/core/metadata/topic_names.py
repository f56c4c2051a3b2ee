"""Which names a topic may have, and which are Millpond's own.

Invariant: two topics never differ only in `.` and `_`, because metrics write one for the other.
Pure. Used by controller.py and image.py.
"""

import re
from dataclasses import dataclass

from millpond.model.errors import InvalidTopicName
from millpond.model.limits import TOPIC_NAME_CHARS_MAX

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


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
}

RESERVED = frozenset({*INTERNAL, "__cluster_metadata", "__share_group_state", "__delays", "__traces"})
"""Names nobody else may take, among them those of internal topics yet to come."""


def check_topic_name(name: str) -> None:
    if name in (".", "..") or len(name) > TOPIC_NAME_CHARS_MAX or _ALLOWED.fullmatch(name) is None:
        shown = name if len(name) <= 80 else name[:80] + "…"
        raise InvalidTopicName(
            f"{shown!r} ({len(name)} characters) is no topic name; allowed are 1 to {TOPIC_NAME_CHARS_MAX} of "
            "a-z A-Z 0-9 . _ - and neither '.' nor '..'"
        )


def folded(name: str) -> str:
    """The same for two names that metrics could not tell apart."""
    return name.replace(".", "_")
