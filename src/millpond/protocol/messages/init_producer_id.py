"""InitProducerId: an id and an epoch for an idempotent producer.

Behaviour: a null `transactional_id` asks for a fresh id that is used once. With one, the same id comes back with a
larger epoch, older producers are fenced off, and what they left open is aborted.

Version notes:
    1  as 0    2  flexible    3  the current id and epoch may be sent, to go on after an error    4  PRODUCER_FENCED
    5  transactions v2
"""

from typing import ClassVar

from millpond.protocol.messages.fields import int16, int32, int64, served, string, wire


@wire
class InitProducerIdRequest:
    api_key: ClassVar[int] = 22
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 2

    transactional_id: str | None = string(nullable_since=0, default=None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


@wire
class InitProducerIdResponse:
    api_key: ClassVar[int] = 22
    versions: ClassVar[range] = served(0, 5)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
