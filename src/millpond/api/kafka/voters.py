"""What AddRaftVoter and RemoveRaftVoter have in common: whether they may, and how a change of the quorum went.

Driven by their handlers.
"""

from millpond.broker.node import Node
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.model.errors import MillpondError

_INCONSISTENT_CLUSTER_ID = 104

Refusal = tuple[int, str | None]
"""Kafka's error code, and why."""
DONE: Refusal = (0, None)


async def change_voters(
    node: Node, cluster_id: str | None, change: PromoteLearner | RemoveNode, *, refusal: Refusal | None
) -> Refusal:
    """`refusal` is why the change makes no sense, where it makes none; for a request that means this cluster."""
    if cluster_id not in (None, node.cluster_id):
        return _INCONSISTENT_CLUSTER_ID, f"this is cluster {node.cluster_id!r}"
    if refusal is not None:
        return refusal
    try:
        await node.metadata.change_members(change)
    except MillpondError as error:
        return error.kafka_code, str(error)
    return DONE
