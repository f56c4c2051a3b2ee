"""Prove: from here on the connection is another broker's."""

from millpond.api.cluster.door import Unwelcome
from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.protocol.messages.prove import ProveRequest, ProveResponse


def answer(cluster: Cluster, request: ProveRequest, session: Session) -> ProveResponse:
    response = cluster.doorkeeper.prove(session, request)
    if response is None:
        raise Unwelcome
    return response
