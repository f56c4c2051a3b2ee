"""MeasureQueues: how many messages one queue group has before it, in partitions that a broker leads.

Between brokers only.

Behaviour: partitions that the broker does not lead, or cannot open, are left out.
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int32, int64, served, string, uuid, wire


@wire
class MeasureQueuesRequest:
    api_key: ClassVar[int] = 20010
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    group_id: str = string()
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)
    reload: bool = boolean()
    """What is kept of the group has changed behind the leader's back: it looks at that first."""


@wire
class Measured:
    partition_index: int = int32()
    ready: int = int64()
    leased: int = int64()
    waiting: int = int64()
    doomed: int = int64()
    start_offset: int = int64()
    end_offset: int = int64()


@wire
class MeasureQueuesResponse:
    api_key: ClassVar[int] = 20010
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    partitions: list[Measured] = array(Measured)
