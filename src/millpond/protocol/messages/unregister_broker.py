"""UnregisterBroker: a broker that is down is gone for good.

Version notes:
    0  flexible from the start
"""

from typing import ClassVar

from millpond.protocol.messages.fields import int16, int32, served, string, wire


@wire
class UnregisterBrokerRequest:
    api_key: ClassVar[int] = 64
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    broker_id: int = int32()


@wire
class UnregisterBrokerResponse:
    api_key: ClassVar[int] = 64
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
