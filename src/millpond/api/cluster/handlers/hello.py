"""Hello: who is there, and a challenge for it."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.protocol.messages.hello import HelloRequest, HelloResponse


def answer(cluster: Cluster, request: HelloRequest, session: Session) -> HelloResponse:
    return cluster.doorkeeper.hello(session, request)
