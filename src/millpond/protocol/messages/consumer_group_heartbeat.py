"""ConsumerGroupHeartbeat: the whole life of a member in groups whose coordinator assigns.

Behaviour: member_epoch 0 joins, -1 leaves, -2 leaves for a static member that will be back. Fields that have not
changed since the last heartbeat are null, or -1. An assignment in the response is the member's new target; null
means that it stands.

Version notes:
    0  flexible from the start; the coordinator picks the member id    1  the member picks its id; subscription by regex
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, struct, uuid, wire


@wire
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)


@wire
class ConsumerGroupHeartbeatRequest:
    api_key: ClassVar[int] = 68
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(Kind.STRING, nullable_since=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0, default=None)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@wire
class ConsumerGroupHeartbeatResponse:
    api_key: ClassVar[int] = 68
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
