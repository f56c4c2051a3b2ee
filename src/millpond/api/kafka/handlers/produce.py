"""Produce: batches for partitions.

Behaviour: batches are appended before the next request of the connection is looked at, and answered once kept. With
acks=0 nothing is answered; a refusal ends the connection. acks=1 and acks=all mean the same while there is one
replica: kept. But a topic that wants more replicas in sync than there are takes nothing with acks=all.
Version notes: to 12 topics go by name, from 13 by id. From 7 batches may be compressed with zstd. From 8 a refusal
says why, and which records of a batch it is about.
"""

from collections.abc import Awaitable
from functools import partial

from millpond.api.kafka.context import Context
from millpond.api.kafka.soon import Soon
from millpond.broker.node import Node
from millpond.broker.operations.produce import (
    Deadline,
    Pending,
    Produced,
    after_kept,
    begin,
    finish,
    finish_now,
)
from millpond.model.errors import (
    InvalidAcks,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    RequestError,
    UnsupportedCompression,
)
from millpond.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millpond.protocol.records import Codec, parse_header

_ZSTD_SINCE = 7


def answer(
    node: Node, request: ProduceRequest, context: Context
) -> Soon | Awaitable[ProduceResponse] | ProduceResponse | None:
    if request.acks not in (-1, 0, 1):
        error = InvalidAcks(f"acks is {request.acks}; allowed are -1 (all), 0 and 1")
        return _response(request, [Produced(error=error) for topic in request.topic_data for _ in topic.partition_data])
    pending = _begin_all(node, request, context.version)
    if request.acks:
        produced = finish_now(pending)
        if produced is None:
            deadline = Deadline(request.timeout_ms)
            return Soon(partial(after_kept, pending, deadline), partial(_answer, request, pending, deadline))
        return _response(request, produced)
    if any(each.error for each in pending):
        context.connection.close()  # the only way to tell a client that wants no answer
    return None


def _begin_all(node: Node, request: ProduceRequest, version: int) -> list[Pending]:
    if _names_one_twice(request):
        error = InvalidRequest("the request names one partition twice; send one batch for each")
        return [Pending(error=error) for topic in request.topic_data for _ in topic.partition_data]
    if version < _ZSTD_SINCE and any(_is_zstd(part) for topic in request.topic_data for part in topic.partition_data):
        unknown = UnsupportedCompression(f"zstd is for versions from {_ZSTD_SINCE} on; the request is in {version}")
        return [Pending(error=unknown) for topic in request.topic_data for _ in topic.partition_data]
    now_ms, acks_all = node.clock.wall_ms(), request.acks == -1
    pending = []
    for topic in request.topic_data:
        for part in topic.partition_data:
            partition = node.find(topic.name, topic.topic_id, part.index)
            pending.append(begin(partition, part.records, now_ms=now_ms, acks_all=acks_all))
            # They are in the log: what waits for a sync whose client has gone shall not hold the whole frame.
            part.records = None
    return pending


def _names_one_twice(request: ProduceRequest) -> bool:
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return False
    named = [(topic.name, topic.topic_id, part.index) for topic in topics for part in topic.partition_data]
    return len(set(named)) < len(named)


def _is_zstd(part: PartitionProduceData) -> bool:
    try:
        return parse_header(part.records or b"").codec is Codec.ZSTD
    except RequestError:
        return False  # and is told so


def _answer(
    request: ProduceRequest, pending: list[Pending], deadline: Deadline
) -> Awaitable[ProduceResponse] | ProduceResponse:
    produced = finish_now(pending)
    return _finish(request, pending, deadline) if produced is None else _response(request, produced)


async def _finish(request: ProduceRequest, pending: list[Pending], deadline: Deadline) -> ProduceResponse:
    return _response(request, await finish(pending, until=deadline.at()))


def _response(request: ProduceRequest, produced: list[Produced]) -> ProduceResponse:
    responses, count = [], 0
    for topic in request.topic_data:
        parts = []
        for part in topic.partition_data:
            parts.append(_partition(part.index, produced[count]))
            count += 1
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    return ProduceResponse(responses=responses)


def _partition(index: int, produced: Produced) -> PartitionProduceResponse:
    error = produced.error
    answer = PartitionProduceResponse(
        index=index,
        base_offset=produced.base_offset,
        log_append_time_ms=produced.append_time,
        log_start_offset=produced.start_offset,
    )
    if error is not None:
        answer.error_code, answer.error_message = error.kafka_code, str(error)
        if isinstance(error, InvalidRecord | InvalidTimestamp):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=str(error))
                for number in error.records
            ]
    return answer
