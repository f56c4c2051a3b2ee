"""Produce: append record batches to partitions.

Behaviour: the broker appends each batch, or refuses it, partition by partition. With `acks` 0 the client waits for
no response and none may be sent; with 1 the leader alone has the batch; with -1 every in-sync replica has it. A
producer that sends a batch again gets the offset of the first time. `log_append_time_ms` stays -1 unless the topic
stamps records on append.

Version notes:
    3  first with record batches v2 and transactional ids; older ones are advertised, never served
    5  log_start_offset    8  record_errors and error_message    9  flexible
   10  current_leader and node_endpoints, so that a client finds a new leader without Metadata
   12  clients with transactions v2 add partitions by producing to them    13  topic ids instead of names
"""

from typing import ClassVar

from millpond.model.ports import Buffer
from millpond.protocol.messages.fields import array, int16, int32, int64, records, served, string, struct, uuid, wire


@wire
class PartitionProduceData:
    index: int = int32()
    records: Buffer | None = records(nullable_since=0)


@wire
class TopicProduceData:
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@wire
class ProduceRequest:
    api_key: ClassVar[int] = 0
    versions: ClassVar[range] = served(3, 13)
    flexible_since: ClassVar[int | None] = 9

    transactional_id: str | None = string(nullable_since=0, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@wire
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable_since=0, default=None)


@wire
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@wire
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string(since=8, nullable_since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


@wire
class TopicProduceResponse:
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@wire
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


@wire
class ProduceResponse:
    api_key: ClassVar[int] = 0
    versions: ClassVar[range] = served(3, 13)
    flexible_since: ClassVar[int | None] = 9

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
