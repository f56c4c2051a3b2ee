"""SettleMessages: what became of messages of queues that a broker leads, from a broker that a consumer told.

Between brokers only.

Behaviour: what the holders have of the offsets named is settled, and the answer, when that is kept, names the rest. A
partition with an error has nothing settled, or nobody knows.
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int8, int16, int32, int64, served, string, uuid, wire


@wire
class HeldRun:
    first_offset: int = int64()
    last_offset: int = int64()
    holder: str = string()


@wire
class HeldPartition:
    partition_index: int = int32()
    held: list[HeldRun] = array(HeldRun)


@wire
class SettleMessagesRequest:
    api_key: ClassVar[int] = 20009
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    group_id: str = string()
    topic_id: bytes = uuid()
    outcome: int = int8()
    delay_ms: int = int64()
    """-1 leaves it to the group."""
    lock_ms: int = int64()
    """-1 leaves it as it was."""
    reason: str = string()
    partitions: list[HeldPartition] = array(HeldPartition)


@wire
class SettledPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str = string()
    lost: list[HeldRun] = array(HeldRun)


@wire
class SettleMessagesResponse:
    api_key: ClassVar[int] = 20009
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    partitions: list[SettledPartition] = array(SettledPartition)
