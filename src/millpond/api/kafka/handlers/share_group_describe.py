"""ShareGroupDescribe: share groups (KIP-932) with their members, and what these read."""

from collections.abc import Awaitable, Iterable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import queue_groups
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ShareMemberRecord, TopicIdPartition
from millpond.model.errors import MillpondError
from millpond.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def answer(node: Node, request: ShareGroupDescribeRequest, context: Context) -> Awaitable[ShareGroupDescribeResponse]:
    return _answer(node, request)


async def _answer(node: Node, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[await _described(node, name) for name in request.group_ids])


async def _described(node: Node, name: str) -> DescribedGroup:
    try:
        group = await queue_groups.describe(node, name)
    except MillpondError as error:
        return DescribedGroup(group_id=name, error_code=error.kafka_code, error_message=str(error))
    if group is None:
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
