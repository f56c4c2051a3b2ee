"""Fetch: read record batches from partitions, waiting for them if need be.

Behaviour: the broker answers once `min_bytes` are there, `max_wait_ms` is over, or any partition has an error. It
sends whole batches, at least one even where that is larger than the limits, so that a reader always gets on. A
`session_id` of 0 in the response keeps a client sending full requests. `preferred_read_replica` is -1 unless the
client shall read elsewhere.

Version notes:
    4  isolation_level and aborted_transactions    5  log_start_offset    7  sessions: requests may name changes only
    9  current_leader_epoch    11  rack_id and preferred_read_replica    12  flexible; divergence by epoch
   13  topic ids instead of names    15  replica_id moves into replica_state    16  node_endpoints
   17  the follower's directory
"""

from typing import ClassVar

from millpond.model.ports import Buffer
from millpond.protocol.messages.fields import (
    Kind,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    served,
    string,
    struct,
    uuid,
    wire,
)


@wire
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0)


@wire
class FetchTopic:
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[FetchPartition] = array(FetchPartition)


@wire
class ForgottenTopic:
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[int] = array(Kind.INT32)


@wire
class ReplicaState:
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@wire
class FetchRequest:
    api_key: ClassVar[int] = 1
    versions: ClassVar[range] = served(4, 17)
    flexible_since: ClassVar[int | None] = 12

    cluster_id: str | None = string(since=12, nullable_since=0, tag=0, default=None)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)


@wire
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@wire
class EpochEndOffset:
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@wire
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@wire
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@wire
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable_since=0)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Buffer | None = records(nullable_since=0)


@wire
class FetchableTopicResponse:
    topic: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[PartitionData] = array(PartitionData)


@wire
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


@wire
class FetchResponse:
    api_key: ClassVar[int] = 1
    versions: ClassVar[range] = served(4, 17)
    flexible_since: ClassVar[int | None] = 12

    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
