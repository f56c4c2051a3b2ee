"""ConsumerGroupHeartbeat (KIP-848): joining, leaving, being alive and reconciling, all in one.

Behaviour: the broker assigns; a member is told only what changes for itself, and nobody else stops.
Version notes: 0 may come without a member id and is given one; from 1 the client brings its own, and may subscribe by
pattern.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.consumer_events import AWAY, JOINING, ConsumerHeartbeat, ConsumerHeartbeatResult
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import TopicIdPartition
from millpond.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_OWN_IDS_SINCE = 1


def answer(
    node: Node, request: ConsumerGroupHeartbeatRequest, context: Context
) -> Awaitable[ConsumerGroupHeartbeatResponse]:
    if wrong := _wrong(request, context.version):
        return _refused(wrong)
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    asked = node.groups.ask(
        request.group_id,
        lambda token: ConsumerHeartbeat(
            token=token,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if topics is None else frozenset(topics),
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=None if owned is None else _owned(owned),
            client_id=context.client_id or "",
            client_host=context.host,
        ),
    )
    return _response(asked)


def _wrong(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What no member of any group may leave out or leave empty."""
    if not request.group_id.strip():
        return "the group id is missing"
    if version >= _OWN_IDS_SINCE and not request.member_id:
        return "the member id is missing; from version 1 on a member picks its own"
    if request.instance_id == "" or request.rack_id == "":
        return "an instance id and a rack may be left out, but not be empty"
    if request.member_epoch < AWAY:
        return f"member epoch {request.member_epoch} means nothing"
    if request.member_epoch == AWAY and request.instance_id is None:
        return "only a static member leaves with -2: the instance id is missing"
    if request.member_epoch == JOINING and request.topic_partitions is None:
        return "a member joins with an empty list of partitions"
    return None


async def _refused(why: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=GroupError.INVALID_REQUEST, error_message=why, assignment=None)


def _owned(topics: list[TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


async def _response(asked: Awaitable[ConsumerHeartbeatResult]) -> ConsumerGroupHeartbeatResponse:
    result = await asked
    if result.error is not GroupError.NONE:
        return ConsumerGroupHeartbeatResponse(error_code=result.error, error_message=result.message, assignment=None)
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(partitions: frozenset[TopicIdPartition]) -> Assignment:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
    )
