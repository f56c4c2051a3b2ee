"""FindCoordinator: which broker looks after a group.

Behaviour: this one, for every group. Transactions have no coordinator yet.
Version notes: to 3 one key, from 4 several at once.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0
_COORDINATOR_NOT_AVAILABLE = 15


def answer(node: Node, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    broker = node.image.brokers[node.node_id]
    host, port = broker.endpoints[0].host, broker.endpoints[0].port
    error, message = 0, None
    node_id = node.node_id
    if request.key_type != _GROUP:
        error, message = _COORDINATOR_NOT_AVAILABLE, "only groups have a coordinator here; transactions do not, yet"
        node_id, host, port = -1, "", -1
    return FindCoordinatorResponse(
        error_code=error,
        error_message=message,
        node_id=node_id,
        host=host,
        port=port,
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ],
    )
