"""When messages were written: the first timestamp of the batch that an offset is in, without reading the batch.

Each call is one try: admin.py, which drives this by way of admin_groups.py, tries again.
"""

from collections.abc import Mapping
from typing import Final

from millpond.client.cluster import Cluster, Purpose
from millpond.client.refusals import refusal
from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.model.limits import KIB, MIB
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millpond.protocol.records import HEADER_BYTES, parse_header

PARTITION_BYTES: Final = KIB
"""The head of a batch is enough; brokers send a whole one where that is the only one asked for."""
NOT_ANSWERED: Final = frozenset({1, 3})
"""The log was cut, or the topic deleted, since its offsets were asked for."""


async def written_at(cluster: Cluster, places: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, TimestampMs]:
    """By partition; those without a leader, or without a message there, are left out."""
    by_node: dict[int, dict[TopicPartition, Offset]] = {}
    for at, offset in places.items():
        leader = cluster.view.leader_of(at)
        if leader is not None:
            by_node.setdefault(leader.node, {})[at] = offset
    found: dict[TopicPartition, TimestampMs] = {}
    for node, wanted in by_node.items():
        while wanted:
            answered = await _ask(cluster, node, wanted)
            found.update(answered)
            # Of many partitions a broker may send the first ones only, but always the first.
            done = set(answered) or {next(iter(wanted))}
            wanted = {at: offset for at, offset in wanted.items() if at not in done}
    return found


async def _ask(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, TimestampMs]:
    topics: dict[str, list[FetchPartition]] = {}
    for at, offset in wanted.items():
        wish = FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        topics.setdefault(at.topic, []).append(wish)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MIB,
        topics=[FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
    )
    connection = await cluster.connection(node, Purpose.CONTROL)
    answer = await connection.ask(request, FetchResponse, seconds_max=cluster.settings.request_seconds_max)
    found: dict[TopicPartition, TimestampMs] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            at = TopicPartition(topic.topic, part.partition_index)
            if part.error_code and part.error_code not in NOT_ANSWERED:
                cluster.forget_leader(at, node)
                raise refusal(part.error_code, None, of=str(at))
            if part.records and len(part.records) >= HEADER_BYTES:
                found[at] = parse_header(memoryview(part.records), 0).base_timestamp
    return found
