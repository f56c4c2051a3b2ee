"""ShareFetch: acquire records of partitions for one member of a share group, and acknowledge others on the way.

Behaviour: a member has a share session with each broker: epoch 0 opens it, -1 closes it and gives back what it had
acquired, anything else counts up by one from request to request. A session remembers its partitions, so a request
names those that are new, and those it acknowledges records of. The answer holds whole batches; only the offsets in
`acquired_records` are the member's, until the lock runs out. `records` is never null, unlike Fetch's.

An acknowledgement covers `first_offset` to `last_offset`, both among them, with one type for all or one for each:
0 a gap in the log, 1 accept, 2 release, 3 reject, 4 renew (from version 2).

Version notes:
    1  the first, and flexible    2  share_acquire_mode (0 whole batches, 1 no more than max_records); is_renew_ack
"""

from typing import ClassVar

from millpond.model.ports import Buffer
from millpond.protocol.messages.fields import (
    OWN_TAGS,
    Kind,
    array,
    boolean,
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
class AcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(Kind.INT8)


@wire
class FetchPartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@wire
class FetchTopic:
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@wire
class ForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)


@wire
class ShareFetchRequest:
    api_key: ClassVar[int] = 78
    versions: ClassVar[range] = served(1, 2)
    flexible_since: ClassVar[int | None] = 0

    group_id: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    max_records: int = int32(since=1)
    batch_size: int = int32(since=1)
    share_acquire_mode: int = int8(since=2)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@wire
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@wire
class AcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@wire
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Buffer = records(default=b"")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)
    """By offset: stock clients count on it."""
    delivery_order: list[int] = array(Kind.INT32, tag=OWN_TAGS)
    """Millpond's own: which of `acquired_records` comes first, second and so on, where that is not by offset."""


@wire
class ShareFetchableTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@wire
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


@wire
class ShareFetchResponse:
    api_key: ClassVar[int] = 78
    versions: ClassVar[range] = served(1, 2)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = int32(since=1)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
