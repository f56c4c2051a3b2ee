"""ShareAcknowledge: what became of messages that a member of a share group has, without asking for more.

Behaviour: each partition's acknowledgements are taken as a whole or refused as one, and every partition named is in the
answer. Epoch -1 ends the session, and what the member still has is for others at once.
Version notes: 2 may renew leases, and tells how long they last.
"""

from collections.abc import Awaitable, Mapping
from functools import partial

from millpond.api.kafka.context import Context
from millpond.api.kafka.sharing import Said, ask_session, close_session, partition_code, verdicts_of
from millpond.api.kafka.soon import Soon
from millpond.broker.node import Node
from millpond.broker.operations import share
from millpond.core.delivery.sessions import CLOSING, OPENING, Member, PartitionId, Session, Trouble
from millpond.model.errors import MillpondError
from millpond.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

INVALID_REQUEST = 42


def answer(
    node: Node, request: ShareAcknowledgeRequest, context: Context
) -> Soon | Awaitable[ShareAcknowledgeResponse] | ShareAcknowledgeResponse:
    if not request.group_id or not request.member_id:
        return ShareAcknowledgeResponse(error_code=INVALID_REQUEST)
    if request.share_session_epoch == OPENING:
        return ShareAcknowledgeResponse(error_code=Trouble.WRONG_EPOCH.value)
    session = ask_session(node, context, Member(request.group_id, request.member_id), request.share_session_epoch)
    if isinstance(session, Trouble):
        return ShareAcknowledgeResponse(error_code=session.value)
    said = verdicts_of(request.topics, renews=request.is_renew_ack)
    group, holder = session.member
    if request.share_session_epoch != CLOSING:
        begun = share.begin(node, group, holder, said.verdicts, (), None)
        if begun is not None:
            return Soon(begun.wait, partial(_finish, node, group, said, begun))
    return _answer(node, request, session, said)


def _finish(node: Node, group: str, said: Said, begun: share.Begun) -> ShareAcknowledgeResponse:
    begun.finish()
    return _response(node, group, begun.settled | said.refused)


async def _answer(
    node: Node, request: ShareAcknowledgeRequest, session: Session, said: Said
) -> ShareAcknowledgeResponse:
    group, holder = session.member
    settled = await share.settle(node, group, holder, said.verdicts) | said.refused
    if request.share_session_epoch == CLOSING:
        close_session(node, session)
    return _response(node, group, settled)


def _response(node: Node, group: str, settled: Mapping[PartitionId, MillpondError | None]) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for at, error in settled.items():
        part = PartitionData(
            partition_index=at.partition,
            error_code=partition_code(error),
            error_message=None if error is None else str(error),
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        )
        topics.setdefault(at.topic_id, []).append(part)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=node.queues.config(group).lock_ms,
        responses=[ShareAcknowledgeTopicResponse(topic_id=each, partitions=parts) for each, parts in topics.items()],
    )
