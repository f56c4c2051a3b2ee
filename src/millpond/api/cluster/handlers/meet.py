"""Meet: who this broker is, whom it takes for founders, and whether it has been part of the cluster."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.protocol.messages.meet import MeetRequest, MeetResponse


def answer(cluster: Cluster, request: MeetRequest, session: Session) -> MeetResponse:
    identity, quorum = cluster.identity, cluster.quorum
    return MeetResponse(
        node_id=identity.node_id,
        directory_id=identity.directory_id,
        founders=list(cluster.founders),
        members=list(quorum.raft.membership.nodes),
        is_new=quorum.is_new,
    )
