"""ShareFetch: messages for a member of a share group, and what became of others on the way.

Behaviour: acknowledgements first, then messages: whole batches, of which the member has what `acquired_records` says,
in the order of offsets. A partition without either is left out of the answer, one with acknowledgements never is. When
the connection ends, so does the session, and what the member had is for others at once.
Version notes: 2 may ask for no more than so many records, and may renew leases.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from millpond.api.kafka.context import Context
from millpond.api.kafka.sharing import Said, ask_session, close_session, partition_code, verdicts_of
from millpond.api.kafka.soon import Soon
from millpond.broker.drivers.queue_partition import Taken, Want
from millpond.broker.node import Node
from millpond.broker.operations import share
from millpond.core.delivery.sessions import CLOSING, OPENING, Member, PartitionId, Session, Trouble, update
from millpond.model.errors import MillpondError
from millpond.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

INVALID_REQUEST = 42
RECORD_LIMIT = 1
NO_LEADER = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
"""Of all answers, which only read it."""


def answer(
    node: Node, request: ShareFetchRequest, context: Context
) -> Soon | Awaitable[ShareFetchResponse] | ShareFetchResponse:
    context.connection.answer_alone()
    said = verdicts_of(request.topics, renews=request.is_renew_ack)
    if not request.group_id or not request.member_id or (request.share_session_epoch == OPENING and said):
        return ShareFetchResponse(error_code=INVALID_REQUEST)
    session = ask_session(node, context, Member(request.group_id, request.member_id), request.share_session_epoch)
    if isinstance(session, Trouble):
        return ShareFetchResponse(error_code=session.value)
    if request.topics or request.forgotten_topics_data:
        update(session, named=said.named, forgotten=_forgotten(request) if request.forgotten_topics_data else ())
    group, holder = session.member
    lock_ms = node.queues.config(group).lock_ms
    want = _want(node, request, holder, lock_ms=lock_ms)
    partitions = session.in_turn() if want is not None else []
    if request.share_session_epoch != CLOSING:
        begun = share.begin(node, group, holder, said.verdicts, partitions, want)
        if begun is not None and (said or begun.results or want is None or request.max_wait_ms <= 0):
            return Soon(begun.wait, partial(_finish, said, begun, lock_ms))
    return _answer(node, request, session, said, partitions, want, lock_ms=lock_ms)


def _want(node: Node, request: ShareFetchRequest, holder: str, *, lock_ms: int) -> Want | None:
    """None where it only settles."""
    is_closing = request.share_session_epoch == CLOSING
    if is_closing or request.max_records <= 0 or request.max_bytes <= 0 or request.is_renew_ack:
        return None
    return Want(
        holder,
        count_max=request.max_records,
        bytes_max=min(request.max_bytes, node.fetch_bytes_max),
        lock_ms=lock_ms,
        whole_batches=request.share_acquire_mode != RECORD_LIMIT,
    )


def _finish(said: Said, begun: share.Begun, lock_ms: int) -> ShareFetchResponse:
    begun.finish()
    settled = begun.settled | said.refused if said.refused else begun.settled
    return _response(settled, begun.results, lock_ms=lock_ms)


async def _answer(
    node: Node,
    request: ShareFetchRequest,
    session: Session,
    said: Said,
    partitions: Sequence[PartitionId],
    want: Want | None,
    *,
    lock_ms: int,
) -> ShareFetchResponse:
    group, holder = session.member
    settling = share.settle(node, group, holder, said.verdicts)
    results: dict[PartitionId, share.Result] = {}
    if want is None:
        settled = await settling
        if request.share_session_epoch == CLOSING:
            close_session(node, session)
    else:
        taking = share.take(node, group, partitions, want, wait_ms=0 if said else request.max_wait_ms)
        # Side by side, in this order: so both are kept together.
        settled, results = await asyncio.gather(settling, taking) if said.verdicts else (await settling, await taking)
    return _response(settled | said.refused, results, lock_ms=lock_ms)


def _response(
    settled: Mapping[PartitionId, MillpondError | None], results: Mapping[PartitionId, share.Result], *, lock_ms: int
) -> ShareFetchResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for each in {**settled, **results}:
        topics.setdefault(each.topic_id, []).append(_partition(each, results.get(each), settled.get(each)))
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[ShareFetchableTopicResponse(topic_id=each, partitions=found) for each, found in topics.items()],
    )


def _forgotten(request: ShareFetchRequest) -> list[PartitionId]:
    return [PartitionId(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions]


def _partition(at: PartitionId, result: share.Result | None, settled: MillpondError | None) -> PartitionData:
    part = PartitionData(
        partition_index=at.partition,
        acknowledge_error_code=partition_code(settled),
        acknowledge_error_message=None if settled is None else str(settled),
        current_leader=NO_LEADER,
    )
    if isinstance(result, MillpondError):
        part.error_code, part.error_message = partition_code(result), str(result)
    elif result is not None:
        part.records = _records(result.taken)
        deliveries = result.taken.deliveries
        by_offset = sorted(deliveries, key=attrgetter("first")) if len(deliveries) > 1 else deliveries
        part.acquired_records = [
            AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.attempt)
            for each in by_offset
        ]
        if by_offset != deliveries:  # where there are priorities
            places = {each: number for number, each in enumerate(by_offset)}
            part.delivery_order = [places[each] for each in deliveries]
    return part


def _records(taken: Taken) -> bytes | memoryview:
    if len(taken.batches) == 1:
        (batch,) = taken.batches.values()
        return batch
    return b"".join(taken.batches[base] for base in sorted(taken.batches))
