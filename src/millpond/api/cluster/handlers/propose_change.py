"""ProposeChange: into the controller's log, if it was decided on the newest image."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.drivers.quorum import Accepted, Conflict
from millpond.core.metadata.changes import decode_change
from millpond.model.errors import MalformedMessage, MillpondError, UnreadableCommand
from millpond.protocol.messages.propose_change import (
    ACCEPTED,
    CONFLICT,
    NOT_CONTROLLER,
    REFUSED,
    ProposeChangeRequest,
    ProposeChangeResponse,
)


def answer(cluster: Cluster, request: ProposeChangeRequest, session: Session) -> ProposeChangeResponse:
    try:
        change = decode_change(request.change)
    except UnreadableCommand as error:
        raise MalformedMessage(str(error)) from error
    try:
        outcome = cluster.quorum.propose(change)
    except MillpondError as error:
        return ProposeChangeResponse(outcome=REFUSED, message=str(error))
    match outcome:
        case Accepted(index, term):
            return ProposeChangeResponse(outcome=ACCEPTED, index=index, term=term)
        case Conflict(newest, term):
            return ProposeChangeResponse(outcome=CONFLICT, index=newest, term=term)
        case _:
            leader = cluster.quorum.leader
            return ProposeChangeResponse(outcome=NOT_CONTROLLER, leader=-1 if leader is None else leader)
