"""ShareAcknowledge: what became of records that a member of a share group has acquired, without fetching more.

Behaviour: belongs to the session that ShareFetch opened, and counts its epoch up as that does; -1 acknowledges and
closes the session. Batches are as in ShareFetch.

Version notes:
    1  the first, and flexible    2  is_renew_ack; the answer says how long records are locked
"""

from typing import ClassVar

from millpond.protocol.messages.fields import (
    Kind,
    array,
    boolean,
    int16,
    int32,
    int64,
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
class AcknowledgePartition:
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@wire
class AcknowledgeTopic:
    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@wire
class ShareAcknowledgeRequest:
    api_key: ClassVar[int] = 79
    versions: ClassVar[range] = served(1, 2)
    flexible_since: ClassVar[int | None] = 0

    group_id: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(since=2)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@wire
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@wire
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


@wire
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@wire
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


@wire
class ShareAcknowledgeResponse:
    api_key: ClassVar[int] = 79
    versions: ClassVar[range] = served(1, 2)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = int32(since=2)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
