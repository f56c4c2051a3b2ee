"""DescribeQuorum: who keeps the cluster's metadata, and how far each of them is.

Behaviour: the only topic is `__cluster_metadata`, its only partition 0. -1 stands for an offset or a time that is not
known.

Version notes:
    0  flexible from the start    1  when each was last heard and caught up
    2  messages for errors, ids of directories, and where the nodes listen
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, int64, served, string, uint16, uuid, wire

METADATA_TOPIC = "__cluster_metadata"


@wire
class PartitionRequest:
    partition_index: int = int32()


@wire
class TopicRequest:
    topic_name: str = string()
    partitions: list[PartitionRequest] = array(PartitionRequest)


@wire
class DescribeQuorumRequest:
    api_key: ClassVar[int] = 55
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 0

    topics: list[TopicRequest] = array(TopicRequest)


@wire
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1)
    last_caught_up_timestamp: int = int64(since=1, default=-1)


@wire
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@wire
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@wire
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@wire
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@wire
class DescribeQuorumResponse:
    api_key: ClassVar[int] = 55
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 0

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, default=None)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, since=2)
