"""ShareGroupDescribe: share groups (KIP-932) with their members, and what these read."""

from collections.abc import Iterable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.descriptions import ShareDescription
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ShareMemberRecord, TopicIdPartition
from millpond.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def answer(node: Node, request: ShareGroupDescribeRequest, context: Context) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[_described(node, name) for name in request.group_ids])


def _described(node: Node, name: str) -> DescribedGroup:
    group = node.groups.describe(name)
    if not isinstance(group, ShareDescription):
        message = f"{name} is no share group"
        return DescribedGroup(group_id=name, error_code=GroupError.GROUP_ID_NOT_FOUND, error_message=message)
    return DescribedGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=group.assignor,
        members=[_member(node, each) for each in group.members],
    )


def _member(node: Node, member: ShareMemberRecord) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(node, member.assigned),
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
