"""ShareGroupHeartbeat: the whole life of a member of a share group.

Behaviour: member_epoch 0 joins, -1 leaves. The member picks its id. Fields that have not changed since the last
heartbeat are null. An assignment in the response replaces the one before, at once: partitions of share groups may be
read by several members, so nothing has to be given up first. Null means that it stands.

Version notes:
    1  the only one, and flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, struct, uuid, wire


@wire
class ShareGroupHeartbeatRequest:
    api_key: ClassVar[int] = 76
    versions: ClassVar[range] = served(1, 1)
    flexible_since: ClassVar[int | None] = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable_since=0, default=None)
    subscribed_topic_names: list[str] | None = array(Kind.STRING, nullable_since=0, default=None)


@wire
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(Kind.INT32)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@wire
class ShareGroupHeartbeatResponse:
    api_key: ClassVar[int] = 76
    versions: ClassVar[range] = served(1, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
