"""TakeMessages: messages of queues that a broker leads, for a consumer that asked another one.

Between brokers only.

Behaviour: with a `count_max` it is answered at once, with what there is, and that is leased to the holder. Without,
nothing is leased, and the answer waits at most `wait_ms` until one of the partitions is no longer as its mark says.
Partitions that the broker has open are in the answer, with the mark they have now; `error_code` is the first trouble.
"""

from typing import ClassVar

from millpond.model.ports import Buffer
from millpond.protocol.messages.fields import array, int16, int32, int64, records, served, string, uuid, wire


@wire
class Wanted:
    partition_index: int = int32()
    mark: int = int64()


@wire
class TakeMessagesRequest:
    api_key: ClassVar[int] = 20008
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    group_id: str = string()
    topic_id: bytes = uuid()
    partitions: list[Wanted] = array(Wanted)
    holder: str = string()
    count_max: int = int32()
    bytes_max: int = int32()
    lock_ms: int = int32()
    wait_ms: int = int32()


@wire
class Delivered:
    first_offset: int = int64()
    last_offset: int = int64()
    attempt: int = int32()


@wire
class TakenPartition:
    partition_index: int = int32()
    mark: int = int64()
    deliveries: list[Delivered] = array(Delivered)
    batches: Buffer = records(default=b"")


@wire
class TakeMessagesResponse:
    api_key: ClassVar[int] = 20008
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    error_code: int = int16()
    error_message: str = string()
    partitions: list[TakenPartition] = array(TakenPartition)
