"""DescribeCluster: the brokers, for administrators' clients."""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def answer(node: Node, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        endpoint_type=request.endpoint_type,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker,
                host=broker.endpoints[0].host,
                port=broker.endpoints[0].port,
                rack=broker.rack,
            )
            for broker in node.image.live_brokers()
        ],
    )
