"""BrokerHeartbeat: another broker is alive; whether it still counts."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.controller import Pulse
from millpond.broker.drivers.doorkeeper import Session
from millpond.protocol.messages.broker_heartbeat import (
    ALIVE,
    NOT_CONTROLLER,
    REGISTER_AGAIN,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

_CODES = {Pulse.ALIVE: ALIVE, Pulse.REGISTER_AGAIN: REGISTER_AGAIN, Pulse.NOT_CONTROLLER: NOT_CONTROLLER}


def answer(cluster: Cluster, request: BrokerHeartbeatRequest, session: Session) -> BrokerHeartbeatResponse:
    assert session.broker is not None
    if request.host:
        cluster.links.told[session.broker] = (request.host, request.port)
        cluster.controller.welcome(session.broker)
    pulse = cluster.controller.heartbeat(session.broker, epoch=request.broker_epoch)
    leader = cluster.quorum.leader
    return BrokerHeartbeatResponse(outcome=_CODES[pulse], leader=-1 if leader is None else leader)
