"""OffsetCommit: how far a group has come, kept before it is answered.

Behaviour: a partition that does not exist is refused by itself; the others are kept.
Version notes: to 9 topics go by name, from 10 by id. 2 to 4 may ask for a time after which the offset is forgotten.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import CommitOffsets, OffsetToCommit, PartitionErrors
from millpond.model.ids import LeaderEpoch, Offset, TopicPartition
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_UNKNOWN_TOPIC_OR_PARTITION = 3
_UNKNOWN_TOPIC_ID = 100
_STALE_SINCE = 9


def answer(node: Node, request: OffsetCommitRequest, context: Context) -> Awaitable[OffsetCommitResponse]:
    offsets = tuple(
        OffsetToCommit(
            TopicPartition(name, part.partition_index),
            Offset(part.committed_offset),
            LeaderEpoch(part.committed_leader_epoch),
            part.committed_metadata,
        )
        for topic in request.topics
        if (name := _name(node, topic)) is not None
        for part in topic.partitions
        if node.image.partition(TopicPartition(name, part.partition_index)) is not None
    )
    asked = node.groups.ask(
        request.group_id,
        lambda token: CommitOffsets(
            token=token,
            offsets=offsets,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_ms=request.retention_time_ms,
        ),
    )
    return _response(node, request, context.version, asked)


async def _response(
    node: Node, request: OffsetCommitRequest, version: int, asked: Awaitable[PartitionErrors]
) -> OffsetCommitResponse:
    result = await asked
    error = result.error
    if error is GroupError.STALE_MEMBER_EPOCH and version < _STALE_SINCE:
        error = GroupError.UNSUPPORTED_VERSION  # which older clients know
    codes = dict(result.partitions)
    topics = []
    for topic in request.topics:
        name = _name(node, topic)
        unknown = _UNKNOWN_TOPIC_ID if name is None else _UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=error or codes.get(TopicPartition(name or "", part.partition_index), unknown),
            )
            for part in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def _name(node: Node, topic: OffsetCommitRequestTopic) -> str | None:
    """None for an id nobody has; a name stands for itself, whether or not there is such a topic."""
    if topic.name:
        return topic.name
    found = node.image.topics_by_id.get(topic.topic_id)
    return found.name if found else None
