"""DescribeTopicPartitions: topics and their partitions, page by page.

Behaviour: topics come in the order of their names, at most `response_partition_limit` partitions in all;
`next_cursor` says where the next page starts and is null on the last.

Version notes:
    0  the only one, flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, served, string, struct, uuid, wire


@wire
class TopicRequest:
    name: str = string()


@wire
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@wire
class DescribeTopicPartitionsRequest:
    api_key: ClassVar[int] = 75
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable_since=0)


@wire
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    eligible_leader_replicas: list[int] | None = array(Kind.INT32, nullable_since=0, default=None)
    last_known_elr: list[int] | None = array(Kind.INT32, nullable_since=0, default=None)
    offline_replicas: list[int] = array(Kind.INT32)


@wire
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable_since=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-(2**31))


@wire
class DescribeTopicPartitionsResponse:
    api_key: ClassVar[int] = 75
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
