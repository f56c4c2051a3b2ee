"""DescribeQuorum: the controller, and how far each broker has the metadata.

Behaviour: only the leader knows how far the others are, so any other broker asks it, as Kafka's do. Where it does not
say so soon, the answer has who leads, and of the ends this broker's own. An end is the index behind the last entry, as
offsets are counted.
Version notes: from 2 the answer says where the nodes listen, so that whoever asks can go on to the leader.
"""

import asyncio
from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.drivers.links import Links
from millpond.broker.node import Node
from millpond.model.errors import UnknownTopicOrPartition
from millpond.protocol.messages.describe_quorum import (
    METADATA_TOPIC,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionData,
    ReplicaState,
    TopicData,
)
from millpond.protocol.messages.describe_quorum import Node as QuorumNode
from millpond.protocol.messages.fields import NO_ID

_UNKNOWN = -1


def answer(
    node: Node, request: DescribeQuorumRequest, context: Context
) -> Awaitable[DescribeQuorumResponse] | DescribeQuorumResponse:
    leader = node.metadata.quorum.leader
    if node.links is None or leader is None or leader == node.node_id or context.broker is not None:
        return _as_seen_here(node, request)
    return _as_seen_by(node, node.links, leader, request)


async def _as_seen_by(node: Node, links: Links, leader: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return await links.describe_quorum(leader, request) or _as_seen_here(node, request)


def _as_seen_here(node: Node, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    members = set(node.metadata.quorum.raft.membership.nodes)
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[_partition(node, topic.topic_name, each.partition_index) for each in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[
            QuorumNode(
                node_id=number,
                listeners=[Listener(name=each.listener, host=each.host, port=each.port) for each in broker.endpoints],
            )
            for number, broker in sorted(node.image.brokers.items())
            if number in members
        ],
    )


def _partition(node: Node, topic: str, number: int) -> PartitionData:
    if topic != METADATA_TOPIC or number != 0:
        error = UnknownTopicOrPartition(f"{topic}-{number} has no quorum; there is one, of {METADATA_TOPIC}-0")
        return PartitionData(partition_index=number, error_code=error.kafka_code, error_message=str(error))
    raft = node.metadata.quorum.raft
    return PartitionData(
        partition_index=number,
        leader_id=_UNKNOWN if raft.leader is None else raft.leader,
        leader_epoch=raft.term,
        high_watermark=raft.commit + 1,
        current_voters=[_replica(node, member) for member in raft.membership.voters],
        observers=[_replica(node, member) for member in raft.membership.learners],
    )


def _replica(node: Node, member: int) -> ReplicaState:
    raft, known = node.metadata.quorum.raft, node.image.brokers.get(member)
    state = ReplicaState(
        replica_id=member,
        replica_directory_id=(known.directory_id if known is not None else b"") or NO_ID,
        log_end_offset=_UNKNOWN,
    )
    peer = raft.peers.get(member)
    if member == node.node_id:
        state.log_end_offset = raft.log.last_index + 1
        state.last_caught_up_timestamp = node.clock.wall_ms() if raft.leader == member else _UNKNOWN
    elif peer is not None:
        silent_s = asyncio.get_running_loop().time() - peer.heard_at
        heard_ms = node.clock.wall_ms() - int(silent_s * 1000)
        state.log_end_offset = peer.match + 1 if peer.match else _UNKNOWN  # it has said nothing yet
        state.last_fetch_timestamp = heard_ms
        state.last_caught_up_timestamp = heard_ms if peer.match == raft.log.last_index else _UNKNOWN
    return state
