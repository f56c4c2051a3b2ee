"""Queues of partitions that other brokers lead, asked over the links; and the values in which all of them are asked.

What waits has a connection for itself, and not for long: a server answers each connection in order, and who is answered
elsewhere first does not wait for the rest.

Invariant: nothing here is tried again; nobody knows then whether it was heard.
Driven by broker/operations/queues.py.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from millpond.broker.drivers.links import Links
from millpond.broker.drivers.queue_partition import Held, Taken, Want
from millpond.core.delivery.ledger import Delivery
from millpond.core.delivery.states import Outcome
from millpond.model.errors import MillpondError, NotLeader
from millpond.model.values import dataclass
from millpond.protocol.messages.measure_queues import MeasureQueuesRequest, MeasureQueuesResponse
from millpond.protocol.messages.settle_messages import (
    HeldPartition,
    HeldRun,
    SettleMessagesRequest,
    SettleMessagesResponse,
)
from millpond.protocol.messages.take_messages import TakeMessagesRequest, TakeMessagesResponse, Wanted
from millpond.protocol.records import iter_batches

WAIT_SECONDS_MAX: Final = 1.0
"""Then it is asked again: so long a wait goes on for nobody, once there was something elsewhere."""
PAUSE_SECONDS: Final = 0.05


class Saying(NamedTuple):
    """What became of messages."""

    outcome: Outcome
    delay_ms: int | None = None
    lock_ms: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Looked:
    """What a leader has of some partitions."""

    taken: dict[int, Taken] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    """Of those that it has open: another number when there may be more."""
    trouble: MillpondError | None = None


class Depth(NamedTuple):
    """What one group has before it in one partition."""

    partition: int
    ready: int
    leased: int
    waiting: int
    doomed: int
    start: int
    """Everything below is done."""
    end: int
    """Nothing from here on was ever handed out."""


Lost = Mapping[int, Sequence[Held] | MillpondError]
"""By partition: what its holders have no more; or why nothing could be said."""


class QueueLinks:
    def __init__(self, links: Links) -> None:
        self._links = links

    async def take(self, leader: int, group: str, topic_id: bytes, partitions: Sequence[int], want: Want) -> Looked:
        """What there is now."""
        request = TakeMessagesRequest(
            group_id=group,
            topic_id=topic_id,
            partitions=[Wanted(partition_index=each) for each in partitions],
            holder=want.holder,
            count_max=want.count_max,
            bytes_max=want.bytes_max,
            lock_ms=want.lock_ms,
        )
        answer = await self._links.ask_queues(leader, request, TakeMessagesResponse)
        looked = Looked()
        if answer is None:
            looked.trouble = _silent(leader)
            return looked
        if answer.error_code:
            looked.trouble = NotLeader(answer.error_message)
        for part in answer.partitions:
            looked.marks[part.partition_index] = part.mark
            if part.deliveries:
                batches = memoryview(part.batches)
                looked.taken[part.partition_index] = Taken(
                    [Delivery(each.first_offset, each.last_offset, each.attempt) for each in part.deliveries],
                    {header.base_offset: batches[at : at + header.size] for at, header in iter_batches(batches)},
                )
        return looked

    async def wait(self, leader: int, group: str, topic_id: bytes, marks: Mapping[int, int], until: float) -> None:
        """Returns at that time, or before."""
        seconds = min(WAIT_SECONDS_MAX, until - asyncio.get_running_loop().time())
        if seconds <= 0:
            return
        request = TakeMessagesRequest(
            group_id=group,
            topic_id=topic_id,
            partitions=[Wanted(partition_index=each, mark=mark) for each, mark in marks.items()],
            wait_ms=round(seconds * 1000),
        )
        if await self._links.wait_queues(leader, request, TakeMessagesResponse) is None:
            await asyncio.sleep(min(PAUSE_SECONDS, seconds))

    async def settle(
        self, leader: int, group: str, topic_id: bytes, held: Mapping[int, Sequence[Held]], saying: Saying
    ) -> Lost:
        request = SettleMessagesRequest(
            group_id=group,
            topic_id=topic_id,
            outcome=saying.outcome,
            delay_ms=-1 if saying.delay_ms is None else saying.delay_ms,
            lock_ms=-1 if saying.lock_ms is None else saying.lock_ms,
            reason=saying.reason,
            partitions=[
                HeldPartition(partition_index=each, held=list(map(run_of, runs))) for each, runs in held.items()
            ],
        )
        answer = await self._links.ask_queues(leader, request, SettleMessagesResponse)
        lost: dict[int, Sequence[Held] | MillpondError] = {each: _silent(leader) for each in held}
        for part in answer.partitions if answer is not None else ():
            lost[part.partition_index] = (
                NotLeader(part.error_message) if part.error_code else list(map(held_of, part.lost))
            )
        return lost

    async def depths(
        self, leader: int, group: str, topic_id: bytes, partitions: Sequence[int], *, reload: bool = False
    ) -> list[Depth]:
        """Of those that it can tell; `reload` where what is kept has changed behind its back."""
        request = MeasureQueuesRequest(group_id=group, topic_id=topic_id, partitions=list(partitions), reload=reload)
        answer = await self._links.ask_queues(leader, request, MeasureQueuesResponse)
        return [
            Depth(
                each.partition_index,
                each.ready,
                each.leased,
                each.waiting,
                each.doomed,
                each.start_offset,
                each.end_offset,
            )
            for each in (() if answer is None else answer.partitions)
        ]


def _silent(leader: int) -> NotLeader:
    return NotLeader(f"broker {leader}, which leads the partition, does not answer; ask again later")


def run_of(held: Held) -> HeldRun:
    return HeldRun(first_offset=held.first, last_offset=held.last, holder=held.holder)


def held_of(run: HeldRun) -> Held:
    return Held(run.first_offset, run.last_offset, run.holder)
