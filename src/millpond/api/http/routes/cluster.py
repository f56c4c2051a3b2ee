"""GET /api/v1/cluster: the brokers, and whether every partition is led and copied."""

from msgspec import Struct

from millpond.api.http.routing import Call, Route


class BrokerInfo(Struct):
    node_id: int
    host: str
    port: int
    """Of its Kafka door, as clients are told it."""
    rack: str | None
    is_fenced: bool
    """It is down, or was not heard of for too long."""


class ClusterInfo(Struct):
    cluster_id: str
    controller: int | None
    answered_by: int
    brokers: list[BrokerInfo]
    topics: int
    partitions: int
    partitions_without_leader: int
    partitions_under_replicated: int


async def cluster(call: Call) -> ClusterInfo:
    node = call.services.node
    partitions = [each for topic in node.image.topics.values() for each in topic.partitions]
    return ClusterInfo(
        cluster_id=node.cluster_id,
        controller=node.controller_id if node.controller_id >= 0 else None,
        answered_by=node.node_id,
        brokers=[
            BrokerInfo(each.broker, each.endpoints[0].host, each.endpoints[0].port, each.rack, each.fenced)
            for _, each in sorted(node.image.brokers.items())
        ],
        topics=len(node.image.topics),
        partitions=len(partitions),
        partitions_without_leader=sum(each.leader < 0 for each in partitions),
        partitions_under_replicated=sum(len(each.isr) < len(each.replicas) for each in partitions),
    )


ROUTES = (
    Route(
        method="GET", path="/api/v1/cluster", summary="The brokers of the cluster", handler=cluster, answer=ClusterInfo
    ),
)
