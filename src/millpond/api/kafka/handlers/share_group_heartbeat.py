"""ShareGroupHeartbeat (KIP-932): joining, leaving and being alive in a share group, all in one.

Behaviour: the broker says who reads which partitions; several may read the same one. A member brings its own id.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.records import TopicIdPartition
from millpond.core.groups.share_events import ShareHeartbeat, ShareHeartbeatResult
from millpond.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


def answer(node: Node, request: ShareGroupHeartbeatRequest, context: Context) -> Awaitable[ShareGroupHeartbeatResponse]:
    topics = request.subscribed_topic_names
    asked = node.groups.ask(
        request.group_id,
        lambda token: ShareHeartbeat(
            token=token,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=None if topics is None else frozenset(topics),
            client_id=context.client_id or "",
            client_host=context.host,
        ),
    )
    return _response(asked)


async def _response(asked: Awaitable[ShareHeartbeatResult]) -> ShareGroupHeartbeatResponse:
    result = await asked
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
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
