"""FindCoordinator: which broker looks after a group.

Behaviour: the one that leads the partition that keeps the group. The first who asks has the topic made that keeps
groups: else each broker would have to name itself, and clients would go from one to the other. Transactions have no
coordinator yet, and who asks for one is refused for good: to "not available" clients come back until their time is up,
and nobody learns why.
Version notes: to 3 one key, from 4 several at once.
"""

from collections.abc import Awaitable
from contextlib import suppress

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.model.errors import MillpondError
from millpond.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP, _TRANSACTION = 0, 1
_INVALID_REQUEST = 42
_COORDINATOR_NOT_AVAILABLE = 15
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53


def answer(
    node: Node, request: FindCoordinatorRequest, context: Context
) -> Awaitable[FindCoordinatorResponse] | FindCoordinatorResponse:
    if request.key_type == _GROUP and not node.groups.has_place:
        return _answer_later(node, request)
    return _response(node, request)


async def _answer_later(node: Node, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    with suppress(MillpondError):
        await node.groups.make_place()
    return _response(node, request)


def _response(node: Node, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    found = [_coordinator(node, request.key_type, key) for key in request.coordinator_keys]
    first = _coordinator(node, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=first.error_code,
        error_message=first.error_message,
        node_id=first.node_id,
        host=first.host,
        port=first.port,
        coordinators=found,
    )


def _coordinator(node: Node, kind: int, key: str) -> Coordinator:
    if kind not in (_GROUP, _TRANSACTION):
        why = f"key type is {kind}; allowed are {_GROUP} for groups and {_TRANSACTION} for transactions"
        return _none(key, why, code=_INVALID_REQUEST)
    if kind != _GROUP:
        why = "only groups have a coordinator here; transactions are not served yet: leave out transactional.id"
        return _none(key, why, code=_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    leader = node.groups.leader_of(key)
    broker = node.image.brokers.get(leader)
    if broker is None:
        return _none(key, f"the partition that keeps group {key!r} has no leader at the moment; ask again")
    host, port = broker.endpoints[0].host, broker.endpoints[0].port
    return Coordinator(key=key, node_id=leader, host=host, port=port)


def _none(key: str, why: str, *, code: int = _COORDINATOR_NOT_AVAILABLE) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)
