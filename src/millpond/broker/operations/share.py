"""Messages of queue groups to consumers, and back: what share fetches and acknowledgements on any wire come to.

A take goes through the partitions in turns, waits where there is nothing, and is answered when every lease in it is
kept. Driven by the front doors.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from millpond.broker.drivers.queue_partition import QueuePartition, Taken, Want
from millpond.broker.node import Node
from millpond.core.delivery.ledger import Verdict
from millpond.core.delivery.sessions import PartitionId
from millpond.model.errors import MillpondError


class Got(NamedTuple):
    queue: QueuePartition
    taken: Taken


Result = Got | MillpondError


async def take(
    node: Node, group: str, partitions: Sequence[PartitionId], want: Want, *, wait_ms: int
) -> dict[PartitionId, Result]:
    """Of those partitions that have messages, or trouble; empty where the time was up before there was either."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while True:
        queues, results = await _open(node, group, partitions)
        results |= await _take_now(queues, want)
        if results or loop.time() >= deadline:
            return results
        await wait(list(queues.values()), deadline)


async def _open(
    node: Node, group: str, partitions: Sequence[PartitionId]
) -> tuple[dict[PartitionId, QueuePartition], dict[PartitionId, Result]]:
    queues: dict[PartitionId, QueuePartition] = {}
    results: dict[PartitionId, Result] = {}
    for each in partitions:
        partition = node.find("", each.topic_id, each.partition)
        if isinstance(partition, MillpondError):
            results[each] = partition
            continue
        try:
            queues[each] = node.queues.open_at(group, partition) or await node.queues.at(group, partition)
        except MillpondError as error:
            results[each] = error
    return queues, results


async def _take_now(queues: Mapping[PartitionId, QueuePartition], want: Want) -> dict[PartitionId, Result]:
    got: dict[PartitionId, Result] = {}
    for each, queue in queues.items():
        if want.count_max <= 0 or want.bytes_max <= 0:
            break
        try:
            taken = queue.take(want)
        except MillpondError as error:
            got[each] = error
            continue
        if taken.deliveries:
            got[each] = Got(queue, taken)
            count = sum(delivery.last - delivery.first + 1 for delivery in taken.deliveries)
            size = sum(map(len, taken.batches.values()))
            want = want._replace(count_max=want.count_max - count, bytes_max=want.bytes_max - size)
    held = {each: result.queue.keep() for each, result in got.items() if isinstance(result, Got)}
    failures = await _all(held)
    return got | {each: failure for each, failure in failures.items() if failure is not None}


async def _all(work: Mapping[PartitionId, Coroutine[Any, Any, None]]) -> dict[PartitionId, MillpondError | None]:
    """Side by side; one alone, as it mostly is, needs no task. What fails for one is nothing to the others."""
    if len(work) == 1:
        return {each: await _failure_of(alone) for each, alone in work.items()}
    return dict(zip(work, await asyncio.gather(*map(_failure_of, work.values())), strict=True))


async def _failure_of(work: Coroutine[Any, Any, None]) -> MillpondError | None:
    try:
        await work
    except MillpondError as error:
        return error
    return None


async def wait(queues: Sequence[QueuePartition], deadline: float) -> None:
    """Until one of them may have messages, or that time."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = loop.call_at(deadline, _end_wait, waiter)
    for queue in queues:
        queue.add_waiter(waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        for queue in queues:
            queue.remove_waiter(waiter)


def _end_wait(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


async def settle(
    node: Node, group: str, holder: str, verdicts: Mapping[PartitionId, Sequence[Verdict]]
) -> dict[PartitionId, MillpondError | None]:
    """What was said of messages of several partitions; each partition's are taken as a whole, or refused as one."""
    return await _all({each: _settle(node, group, holder, each, said) for each, said in verdicts.items()})


async def _settle(node: Node, group: str, holder: str, at: PartitionId, verdicts: Sequence[Verdict]) -> None:
    partition = node.find("", at.topic_id, at.partition)
    if isinstance(partition, MillpondError):
        raise partition
    queue = node.queues.open_at(group, partition) or await node.queues.at(group, partition)
    start = partition.log.start_offset  # what was deleted is nobody's any more; what others have finished is refused
    still = [said._replace(first=max(said.first, start)) for said in verdicts if said.last >= start]
    await queue.acknowledge(still, holder=holder)
