"""ShareGroupDescribe: state, members and assignments of share groups.

Behaviour: one answer for each group asked for, in the order of the request.

Version notes:
    1  the only one, and flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int16, int32, served, string, struct, uuid, wire


@wire
class ShareGroupDescribeRequest:
    api_key: ClassVar[int] = 77
    versions: ClassVar[range] = served(1, 1)
    flexible_since: ClassVar[int | None] = 0

    group_ids: list[str] = array(Kind.STRING)
    include_authorized_operations: bool = boolean()


@wire
class TopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(Kind.INT32)


@wire
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@wire
class Member:
    member_id: str = string()
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    assignment: Assignment = struct(Assignment)


@wire
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


@wire
class ShareGroupDescribeResponse:
    api_key: ClassVar[int] = 77
    versions: ClassVar[range] = served(1, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
