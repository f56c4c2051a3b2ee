"""What a cluster says of itself, put together from DescribeQuorum, DescribeCluster and Metadata.

Invariant: everything in a `ClusterState` came over the wire from brokers; what no broker knew is None.
Driven by cluster.py.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, field

from millpond.cli.asking import Asking
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable
from millpond.model.values import dataclass
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from millpond.protocol.messages.describe_quorum import (
    METADATA_TOPIC,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionRequest,
    ReplicaState,
    TopicRequest,
)
from millpond.protocol.messages.metadata import MetadataRequest, MetadataResponse

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Member:
    node_id: int
    log_end: int | None
    lag: int | None
    """In entries of the metadata log, behind the leader."""
    heard_ms_ago: int | None
    """When the leader last heard it."""


@dataclass(frozen=True, slots=True)
class Quorum:
    leader: int | None
    term: int
    committed: int
    voters: list[Member]
    observers: list[Member]


@dataclass(frozen=True, slots=True)
class BrokerState:
    node_id: int
    address: str
    rack: str | None
    state: str
    """`live`, or `fenced`: silent for a session, so that others lead in its place."""
    leads: int
    """Partitions."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(frozen=True, slots=True)
class ClusterState:
    cluster_id: str
    quorum: Quorum
    brokers: list[BrokerState]
    partitions: int
    leaderless: list[PartitionState]
    under_replicated: list[PartitionState]
    every_partition: list[PartitionState] = field(repr=False)

    def document(self) -> dict[str, object]:
        """For programs: partitions one by one only where something is wrong, as there may be very many."""
        document = asdict(self)
        del document["every_partition"]
        return document


def look(addresses: Sequence[Address], *, seconds_max: float, now_ms: int) -> ClusterState:
    """By the first broker that is there."""
    with Asking.connect(addresses, seconds_max=seconds_max) as broker:
        described = broker.ask(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
        metadata = broker.ask(MetadataRequest(topics=None), MetadataResponse)
        quorum = _ask_quorum(broker)
    leads = Counter(each.leader_id for topic in metadata.topics for each in topic.partitions)
    partitions = [
        PartitionState(
            topic.name or "",
            each.partition_index,
            _known(each.leader_id),
            list(each.replica_nodes),
            list(each.isr_nodes),
        )
        for topic in metadata.topics
        for each in topic.partitions
    ]
    return ClusterState(
        cluster_id=described.cluster_id,
        quorum=_quorum(_best_known(quorum, seconds_max=seconds_max), now_ms=now_ms),
        brokers=[
            BrokerState(
                each.broker_id,
                f"{each.host}:{each.port}",
                each.rack or None,
                "fenced" if each.is_fenced else "live",
                leads[each.broker_id],
            )
            for each in described.brokers
        ],
        partitions=len(partitions),
        leaderless=[each for each in partitions if each.leader is None],
        under_replicated=[each for each in partitions if len(each.in_sync) < len(each.replicas)],
        every_partition=partitions,
    )


def _ask_quorum(broker: Asking) -> DescribeQuorumResponse:
    topic = TopicRequest(topic_name=METADATA_TOPIC, partitions=[PartitionRequest(partition_index=0)])
    return broker.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)


def _best_known(first: DescribeQuorumResponse, *, seconds_max: float) -> PartitionData:
    """As the leader answers, if it does: only it knows how far the others are."""
    data = first.topics[0].partitions[0]
    where = {node.node_id: node.listeners[0] for node in first.nodes if node.listeners}
    leader = where.get(data.leader_id)
    if leader is None or all(each.log_end_offset >= 0 for each in (*data.current_voters, *data.observers)):
        return data
    try:
        with Asking.connect([Address(leader.host, leader.port)], seconds_max=seconds_max) as broker:
            return _ask_quorum(broker).topics[0].partitions[0]
    except BrokerUnreachable:
        return data


def _quorum(data: PartitionData, *, now_ms: int) -> Quorum:
    ends = {each.replica_id: each.log_end_offset for each in (*data.current_voters, *data.observers)}
    leaders_end = ends.get(data.leader_id, _NOBODY)

    def member(each: ReplicaState) -> Member:
        is_known = each.log_end_offset >= 0
        heard_ms = each.last_fetch_timestamp
        return Member(
            each.replica_id,
            each.log_end_offset if is_known else None,
            max(0, leaders_end - each.log_end_offset) if is_known and leaders_end >= 0 else None,
            max(0, now_ms - heard_ms) if heard_ms >= 0 else None,
        )

    return Quorum(
        leader=_known(data.leader_id),
        term=data.leader_epoch,
        committed=data.high_watermark,
        voters=[member(each) for each in data.current_voters],
        observers=[member(each) for each in data.observers],
    )


def _known(node_id: int) -> int | None:
    return None if node_id == _NOBODY else node_id
