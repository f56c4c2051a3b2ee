"""What applications send, get back and receive.

Pure values.
"""

from typing import NamedTuple

from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.model.values import dataclass
from millpond.protocol.records import Headers


class RecordMetadata(NamedTuple):
    """Where a message is."""

    topic: str
    partition: int
    offset: Offset
    """-1 where the broker did not say: with acks of none."""
    timestamp: TimestampMs


@dataclass(frozen=True, slots=True)
class Written:
    """Where some messages of one `send_many` are: `count` of them from `offset` on."""

    topic: str
    partition: int
    offset: Offset
    count: int


class Message(NamedTuple):
    """A message that was read."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
