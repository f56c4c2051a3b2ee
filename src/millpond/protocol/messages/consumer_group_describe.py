"""ConsumerGroupDescribe: state, members and assignments of groups whose coordinator assigns.

Behaviour: `assignment` is what a member has, `target_assignment` what it shall have.

Version notes:
    0  flexible from the start    1  member_type: 0 classic, 1 consumer
"""

from typing import ClassVar

from millpond.protocol.messages.fields import (
    Kind,
    array,
    boolean,
    int8,
    int16,
    int32,
    served,
    string,
    struct,
    uuid,
    wire,
)


@wire
class ConsumerGroupDescribeRequest:
    api_key: ClassVar[int] = 69
    versions: ClassVar[range] = served(0, 1)
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
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1)


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
class ConsumerGroupDescribeResponse:
    api_key: ClassVar[int] = 69
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
