"""Offsets that belong to moments: the start, the end, the first message not older than a time.

Driven by consumer.py and admin.py.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from millpond.client.cluster import Cluster
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.model.errors import MillpondError, NotLeader
from millpond.model.ids import Offset, TopicPartition
from millpond.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1


async def offsets_at(cluster: Cluster, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
    """The first offset not older than each moment; where there is none, the end."""
    found = await _all(cluster, moments)
    beyond = {at: LATEST for at, offset in found.items() if offset < 0}
    return found | await _all(cluster, beyond) if beyond else found


async def _all(cluster: Cluster, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
    missing = dict(moments)
    found: dict[TopicPartition, Offset] = {}

    async def ask() -> None:
        by_node: dict[int, dict[TopicPartition, int]] = {}
        unled = {at.topic for at in missing if cluster.view.leader_of(at) is None}
        if unled:
            await cluster.refresh(unled)
        for at, moment in missing.items():
            leader = cluster.view.leader_of(at)
            if leader is None:
                _check_there(cluster, at)
            else:
                by_node.setdefault(leader.node, {})[at] = moment
        asked = [_ask_one(cluster, node, wanted) for node, wanted in by_node.items()]
        problems: list[MillpondError] = []
        for answered in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answered, MillpondError):
                problems.append(answered)
            elif isinstance(answered, BaseException):
                raise answered
            else:
                found.update(answered)
                for at in answered:
                    del missing[at]
        if problems:
            raise next((each for each in problems if not each.retriable), problems[0])
        if missing:
            raise NotLeader(f"nobody leads {', '.join(map(str, list(missing)[:5]))} at the moment")

    await cluster.retrying(ask)
    return found


def _check_there(cluster: Cluster, at: TopicPartition) -> None:
    topic = cluster.view.topics.get(at.topic)
    if topic is None or at.partition >= len(topic.partitions):
        raise refusal(3, "there is no such partition", of=str(at))


async def _ask_one(cluster: Cluster, node: int, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for at, moment in moments.items():
        topics.setdefault(at.topic, []).append(ListOffsetsPartition(partition_index=at.partition, timestamp=moment))
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()]
    )
    try:
        answer = await cluster.ask(request, ListOffsetsResponse, node=node)
    except MillpondError:
        for at in moments:
            cluster.forget_leader(at, node)
        raise
    found: dict[TopicPartition, Offset] = {}
    problem: MillpondError | None = None
    for topic in answer.topics:
        for part in topic.partitions:
            at = TopicPartition(topic.name, part.partition_index)
            if part.error_code == 0:
                found[at] = Offset(part.offset)
                continue
            if part.error_code in NEW_LEADER_CODES:
                cluster.forget_leader(at, node)
            problem = refusal(part.error_code, None, of=str(at))
    if problem is not None and not problem.retriable:
        raise problem
    return found
