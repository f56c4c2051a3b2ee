"""Messages of queue groups to consumers, and back: what share fetches and acknowledgements on any wire come to.

A take goes through the partitions in turns, waits where there is nothing, and is answered when every lease in it is
kept. Driven by the front doors.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from millpond.broker.drivers.partition import end_wait
from millpond.broker.drivers.queue_partition import QueuePartition, Taken, Want
from millpond.broker.node import Node
from millpond.core.delivery.ledger import Verdict
from millpond.core.delivery.sessions import PartitionId
from millpond.model.errors import CoordinatorUnavailable, MillpondError


class Got(Struct, frozen=True):
    queue: QueuePartition
    taken: Taken


Result = Got | MillpondError


async def take(
    node: Node, group: str, partitions: Sequence[PartitionId], want: Want, *, wait_ms: int
) -> dict[PartitionId, Result]:
    """Of those partitions that have messages, or trouble; empty where the time was up before there was either."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    waited: Sequence[QueuePartition] = ()
    try:
        while True:
            queues, results = await _open(node, group, partitions)
            got = _exchange(queues, queues, {}, want).results
            waited = ()
            results |= await _kept(got)
            if results or loop.time() >= deadline or node.partitions.lets_go:
                return results
            waited = list(queues.values())
            await wait(waited, deadline, takes=True)
    except BaseException:
        for queue in waited:  # it may have been woken, and the message it was woken for is for another then
            queue.pass_on()
        raise


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


async def _kept(got: dict[PartitionId, Result]) -> dict[PartitionId, Result]:
    """What was taken, once it may be handed out."""
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


async def wait(queues: Sequence[QueuePartition], deadline: float, *, takes: bool) -> None:
    """Until one of them may have messages, or that time. Who `takes` has to take from them then, or to pass it on."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    timer = loop.call_at(deadline, end_wait, waiter)
    for queue in queues:
        queue.add_waiter(waiter, takes=takes)
    try:
        await waiter
    finally:
        timer.cancel()
        for queue in queues:
            queue.remove_waiter(waiter)


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
    await queue.acknowledge(_still(queue, verdicts), holder=holder)


def _still(queue: QueuePartition, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """What was deleted is nobody's any more; what others have finished is refused."""
    start = queue.partition.log.start_offset
    for said in verdicts:
        if said.first < start:
            break
    else:
        return verdicts
    return [Verdict(max(said.first, start), said.last, said.outcome) for said in verdicts if said.last >= start]


# Both at once, without a task


class Begun:
    """What was said and taken, and is to be kept before it is answered."""

    def __init__(self) -> None:
        self.settled: dict[PartitionId, MillpondError | None] = {}
        self.results: dict[PartitionId, Result] = {}
        self.touched: dict[PartitionId, QueuePartition] = {}
        """Those that have something to keep."""
        self._left = 0

    def say(self, at: PartitionId, queue: QueuePartition, said: Sequence[Verdict], *, holder: str) -> None:
        try:
            queue.say(_still(queue, said), holder=holder)
        except MillpondError as error:
            self.settled[at] = error
        else:
            self.settled[at] = None
            self.touched[at] = queue

    def wait(self, then: Callable[[object], None]) -> bool:
        """Has `then` called when it is time for `finish`; False where it is time now."""
        for at, queue in self.touched.items():
            try:
                self._left += queue.after_kept(partial(self._kept, at, then))
            except MillpondError as error:
                self._fail(at, error)
        return self._left > 0

    def _kept(self, at: PartitionId, then: Callable[[object], None], failure: Exception | None) -> None:
        if failure is not None:
            told = CoordinatorUnavailable("what became of messages could not be kept; ask again")
            self._fail(at, failure if isinstance(failure, MillpondError) else told)
        self._left -= 1
        if self._left == 0:
            then(None)

    def _fail(self, at: PartitionId, error: MillpondError) -> None:
        if at in self.settled:
            self.settled[at] = self.settled[at] or error
        if isinstance(self.results.get(at), Got):
            self.results[at] = error

    def finish(self) -> None:
        """A leader that is none any more, or not sure to be, may not answer."""
        for at, queue in self.touched.items():
            try:
                queue.partition.require_leader()
            except MillpondError as error:
                self._fail(at, error)


def begin(
    node: Node,
    group: str,
    holder: str,
    verdicts: Mapping[PartitionId, Sequence[Verdict]],
    partitions: Sequence[PartitionId],
    want: Want | None,
) -> Begun | None:
    """Settles, and then takes what there is now. None, and nothing is done, where a queue has to be opened first."""
    queues: dict[PartitionId, QueuePartition] = {}
    for at in dict.fromkeys((*partitions, *verdicts)):
        partition = node.find("", at.topic_id, at.partition)
        queue = None if isinstance(partition, MillpondError) else node.queues.open_at(group, partition)
        if queue is None:
            return None
        queues[at] = queue
    begun = _exchange(queues, partitions, verdicts, want) if want is not None else Begun()
    for at, said in verdicts.items():
        if at not in begun.settled:
            begun.say(at, queues[at], said, holder=holder)
    return begun


def _exchange(
    queues: Mapping[PartitionId, QueuePartition],
    partitions: Collection[PartitionId],
    verdicts: Mapping[PartitionId, Sequence[Verdict]],
    want: Want,
) -> Begun:
    """In the order of partitions, until there is enough; what was said to the others is left to say."""
    begun = Begun()
    is_met = False
    for at in partitions:
        queue = queues[at]
        if is_met:
            queue.pass_on()
            continue
        said = verdicts.get(at)
        try:
            if said is None:
                taken = queue.take(want)
            else:
                refusal, taken = queue.exchange(_still(queue, said), want)
                begun.settled[at] = refusal
                if refusal is None:
                    begun.touched[at] = queue
        except MillpondError as error:
            begun.results[at] = error
            continue
        if taken.deliveries:
            begun.results[at] = Got(queue, taken)
            begun.touched[at] = queue
            if len(partitions) > 1:
                want = want.without(taken)
                is_met = want.is_met
    return begun
