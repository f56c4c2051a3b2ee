"""ListDelays: the messages of a partition that wait to be delivered, by when they are due. Millpond's own.

Behaviour: asked of the partition's leader. `after_due` and `after_id` are those of the last message of the page before;
-1 for the first page.
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int16, int32, int64, served, string, wire


@wire
class ListDelaysRequest:
    api_key: ClassVar[int] = 21000
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    topic: str = string()
    partition: int = int32()
    after_due: int = int64(default=-1)
    after_id: int = int64(default=-1)
    count_max: int = int32()


@wire
class DelayedMessage:
    id: int = int64()
    due: int = int64()
    is_recurring: bool = boolean()


@wire
class ListDelaysResponse:
    api_key: ClassVar[int] = 21000
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    pending: int = int64()
    """How many wait in the partition, on this page or not."""
    messages: list[DelayedMessage] = array(DelayedMessage)
