"""RaftMessages: handed to this broker's Raft node, and never answered.

A broker speaks for itself alone: a message in another's name ends the connection.
"""

from millpond.api.cluster.door import Unwelcome
from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.core.raft.encoding import decode_message
from millpond.protocol.messages.raft_messages import RaftMessagesRequest


def answer(cluster: Cluster, request: RaftMessagesRequest, session: Session) -> None:
    messages = [decode_message(content) for content in request.messages]
    if any(message.sender != session.broker for message in messages):
        raise Unwelcome
    assert session.broker is not None
    cluster.links.heard(session.broker)
    for message in messages:
        cluster.quorum.receive(message)
