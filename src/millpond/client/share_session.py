"""A share session with one broker: messages of the partitions it leads, and what became of them (KIP-932).

A session lives and dies with its connection: when that is lost, the broker gives what was held to others.

Invariant: requests go out one behind the other, each with the next epoch; every message that was told of is answered
for: settled, or why not.
Driven by queue.py.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from millpond.client.connection import BrokerConnection
from millpond.client.refusals import refusal
from millpond.model.errors import BrokerUnreachable, LeaseLost, MillpondError
from millpond.model.limits import MIB
from millpond.protocol.messages import share_acknowledge as acknowledging
from millpond.protocol.messages import share_fetch as fetching
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from millpond.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from millpond.protocol.records import Record, decode_batch, iter_batches

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
INVALID_RECORD_STATE: Final = 121
CLOSING: Final = -1
NO_MORE_THAN_ASKED: Final = 1
BYTES_MAX: Final = 4 * MIB

Response = TypeVar("Response", bound=Message)


class Got(NamedTuple):
    """One message, with its attempt."""

    partition: int
    record: Record
    attempt: int


class Polled(NamedTuple):
    messages: list[Got]
    lock_ms: int
    """How long they are this consumer's."""
    errors: dict[int, MillpondError]
    """Partitions that this broker has no messages of, and why."""


class _Said(NamedTuple):
    partition: int
    offset: int
    kind: int
    answer: "asyncio.Future[None]"


class ShareSession:
    def __init__(
        self, connection: BrokerConnection, *, group: str, member_id: str, topic_id: bytes, seconds_max: float
    ) -> None:
        self._connection = connection
        self._group = group
        self._member_id = member_id
        self.topic_id = topic_id
        self._seconds_max = seconds_max
        self._epoch = 0
        self._partitions: frozenset[int] = frozenset()
        self._said: list[_Said] = []
        self._telling: asyncio.Task[None] | None = None
        self.failure: MillpondError | None = None
        """Why it is over, once it is."""

    @property
    def is_open(self) -> bool:
        return self.failure is None and self._connection.is_open

    @property
    def is_begun(self) -> bool:
        """A message can be told of."""
        return self._epoch > 0

    def _next_epoch(self) -> int:
        epoch, self._epoch = self._epoch, self._epoch + 1 if self._epoch < 2**31 - 1 else 1
        return epoch

    # Messages

    async def begin(self) -> None:
        """Without asking for messages."""
        await self.poll(self._partitions, count_max=0, wait_ms=0)

    async def poll(self, partitions: Iterable[int], *, count_max: int, wait_ms: int) -> Polled:
        wanted = frozenset(partitions)
        added, gone = sorted(wanted - self._partitions), sorted(self._partitions - wanted)
        self._partitions = wanted
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._next_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            max_records=count_max,
            batch_size=count_max,
            share_acquire_mode=NO_MORE_THAN_ASKED,
            topics=_fetched(self.topic_id, added),
            forgotten_topics_data=[fetching.ForgottenTopic(topic_id=self.topic_id, partitions=gone)] if gone else [],
        )
        answer = await self._ask(request, ShareFetchResponse, wait_ms=wait_ms)
        self._check(answer.error_code, answer.error_message)
        polled = Polled([], answer.acquisition_lock_timeout_ms, {})
        for topic in answer.responses:
            for part in topic.partitions:
                if part.error_code:
                    what = f"partition {part.partition_index}"
                    polled.errors[part.partition_index] = refusal(part.error_code, part.error_message, of=what)
                else:
                    polled.messages.extend(self._acquired(part))
        return polled

    def _acquired(self, part: fetching.PartitionData) -> list[Got]:
        attempts = {
            offset: run.delivery_count
            for run in part.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        if not attempts:
            return []
        data = memoryview(part.records)
        number = part.partition_index
        found = [
            Got(number, record, attempts.pop(record.offset))
            for position, header in iter_batches(data)
            if not header.is_control
            for record in decode_batch(data, position)
            if record.offset in attempts
        ]
        if part.delivery_order:
            places = _places(part)
            found.sort(key=lambda got: places.get(got.record.offset, 0))
        for offset in attempts:  # nothing is there
            self.tell(number, offset, GAP).add_done_callback(_forget)
        return found

    # What became of them

    def tell(self, partition: int, offset: int, kind: int) -> "asyncio.Future[None]":
        """Goes with all that is told in the same turn of the loop; the future is done when the broker keeps it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        if not self.is_open:
            answer.set_exception(_over(self.failure))
            return answer
        self._said.append(_Said(partition, offset, kind, answer))
        if self._telling is None:
            self._telling = loop.create_task(self._tell())
        return answer

    async def _tell(self) -> None:
        try:
            while self._said:
                said, self._said = self._said, []
                renewals = [each for each in said if each.kind == RENEW]
                for part in (renewals, [each for each in said if each.kind != RENEW]):
                    if part:
                        await self._tell_these(part)
        finally:
            self._telling = None

    async def _tell_these(self, said: Sequence[_Said]) -> None:
        try:
            errors = await self._acknowledge(said)
        except MillpondError as error:
            for each in said:
                _settle(each, _over(error))
            return
        doubtful: list[_Said] = []
        for each in said:
            refused = errors.get(each.partition)
            if isinstance(refused, LeaseLost) and len(said) > 1:
                doubtful.append(each)
            else:
                _settle(each, refused)
        for each in doubtful:  # a partition's are taken or refused as one: find out which it is about
            await self._tell_these([each])

    async def _acknowledge(
        self, said: Sequence[_Said], *, epoch: int | None = None
    ) -> Mapping[int, MillpondError | None]:
        by_partition: dict[int, dict[int, int]] = {}
        for each in said:
            by_partition.setdefault(each.partition, {})[each.offset] = each.kind
        parts = [
            acknowledging.AcknowledgePartition(
                partition_index=partition,
                acknowledgement_batches=[
                    acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                    for first, last, kind in runs_of(offsets)
                ],
            )
            for partition, offsets in by_partition.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._next_epoch() if epoch is None else epoch,
            is_renew_ack=any(each.kind == RENEW for each in said),
            topics=[acknowledging.AcknowledgeTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
        )
        answer = await self._ask(request, ShareAcknowledgeResponse)
        self._check(answer.error_code, answer.error_message)
        return {
            part.partition_index: _refused(part.error_code, part.error_message, part.partition_index)
            for topic in answer.responses
            for part in topic.partitions
        }

    async def _ask(self, request: Message, response_class: type[Response], *, wait_ms: int = 0) -> Response:
        try:
            return await self._connection.ask(request, response_class, seconds_max=self._seconds_max + wait_ms / 1000)
        except MillpondError as error:
            self.end(error)
            raise

    def _check(self, code: int, reason: str | None) -> None:
        if code:
            self.end(refusal(code, reason, of=f"the share session of group {self._group}"))
            assert self.failure is not None
            raise self.failure

    # The end

    def end(self, why: MillpondError) -> None:
        """What is held is lost: the broker gives it to others."""
        self.failure = self.failure or why
        self._connection.close()

    async def close(self) -> None:
        """Gives back what is still held."""
        if self._telling is not None:
            await asyncio.gather(self._telling, return_exceptions=True)
        if self.is_open and self._epoch:
            await asyncio.gather(self._acknowledge([], epoch=CLOSING), return_exceptions=True)
        self.end(BrokerUnreachable("the queue was closed"))


def runs_of(kinds: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Offsets side by side of which the same is said, as one."""
    runs: list[tuple[int, int, int]] = []
    for offset, kind in sorted(kinds.items()):
        if runs and runs[-1][1] == offset - 1 and runs[-1][2] == kind:
            runs[-1] = (runs[-1][0], offset, kind)
        else:
            runs.append((offset, offset, kind))
    return runs


def _places(part: fetching.PartitionData) -> dict[int, int]:
    """When each offset's turn is, as the broker gave them out; those of a run are in order by themselves."""
    runs = part.acquired_records
    return {
        offset: place
        for place, number in enumerate(part.delivery_order)
        if 0 <= number < len(runs)
        for offset in range(runs[number].first_offset, runs[number].last_offset + 1)
    }


def _fetched(topic_id: bytes, partitions: Sequence[int]) -> list[fetching.FetchTopic]:
    if not partitions:
        return []
    parts = [fetching.FetchPartition(partition_index=each) for each in partitions]
    return [fetching.FetchTopic(topic_id=topic_id, partitions=parts)]


def _refused(code: int, reason: str | None, partition: int) -> MillpondError | None:
    if not code:
        return None
    if code == INVALID_RECORD_STATE:
        return LeaseLost(reason or "the lease ran out, or was settled before; the message may be delivered again")
    return refusal(code, reason, of=f"partition {partition}")


def _over(why: MillpondError | None) -> BrokerUnreachable:
    return BrokerUnreachable(f"the session with the broker is over: {why}")


def _settle(said: _Said, error: MillpondError | None) -> None:
    if said.answer.done():
        return
    if error is None:
        said.answer.set_result(None)
    else:
        said.answer.set_exception(error)


def _forget(answer: "asyncio.Future[None]") -> None:
    if not answer.cancelled():
        answer.exception()
