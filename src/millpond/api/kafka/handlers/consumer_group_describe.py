"""ConsumerGroupDescribe: consumer groups (KIP-848) with their members, what they own and what they are to own."""

from collections.abc import Iterable

from millpond.api.kafka.allowed import GROUP, if_asked
from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.descriptions import ConsumerDescription
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ConsumerMemberRecord, TopicIdPartition
from millpond.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CONSUMER_MEMBER = 1


def answer(node: Node, request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    groups = [_described(node, name) for name in request.group_ids]
    for group in groups:
        if not group.error_code:
            group.authorized_operations = if_asked(request.include_authorized_operations, GROUP)
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(node: Node, name: str) -> DescribedGroup:
    group = node.groups.describe(name)
    if not isinstance(group, ConsumerDescription):
        error, message = GroupError.GROUP_ID_NOT_FOUND, f"{name} is no consumer group"
        if not name:
            error, message = GroupError.INVALID_GROUP_ID, "the group id is missing"
        return DescribedGroup(group_id=name, error_code=error, error_message=message)
    return DescribedGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=[_member(node, each) for each in group.members],
    )


def _member(node: Node, member: ConsumerMemberRecord) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(node, member.assigned),
        target_assignment=_assignment(node, member.target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(node: Node, partitions: Iterable[TopicIdPartition]) -> Assignment:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    known = node.image.topics_by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=known[topic_id].name, partitions=indexes)
            for topic_id, indexes in topics.items()
            if topic_id in known
        ]
    )
