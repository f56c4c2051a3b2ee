"""Metadata: which brokers there are, and who leads which partition.

Behaviour: null `topics` asks for all, an empty list for none; in version 0 an empty list asks for all. A topic that
is not there is created if the broker and `allow_auto_topic_creation` say so. A topic has an error of its own, and so
has every partition; a client comes back for those that are retriable.

Version notes:
    0  no null list: empty means all    1  racks, controller_id, is_internal    2  cluster_id
    4  allow_auto_topic_creation    5  offline_replicas    7  leader_epoch
    8  authorized operations, as bit fields    9  flexible    10  topic ids beside names in the response
   11  authorized operations of the cluster move to DescribeCluster
   12  requests by topic id, where name is null    13  an error for the response as a whole
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, served, string, uuid, wire


@wire
class MetadataRequestTopic:
    topic_id: bytes = uuid(since=10)
    name: str | None = string(nullable_since=10)


@wire
class MetadataRequest:
    api_key: ClassVar[int] = 3
    versions: ClassVar[range] = served(0, 13)
    flexible_since: ClassVar[int | None] = 9

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@wire
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable_since=1, default=None)


@wire
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    offline_replicas: list[int] = array(Kind.INT32, since=5)


@wire
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable_since=12)
    topic_id: bytes = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-(2**31))


@wire
class MetadataResponse:
    api_key: ClassVar[int] = 3
    versions: ClassVar[range] = served(0, 13)
    flexible_since: ClassVar[int | None] = 9

    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable_since=2, default=None)
    controller_id: int = int32(since=1, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-(2**31))
    error_code: int = int16(since=13)
