"""Delayed messages, as an operator looks after them: which wait, cancelled, due at another moment.

A message goes by its id, `topic/partition/offset`, which its producer was told as an offset.
Each call is one try: admin.py, and the other doors, which drive this, try again.
"""

import asyncio
from typing import Final, TypeVar

from millpond.client.cluster import Cluster
from millpond.client.refusals import refusal
from millpond.model.errors import InvalidRequest, MillpondError, PolicyViolation, UnknownTopicOrPartition
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass
from millpond.protocol.messages.alter_delay import CANCEL, AlterDelayRequest, AlterDelayResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.list_delays import ListDelaysRequest, ListDelaysResponse

NOT_LEADER: Final = 6
DELAY_SETTING: Final = "millpond.delay"
"""Of a topic: whether it delays messages."""
PATIENCE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.05

Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True, order=True)
class Delayed:
    """A message that waits; in order of when they are due."""

    due_ms: int
    at: TopicPartition
    offset: int
    is_recurring: bool

    @property
    def message_id(self) -> str:
        return f"{self.at.topic}/{self.at.partition}/{self.offset}"

    @property
    def cursor(self) -> str:
        """To be asked for what comes after it."""
        return f"{self.due_ms}.{self.at.partition}.{self.offset}"


@dataclass(frozen=True, slots=True)
class DelayPage:
    pending: int
    """How many wait, on this page or not."""
    messages: list[Delayed]


class DelayAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def page(self, topic: str, *, partition: int | None, after: str | None, count: int) -> DelayPage:
        """The next that come due, of one partition or all."""
        known = await self._cluster.topic(topic)
        wanted = range(len(known.partitions)) if partition is None else [partition]
        due, last_partition, last_offset = parse_cursor(after)
        pending, found = 0, list[Delayed]()
        for number in wanted:
            at = TopicPartition(topic, number)
            # Of one moment, lower partitions came before.
            last_id = last_offset if number == last_partition else 2**62 if number < last_partition else -1
            request = ListDelaysRequest(
                topic=topic, partition=number, after_due=due, after_id=last_id if due >= 0 else -1, count_max=count
            )
            answer = await self._ask(at, request, ListDelaysResponse)
            if answer.error_code:
                raise self._refused(at, answer.error_code, answer.error_message)
            pending += answer.pending
            found += [Delayed(each.due, at, each.id, each.is_recurring) for each in answer.messages]
        return DelayPage(pending, sorted(found)[:count])

    async def wait_on(self, topic: str) -> None:
        """Returns when every leader has heard that the topic delays: one that has not delivers messages at once."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                await self.page(topic, partition=None, after=None, count=1)
                return
            except MillpondError as error:
                if loop.time() >= patience or not (error.retriable or isinstance(error, PolicyViolation)):
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def alter(self, message_id: str, due_ms: int | None) -> None:
        """None cancels it."""
        at, offset = parse_message_id(message_id)
        request = AlterDelayRequest(
            topic=at.topic,
            partition=at.partition,
            id=offset,
            due=CANCEL if due_ms is None else due_ms,
            timeout_ms=int(self._cluster.settings.request_seconds_max * 1000),
        )
        answer = await self._ask(at, request, AlterDelayResponse)
        if answer.error_code:
            raise self._refused(at, answer.error_code, answer.error_message)

    async def _ask(self, at: TopicPartition, request: Message, response_class: type[Response]) -> Response:
        known = await self._cluster.topic(at.topic)
        if at.partition >= len(known.partitions):
            raise UnknownTopicOrPartition(
                f"there is no partition {at.partition} of {at.topic}; it has {len(known.partitions)}"
            )
        leader = self._cluster.view.leader_of(at)
        if leader is None:
            await self._cluster.refresh([at.topic])
            leader = self._cluster.view.leader_of(at)
        if leader is None:
            raise refusal(NOT_LEADER, "nobody leads it at the moment", of=str(at))
        return await self._cluster.ask(request, response_class, node=leader.node)

    def _refused(self, at: TopicPartition, code: int, said: str | None) -> Exception:
        leader = self._cluster.view.leader_of(at)
        if code == NOT_LEADER and leader is not None:
            self._cluster.forget_leader(at, leader.node)
        return refusal(code, said, of=str(at))


def parse_message_id(text: str) -> tuple[TopicPartition, int]:
    topic, *numbers = text.rsplit("/", 2)
    if len(numbers) != 2 or not topic or not all(each.isdecimal() and len(each) < 19 for each in numbers):
        raise InvalidRequest(f"message id is {text[:80]!r}; allowed is topic/partition/offset, such as orders/0/42")
    return TopicPartition(topic, int(numbers[0])), int(numbers[1])


def parse_cursor(text: str | None) -> tuple[int, int, int]:
    if not text:
        return -1, -1, -1
    numbers = text.split(".")
    if len(numbers) != 3 or not all(each.isdecimal() and len(each) < 19 for each in numbers):
        raise InvalidRequest(f"after is {text[:80]!r}; allowed is what the page before said in next")
    due, partition, offset = map(int, numbers)
    return due, partition, offset
