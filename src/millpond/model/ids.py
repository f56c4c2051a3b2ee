"""Names for numbers, so that an offset is not an epoch and neither is an int.

Pure. Imported everywhere.
"""

from base64 import urlsafe_b64encode
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Place of a record in its partition, from 0, without gaps."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders a partition has had; -1 where none is known."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""Number of a record within one producer id and epoch, wrapping at 2**31."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970 by a wall clock; -1 where none is known."""

NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER = ProducerId(-1)
NO_TIMESTAMP = TimestampMs(-1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka's tools write it, and every door of ours: 22 characters. What is on disk has it in hexadecimal."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")
