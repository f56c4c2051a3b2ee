"""AlterDelay: a message that waits to be delivered is cancelled, or due at another moment. Millpond's own.

Behaviour: asked of the partition's leader, and answered when it is kept. `due` is -1 to cancel. One that does not wait
any more is RESOURCE_NOT_FOUND.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import int16, int32, int64, served, string, wire

CANCEL: Final = -1


@wire
class AlterDelayRequest:
    api_key: ClassVar[int] = 21001
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    topic: str = string()
    partition: int = int32()
    id: int = int64()
    due: int = int64(default=CANCEL)
    timeout_ms: int = int32(default=10_000)


@wire
class AlterDelayResponse:
    api_key: ClassVar[int] = 21001
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
