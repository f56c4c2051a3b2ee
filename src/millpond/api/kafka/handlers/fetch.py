"""Fetch: batches from partitions.

Behaviour: waits up to max_wait_ms for min_bytes; answers at once where any partition has an error. Records go out as
they lie on disk. Sessions (KIP-227) are not kept: session 0 in the answer makes clients ask for everything each time,
which costs a few bytes a partition.
Version notes: to 12 topics go by name, from 13 by id.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

from millpond.api.kafka.context import Context
from millpond.api.kafka.soon import Soon
from millpond.broker.drivers.follower_waits import Question
from millpond.broker.node import Node
from millpond.broker.operations.fetch import Fetched, Follower, Wanted, after_more, fetch, fetch_now
from millpond.model.errors import NotABroker
from millpond.model.ids import LeaderEpoch, Offset
from millpond.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

NO_REPLICA = -1
_FETCH_SESSION_ID_NOT_FOUND = 70


def answer(node: Node, request: FetchRequest, context: Context) -> Soon | Awaitable[FetchResponse] | FetchResponse:
    if request.session_epoch > 0:
        return FetchResponse(error_code=_FETCH_SESSION_ID_NOT_FOUND)
    broker, broker_epoch = _replica(request)
    if broker != NO_REPLICA and broker != context.broker:
        error = NotABroker(
            f"the request says it is broker {broker}'s, and the connection has not proved to be that broker"
        )
        return _response(request, [Fetched(error=error) for topic in request.topics for _ in topic.partitions])
    if broker == NO_REPLICA or context.session is None:
        context.connection.answer_alone()
        question = None
    else:
        question = context.session.ask()
    wanted = []
    for topic in request.topics:
        for part in topic.partitions:
            each = Wanted(
                node.find(topic.topic, topic.topic_id, part.partition),
                Offset(part.fetch_offset),
                part.partition_max_bytes,
                LeaderEpoch(part.current_leader_epoch),
            )
            if broker != NO_REPLICA:
                now_ms = node.clock.monotonic_ms()
                each.follower = Follower(broker, broker_epoch, LeaderEpoch(part.last_fetched_epoch), now_ms)
            wanted.append(each)
    bytes_max = max(min(request.max_bytes, node.fetch_bytes_max), 1)  # one batch at least, however large
    bytes_min = min(request.min_bytes, bytes_max) if wanted and request.max_wait_ms > 0 else 0
    fetched = fetch_now(wanted, bytes_min=bytes_min, bytes_max=bytes_max)
    if fetched is not None:
        return _response(request, fetched)
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    if question is None:
        return _wait(request, wanted, bytes_min, bytes_max, deadline, None)
    return Soon(
        partial(after_more, wanted, deadline, question),
        partial(_answer_follower, request, wanted, bytes_min, bytes_max, deadline, question),
    )


def _replica(request: FetchRequest) -> tuple[int, int]:
    """The broker that asks in order to copy, and its epoch."""
    state = request.replica_state
    return (state.replica_id, state.replica_epoch) if state is not None else (request.replica_id, -1)


async def _wait(
    request: FetchRequest,
    wanted: list[Wanted],
    bytes_min: int,
    bytes_max: int,
    deadline: float,
    question: Question | None,
) -> FetchResponse:
    fetched = await fetch(wanted, bytes_min=bytes_min, bytes_max=bytes_max, deadline=deadline, question=question)
    return _response(request, fetched)


def _answer_follower(
    request: FetchRequest,
    wanted: list[Wanted],
    bytes_min: int,
    bytes_max: int,
    deadline: float,
    question: Question,
) -> Awaitable[FetchResponse] | FetchResponse:
    """Nearly always at once."""
    if not question.is_replaced:
        fetched = fetch_now(wanted, bytes_min=bytes_min, bytes_max=bytes_max)
        if fetched is not None:
            return _response(request, fetched)
    return _wait(request, wanted, bytes_min, bytes_max, deadline, question)


def _response(request: FetchRequest, fetched: list[Fetched]) -> FetchResponse:
    for_follower = _replica(request)[0] != NO_REPLICA
    responses, count = [], 0
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            parts.append(_partition(part.partition, fetched[count], for_follower=for_follower))
            count += 1
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
    return FetchResponse(responses=responses)


def _partition(index: int, fetched: Fetched, *, for_follower: bool) -> PartitionData:
    if fetched.error and not for_follower:
        return PartitionData(
            partition_index=index,
            error_code=fetched.error.kafka_code,
            high_watermark=-1,
            aborted_transactions=[] if fetched.high_watermark < 0 else None,  # as Kafka tells no partition from others
            records=fetched.data,
        )
    return PartitionData(
        partition_index=index,
        error_code=fetched.error.kafka_code if fetched.error else 0,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.high_watermark,
        log_start_offset=fetched.start_offset,
        aborted_transactions=None,
        records=fetched.data,
        diverging_epoch=None
        if fetched.diverging is None
        else EpochEndOffset(epoch=fetched.diverging.epoch, end_offset=fetched.diverging.end),
    )
