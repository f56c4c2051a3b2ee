"""TakeMessages: from the queues that this broker has, now; or the wait for more."""

import asyncio

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.drivers.queue_links import Looked
from millpond.broker.drivers.queue_partition import Want
from millpond.broker.operations.queues import take_here, wait_here
from millpond.model.errors import NotLeader
from millpond.protocol.messages.take_messages import (
    Delivered,
    TakeMessagesRequest,
    TakeMessagesResponse,
    TakenPartition,
)


async def answer(cluster: Cluster, request: TakeMessagesRequest, session: Session) -> TakeMessagesResponse:
    if cluster.node is None:
        return TakeMessagesResponse(error_code=NotLeader.kafka_code, error_message="the broker is starting; ask again")
    if request.count_max <= 0:
        marks = {each.partition_index: each.mark for each in request.partitions}
        until = asyncio.get_running_loop().time() + request.wait_ms / 1000
        await wait_here(cluster.node, request.group_id, request.topic_id, marks, until)
        return TakeMessagesResponse()
    want = Want(request.holder, request.count_max, request.bytes_max, request.lock_ms)
    numbers = [each.partition_index for each in request.partitions]
    return _told(await take_here(cluster.node, request.group_id, request.topic_id, numbers, want))


def _told(looked: Looked) -> TakeMessagesResponse:
    return TakeMessagesResponse(
        error_code=0 if looked.trouble is None else looked.trouble.kafka_code,
        error_message="" if looked.trouble is None else str(looked.trouble),
        partitions=[_partition(looked, number, mark) for number, mark in looked.marks.items()],
    )


def _partition(looked: Looked, number: int, mark: int) -> TakenPartition:
    taken = looked.taken.get(number)
    if taken is None:
        return TakenPartition(partition_index=number, mark=mark)
    return TakenPartition(
        partition_index=number,
        mark=mark,
        deliveries=[
            Delivered(first_offset=each.first, last_offset=each.last, attempt=each.attempt) for each in taken.deliveries
        ],
        batches=b"".join(taken.batches.values()),
    )
