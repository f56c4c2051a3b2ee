"""DescribeProducers: the idempotent producers a partition remembers.

Behaviour: for each, its last sequence and, in a transaction, where that began; -1 where it did not.

Version notes:
    0  the only one, flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, int64, served, string, wire


@wire
class TopicRequest:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@wire
class DescribeProducersRequest:
    api_key: ClassVar[int] = 61
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    topics: list[TopicRequest] = array(TopicRequest)


@wire
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@wire
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@wire
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@wire
class DescribeProducersResponse:
    api_key: ClassVar[int] = 61
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
