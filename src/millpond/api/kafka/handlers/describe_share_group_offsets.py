"""DescribeShareGroupOffsets: where share groups are, partition by partition."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import share_offsets
from millpond.broker.operations.share_offsets import Place
from millpond.model.errors import MillpondError
from millpond.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

UNKNOWN = -1


def answer(
    node: Node, request: DescribeShareGroupOffsetsRequest, context: Context
) -> Awaitable[DescribeShareGroupOffsetsResponse]:
    return _answer(node, request)


async def _answer(node: Node, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[await _group(node, each) for each in request.groups])


async def _group(node: Node, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        places = {
            (each.topic.name, each.partition): each for each in await share_offsets.describe(node, asked.group_id)
        }
    except MillpondError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=[], error_code=error.kafka_code, error_message=str(error)
        )
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for name, partition in places:
            wanted.setdefault(name, []).append(partition)
    else:
        wanted = {each.topic_name: each.partitions for each in asked.topics}
    topics = [_topic(node, name, partitions, places) for name, partitions in wanted.items()]
    return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=topics)


def _topic(
    node: Node, name: str, partitions: list[int], places: dict[tuple[str, int], Place]
) -> DescribeShareGroupOffsetsResponseTopic:
    known = node.image.topics.get(name)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=bytes(16) if known is None else known.topic_id,
        partitions=[_partition(each, places.get((name, each))) for each in partitions],
    )


def _partition(index: int, place: Place | None) -> DescribeShareGroupOffsetsResponsePartition:
    if place is None:
        return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNKNOWN)
    return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=place.start, lag=place.lag)
