"""OffsetFetch: how far groups have come.

Behaviour: a partition without a committed offset is answered with -1 and no error.
Version notes: to 7 one group; from 8 several. Null topics are all that have an offset, from 2 on; before, an error is
told of each partition and nowhere else. From 10 topics go by id.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.offsets import FetchedOffsets, FetchOffsets
from millpond.core.groups.records import OffsetCommitted
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_UNKNOWN_TOPIC_ID = 100


class _Asked(NamedTuple):
    group: OffsetFetchRequestGroup
    unknown: list[OffsetFetchResponseTopics]
    """Topics by an id nobody has."""
    answer: Awaitable[FetchedOffsets]


def answer(node: Node, request: OffsetFetchRequest, context: Context) -> Awaitable[OffsetFetchResponse]:
    if context.version >= 8:
        return _several(node, [_ask(node, group, context) for group in request.groups], context)
    wanted = None
    if request.topics is not None:
        wanted = tuple(
            TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
        )
    asked = node.groups.ask(request.group_id, lambda token: FetchOffsets(token=token, partitions=wanted))
    return _one(wanted or (), asked)


async def _one(wanted: tuple[TopicPartition, ...], asked: Awaitable[FetchedOffsets]) -> OffsetFetchResponse:
    result = await asked
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for at, committed in [(at, None) for at in wanted] if result.error else result.offsets:
        topic = topics.setdefault(at.topic, OffsetFetchResponseTopic(name=at.topic, partitions=[]))
        offset, epoch, metadata = _told(committed)
        topic.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=at.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=result.error,
            )
        )
    return OffsetFetchResponse(topics=list(topics.values()), error_code=result.error)


def _ask(node: Node, group: OffsetFetchRequestGroup, context: Context) -> _Asked:
    wanted = None
    unknown = []
    if group.topics is not None:
        found = []
        for topic in group.topics:
            known = node.image.topics_by_id.get(topic.topic_id) if context.version >= 10 else None
            name = topic.name if context.version < 10 else known.name if known else None
            if name is None:
                unknown.append(_unknown(topic.topic_id, topic.partition_indexes))
            else:
                found += [TopicPartition(name, index) for index in topic.partition_indexes]
        wanted = tuple(found)
    asked = node.groups.ask(
        group.group_id,
        lambda token: FetchOffsets(
            token=token, partitions=wanted, member_id=group.member_id or "", member_epoch=group.member_epoch
        ),
    )
    return _Asked(group, unknown, asked)


def _unknown(topic_id: bytes, indexes: list[int]) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, metadata="", error_code=_UNKNOWN_TOPIC_ID
        )
        for index in indexes
    ]
    return OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions)


async def _several(node: Node, asked: list[_Asked], context: Context) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[await _group(node, each) for each in asked])


async def _group(node: Node, asked: _Asked) -> OffsetFetchResponseGroup:
    result = await asked.answer
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for at, committed in result.offsets:
        known = node.image.topics.get(at.topic)
        topic_id = known.topic_id if known else bytes(16)
        topic = topics.setdefault(at.topic, OffsetFetchResponseTopics(name=at.topic, topic_id=topic_id, partitions=[]))
        offset, epoch, metadata = _told(committed)
        topic.partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=at.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
            )
        )
    return OffsetFetchResponseGroup(
        group_id=asked.group.group_id, topics=[*topics.values(), *asked.unknown], error_code=result.error
    )


def _told(committed: OffsetCommitted | None) -> tuple[int, int, str]:
    if committed is None:
        return -1, -1, ""
    return committed.offset, committed.leader_epoch, committed.metadata
