"""DescribeCluster: the brokers, for administrators' clients.

Behaviour: the controller is the leader of the metadata quorum; this broker itself where none is known, as any broker
takes what is asked of a controller.
Version notes: from 2 fenced brokers are told of where they are asked for.
"""

from millpond.api.kafka.allowed import CLUSTER, if_asked
from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115


def answer(node: Node, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=_MISMATCHED_ENDPOINT_TYPE if is_known else _UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type is {request.endpoint_type}; here are brokers, which is {_BROKERS}",
        )
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        cluster_authorized_operations=if_asked(request.include_cluster_authorized_operations, CLUSTER),
        controller_id=node.controller_id,
        endpoint_type=request.endpoint_type,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker,
                host=broker.endpoints[0].host,
                port=broker.endpoints[0].port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for _, broker in sorted(node.image.brokers.items())
            if request.include_fenced_brokers or not broker.fenced
        ],
    )
