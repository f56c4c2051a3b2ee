"""Queues for whoever asks any broker: messages of all partitions of a topic, and what became of them.

A partition's queue is where it is led; what is led elsewhere goes over the links between brokers. A receive begins each
time with another partition, so that no leader is forgotten behind a busy one, and takes from one leader at a time, so
that nobody leases more than was asked for; where there is nothing it waits at all of them at once, without leasing.

Invariant: whoever is handed a message holds a lease that is kept; a lease is settled once.
Driven by the front doors, and by other brokers through api/cluster.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from millpond.broker.drivers.queue_links import Depth, Looked, Lost, Saying
from millpond.broker.drivers.queue_partition import KIND, Held, Taken, Want
from millpond.broker.drivers.queue_reader import parked_runs
from millpond.broker.node import Node
from millpond.broker.operations import share
from millpond.core.delivery.delay_headers import told
from millpond.core.delivery.sessions import PartitionId
from millpond.core.delivery.states import Lane, Outcome, Waiting
from millpond.core.metadata.group_configs import REDRIVES
from millpond.core.metadata.image import Topic
from millpond.model.errors import LeaseLost, MillpondError, NotLeader, UnknownTopicOrPartition
from millpond.protocol.records import Record, decode_batch, parse_header
from millpond.protocol.records.header import MOVED

PATIENCE_SECONDS: Final = 10.0
"""How long somebody who leads is looked for."""
PAUSE_SECONDS: Final = 0.1
LOST: Final = (
    "the lease is not, or no longer, held by this receipt: it ran out, was settled before, or is another group's; "
    "what is not done will be delivered again"
)


class Lease(NamedTuple):
    """One message in the hands of somebody."""

    partition: int
    offset: int
    holder: str


class Handed(NamedTuple):
    partition: int
    records: list[tuple[Record, int]]
    """Each with its attempt."""
    ids: Mapping[int, int]
    """Of those that were delayed, by offset: the offset that their producer was told."""


# Messages out


async def receive(node: Node, group: str, topic: Topic, want: Want, *, wait_ms: int) -> list[Handed]:
    """Empty where the time was up first."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    patience = max(deadline, loop.time() + PATIENCE_SECONDS)
    while True:
        marks: dict[int, dict[int, int]] = {}
        trouble: MillpondError | None = None
        for leader, partitions in _by_leader(_current(node, topic), _in_turn(node, topic)).items():
            looked = await _take(node, leader, group, topic.topic_id, partitions, want)
            if looked.taken:
                return [await _handed(node, leader, group, topic, want, *each) for each in looked.taken.items()]
            if looked.marks:
                marks[leader] = looked.marks
            trouble = trouble or looked.trouble
        now = loop.time()
        if not marks and trouble is not None:
            if not trouble.retriable or now >= patience:
                raise trouble
            await node.metadata.quorum.wait_change(min(patience, now + PAUSE_SECONDS))
        elif now >= deadline or node.partitions.lets_go:
            return []
        else:
            until = deadline if trouble is None else min(deadline, now + PAUSE_SECONDS)
            await _first_of([_wait(node, leader, group, topic.topic_id, each, until) for leader, each in marks.items()])


def _current(node: Node, topic: Topic) -> Topic:
    known = node.image.topics_by_id.get(topic.topic_id)
    if known is None:
        raise UnknownTopicOrPartition(f"the topic {topic.name!r} was deleted; create it again")
    return known


def _in_turn(node: Node, topic: Topic) -> Iterable[int]:
    count = len(topic.partitions)
    first = node.rng.randrange(0, count)
    return (*range(first, count), *range(first))


def _by_leader(topic: Topic, partitions: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in partitions:
        found.setdefault(topic.partitions[each].leader, []).append(each)
    return found


async def _take(node: Node, leader: int, group: str, topic_id: bytes, partitions: Sequence[int], want: Want) -> Looked:
    if leader == node.node_id:
        return await take_here(node, group, topic_id, partitions, want)
    if leader < 0 or node.elsewhere is None:
        return Looked(trouble=_nobody(partitions))
    return await node.elsewhere.take(leader, group, topic_id, partitions, want)


def _nobody(partitions: Sequence[int]) -> NotLeader:
    return NotLeader(f"nobody leads partition {partitions[0]} at the moment; ask again later")


async def take_here(node: Node, group: str, topic_id: bytes, partitions: Sequence[int], want: Want) -> Looked:
    """What there is now."""
    looked = Looked()
    wanted = [PartitionId(topic_id, each) for each in partitions]
    results = await share.take(node, group, wanted, want, wait_ms=0)
    for at, result in results.items():
        if isinstance(result, MillpondError):
            looked.trouble = looked.trouble or result
        else:
            looked.taken[at.partition] = result.taken
    for each in partitions:
        partition = node.partitions.with_id(topic_id, each)
        queue = None if partition is None else node.queues.open_at(group, partition)
        if queue is not None:
            looked.marks[each] = queue.mark
    return looked


async def _handed(
    node: Node, leader: int, group: str, topic: Topic, want: Want, partition: int, taken: Taken
) -> Handed:
    """Offsets that turn out to have no message are done."""
    here = node.partitions.with_id(topic.topic_id, partition) if leader == node.node_id else None
    queue = None if here is None else node.queues.open_at(group, here)
    if queue is not None:
        found = queue.records(taken)
        return Handed(partition, found, _ids(taken, found))
    attempts = {at: each.attempt for each in taken.deliveries for at in range(each.first, each.last + 1)}
    records = [each for batch in taken.batches.values() for each in decode_batch(batch) if each.offset in attempts]
    if len(records) < len(attempts):
        gaps = attempts.keys() - {each.offset for each in records}
        await settle(node, group, topic, [Lease(partition, at, want.holder) for at in gaps], Saying(Outcome.GAP))
    order: dict[int, Record] = {each.offset: each for each in records}
    found = [(order[at], attempt) for at, attempt in attempts.items() if at in order]
    return Handed(partition, found, _ids(taken, found))


def _ids(taken: Taken, records: Sequence[tuple[Record, int]]) -> dict[int, int]:
    """Headers say it, and count only in batches that nobody but a broker can write."""
    headers = [header for batch in taken.batches.values() if (header := parse_header(batch)).attributes & MOVED]
    return {
        record.offset: told(record.headers)[0]
        for header in headers
        for record, _ in records
        if header.base_offset <= record.offset <= header.last_offset
    }


async def _wait(node: Node, leader: int, group: str, topic_id: bytes, marks: Mapping[int, int], until: float) -> None:
    if leader == node.node_id:
        await wait_here(node, group, topic_id, marks, until)
    elif node.elsewhere is not None:
        await node.elsewhere.wait(leader, group, topic_id, marks, until)


async def wait_here(node: Node, group: str, topic_id: bytes, marks: Mapping[int, int], until: float) -> None:
    """Until one of the partitions is no longer as it was."""
    queues = []
    for each, mark in marks.items():
        partition = node.partitions.with_id(topic_id, each)
        queue = None if partition is None else node.queues.open_at(group, partition)
        if queue is None or queue.mark != mark:
            return
        queues.append(queue)
    await share.wait(queues, until, takes=False)


async def _first_of(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    if len(waits) == 1:
        await waits[0]
        return
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# What became of them


async def settle(
    node: Node, group: str, topic: Topic, leases: Iterable[Lease], saying: Saying
) -> dict[Lease, MillpondError]:
    """What was said is kept, but for those returned, each with the reason."""
    pending = runs_of(leases)
    failed: dict[Lease, MillpondError] = {}
    count = len(topic.partitions)
    for partition in [each for each in pending if each >= count]:
        _note(failed, partition, pending.pop(partition), LeaseLost(LOST))
    loop = asyncio.get_running_loop()
    patience = loop.time() + PATIENCE_SECONDS
    while pending:
        by_leader = _by_leader(_current(node, topic), pending)
        outcomes = await asyncio.gather(
            *(
                _settle(node, leader, group, topic.topic_id, {each: pending[each] for each in partitions}, saying)
                for leader, partitions in by_leader.items()
            )
        )
        for partition, outcome in [each for lost in outcomes for each in lost.items()]:
            if not isinstance(outcome, MillpondError):
                _note(failed, partition, outcome, LeaseLost(LOST))
            elif not outcome.retriable or loop.time() >= patience:
                _note(failed, partition, pending[partition], outcome)
            else:
                continue
            del pending[partition]
        if pending:
            await node.metadata.quorum.wait_change(min(patience, loop.time() + PAUSE_SECONDS))
    return failed


def runs_of(leases: Iterable[Lease]) -> dict[int, list[Held]]:
    """By partition; neighbours of one holder as one."""
    found: dict[int, list[Held]] = {}
    before: Lease | None = None
    for lease in sorted(set(leases), key=lambda each: (each.partition, each.holder, each.offset)):
        partition, offset, holder = lease
        runs = found.setdefault(partition, [])
        if before is not None and before == (partition, offset - 1, holder):
            runs[-1] = Held(runs[-1].first, offset, holder)
        else:
            runs.append(Held(offset, offset, holder))
        before = lease
    return found


def _note(failed: dict[Lease, MillpondError], partition: int, held: Iterable[Held], error: MillpondError) -> None:
    for first, last, holder in held:
        for offset in range(first, last + 1):
            failed[Lease(partition, offset, holder)] = error


async def _settle(
    node: Node, leader: int, group: str, topic_id: bytes, held: Mapping[int, Sequence[Held]], saying: Saying
) -> Lost:
    if leader == node.node_id:
        return await settle_here(node, group, topic_id, held, saying)
    if leader < 0 or node.elsewhere is None:
        return {each: _nobody([each]) for each in held}
    return await node.elsewhere.settle(leader, group, topic_id, held, saying)


async def settle_here(
    node: Node, group: str, topic_id: bytes, held: Mapping[int, Sequence[Held]], saying: Saying
) -> Lost:
    asked = list(held.items())
    outcomes = await asyncio.gather(*(_settle_one(node, group, topic_id, *each, saying) for each in asked))
    return {partition: outcome for (partition, _), outcome in zip(asked, outcomes, strict=True)}


async def _settle_one(
    node: Node, group: str, topic_id: bytes, number: int, held: Sequence[Held], saying: Saying
) -> list[Held] | MillpondError:
    partition = node.find("", topic_id, number)
    if isinstance(partition, MillpondError):
        return partition
    try:
        queue = node.queues.open_at(group, partition)
        if queue is None:
            # Nobody has anything of a group that never was here; and a wrong name begins none.
            if not any(key.partition == number for key in await node.states.find(KIND, group=group, topic_id=topic_id)):
                return list(held)
            queue = await node.queues.at(group, partition)
        return await queue.settle(
            held, saying.outcome, delay_ms=saying.delay_ms, lock_ms=saying.lock_ms, reason=saying.reason
        )
    except MillpondError as error:
        return error


# Who there is, and how many there are


async def groups(node: Node, topic: Topic) -> list[str]:
    """All that ever asked for messages of the topic, by whatever door, and were not deleted since."""
    found = {key.group for key in await node.states.find(KIND, topic_id=topic.topic_id)}
    return sorted(each for each in found if not each.startswith(REDRIVES))


async def depths(node: Node, group: str, topic: Topic) -> list[Depth]:
    """Of every partition whose leader answers."""
    topic = _current(node, topic)
    asked = _by_leader(topic, range(len(topic.partitions)))
    found = await asyncio.gather(
        *(_depths(node, leader, group, topic.topic_id, partitions) for leader, partitions in asked.items())
    )
    return sorted(each for part in found for each in part)


async def _depths(node: Node, leader: int, group: str, topic_id: bytes, partitions: Sequence[int]) -> list[Depth]:
    if leader == node.node_id:
        return await depths_here(node, group, topic_id, partitions)
    if leader < 0 or node.elsewhere is None:
        return []
    return await node.elsewhere.depths(leader, group, topic_id, partitions)


async def depths_here(node: Node, group: str, topic_id: bytes, partitions: Sequence[int]) -> list[Depth]:
    """A group that was never here is not begun by being looked at: all that it would find is ready."""
    known = {key.partition for key in await node.states.find(KIND, group=group, topic_id=topic_id)}
    found: list[Depth] = []
    for number in partitions:
        partition = node.find("", topic_id, number)
        if isinstance(partition, MillpondError):
            continue
        if number not in known:
            start, end = node.queues.beginning(group, partition), partition.high_watermark
            parked = sum(last - first + 1 for first, last in parked_runs(partition, start, end))
            ready = max(0, end - start - parked)
            found.append(Depth(number, ready=ready, leased=0, waiting=0, doomed=0, start=start, end=start))
            continue
        try:
            queue = node.queues.open_at(group, partition) or await node.queues.at(group, partition)
        except MillpondError:
            continue
        ledger = queue.ledger
        found.append(
            Depth(
                partition=number,
                ready=sum(map(queue.depth, Lane)),
                leased=ledger.leased,
                waiting=sum(len(run) for run in ledger.open_runs() if isinstance(run.value, Waiting)),
                doomed=ledger.doomed_count,
                start=ledger.start,
                end=ledger.end,
            )
        )
    return found
