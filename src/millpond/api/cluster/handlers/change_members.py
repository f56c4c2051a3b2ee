"""ChangeMembers: begun, if this broker leads the quorum."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.protocol.messages.change_members import PROMOTE, ChangeMembersRequest, ChangeMembersResponse


def answer(cluster: Cluster, request: ChangeMembersRequest, session: Session) -> ChangeMembersResponse:
    change = PromoteLearner(request.node) if request.change == PROMOTE else RemoveNode(request.node)
    refusal = cluster.quorum.change_membership(change)
    return ChangeMembersResponse(refusal="" if refusal is None else refusal.name)
