"""Queues, as every door serves them: messages in with what they ask, out with receipts, and what became of them.

What a message asks of its queue stands in its headers, so that any client can say the same:

    delay_ms     millpond-delay-ms       delivered no earlier than so long from now
    deliver_at   millpond-deliver-at     delivered no earlier than then
    priority     millpond-priority       high, normal or low; or 9 to 0
    ttl_ms       millpond-ttl-ms         not delivered after so long

and `millpond-cron`, among the headers, again and again. How long a delay and a life may be is for the broker's settings
to say.
Invariant: nothing of a request is sent before all of it was found right.
Driven by the doors, on the broker's loop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.receipts import draw_holder, lease_of, receipt, stem
from millpond.api.anywhere.refusals import Refusal, check, no_such_topic, wrong
from millpond.api.anywhere.shipment import Numbered, Shipment
from millpond.broker.drivers.queue_links import Depth, Saying
from millpond.broker.drivers.queue_partition import Want
from millpond.broker.node import Node
from millpond.broker.operations import queues
from millpond.client.admin_delays import DELAY_SETTING, DelayAdmin
from millpond.core.delivery.delay_headers import ASKING, DELIVER_AT, plan
from millpond.core.delivery.delay_headers import DELAY as DELAY_MS
from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.core.delivery.states import Outcome
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, alter_configs
from millpond.core.metadata.broker_configs import layers, value_of, whole
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.core.metadata.topic_configs import effective
from millpond.model.errors import InvalidRecord, LeaseLost, MillpondError, TopicAlreadyExists
from millpond.model.ids import TopicPartition
from millpond.model.limits import (
    MIB,
    RECEIPTS_MAX,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_WAIT_MS_MAX,
    RETRY_DELAY_MS_MAX,
)
from millpond.protocol.records import Headers, NewRecord, Record

MESSAGES_MAX: Final = 10_000
"""Of one request: they are put into batches on the broker's loop, and others wait meanwhile."""
RECEIVE_DEFAULT: Final = 10
BYTES_MAX: Final = MIB
"""Of the batches that one answer's messages are in, and one more."""
GROUP_CHARS_MAX: Final = 249
ERROR_CHARS_MAX: Final = 10_000
"""Of an error that comes with a message; what is kept of it is less."""

NO_RECEIPT: Final = "which is no receipt of this broker's; send one as it was received"

_PRIORITIES: Final = frozenset({b"high", b"normal", b"low"})
_DIGITS_MAX: Final = 15


class Asked(NamedTuple):
    """What one message asks of its queue."""

    delay_ms: int | None = None
    deliver_at: int | None = None
    priority: str | int | None = None
    ttl_ms: int | None = None


class Caps(NamedTuple):
    """How far a message may go."""

    delay_ms: int
    ttl_ms: int


def caps_of(node: Node) -> Caps:
    return Caps(whole("millpond.delay.max.ms", node.static), whole("millpond.ttl.max.ms", node.static))


class Handful(NamedTuple):
    """Messages that one receive had of a partition."""

    partition: int
    stem: str
    """How their receipts begin."""
    records: list[tuple[Record, int]]
    """Each with its attempt."""
    ids: Mapping[int, int]
    """Of those that were delayed, by offset: the offset that their producer was told."""

    def message_id(self, topic: str, offset: int) -> str:
        return f"{topic}/{self.partition}/{self.ids.get(offset, offset)}"

    def receipt(self, offset: int) -> str:
        return receipt(self.stem, offset)


class Settlement(NamedTuple):
    """What became of what was said."""

    leases: list[queues.Lease | None]
    """Of each receipt; None where it is none."""
    errors: list[MillpondError | None]
    """Of each receipt; None where it is settled."""

    @property
    def refused(self) -> list[int]:
        """Which of the receipts."""
        return [number for number, error in enumerate(self.errors) if error is not None]

    def told(self) -> str:
        """Where some were refused."""
        refused = self.refused
        first = self.errors[refused[0]]
        if len(self.errors) == 1:
            return f"the receipt was refused: {first}"
        return f"{len(refused)} of {len(self.errors)} receipts were refused, the others are settled; the first: {first}"


def find_queue(node: Node, name: str) -> Topic:
    topic = node.image.topics.get(name)
    if topic is None or topic.internal:
        raise no_such_topic(name)
    return topic


def check_group(group: str) -> None:
    if not 1 <= len(group) <= GROUP_CHARS_MAX:
        raise wrong("group", f"the group's name has {len(group)} characters; allowed are 1 to {GROUP_CHARS_MAX}")


# In


def headers_with(own: Headers, asked: Asked, *, now_ms: int, caps: Caps) -> tuple[Headers, str | None]:
    """What the message brings, and what it asks of its queue; and the field that asks for a delay, where one does."""
    if asked.delay_ms is not None and asked.deliver_at is not None:
        raise wrong("deliver_at", "delay_ms and deliver_at are both given; leave one out")
    check("delay_ms", asked.delay_ms, least=0, most=caps.delay_ms)
    check("deliver_at", asked.deliver_at, least=0, most=now_ms + caps.delay_ms)
    check("ttl_ms", asked.ttl_ms, least=1, most=caps.ttl_ms)
    _check_own(own, now_ms, caps)
    delayed_by = "headers" if any(name in ASKING for name, _ in own) else None
    if asked.delay_ms is not None or asked.deliver_at is not None:
        field = "delay_ms" if asked.deliver_at is None else "deliver_at"
        if delayed_by is not None:
            raise wrong(field, f"{field} is given, and a header asks for a delay too; leave one out")
        delayed_by = field
    named = zip((DELAY_MS, DELIVER_AT, PRIORITY, TTL_MS), asked, strict=True)
    return (*own, *((name, str(value).encode()) for name, value in named if value is not None)), delayed_by


def _check_own(headers: Headers, now_ms: int, caps: Caps) -> None:
    """A header that queues look at, and that says nothing to them, is a mistake."""
    if not any(name.startswith("millpond-") for name, _ in headers):
        return
    for name, value in headers:
        _check_header(name, b"" if value is None else value, caps)
    try:
        plan(headers, now=now_ms, delay_ms_max=caps.delay_ms)
    except InvalidRecord as error:
        raise wrong("headers", f"headers: {error}") from None


def _check_header(name: str, text: bytes, caps: Caps) -> None:
    if name == TTL_MS and not (text.isdigit() and len(text) <= _DIGITS_MAX and 1 <= int(text) <= caps.ttl_ms):
        allowed = f"a number of milliseconds, 1 to {caps.ttl_ms}"
    elif name == PRIORITY and not (text.lower() in _PRIORITIES or (len(text) == 1 and text.isdigit())):
        allowed = "high, normal, low, or 0 to 9"
    else:
        return
    seen = text[:80].decode(errors="replace")
    raise wrong("headers", f"the header {name} is {seen!r}; allowed is {allowed}")


async def let_delay(node: Node, neighbours: Neighbours, topic: Topic, field: str) -> None:
    """Who asks for a delay is not answered with a message that comes at once: a topic that was never told whether it
    delays does from now on, one that was told not to is no place for the message."""
    defaults = layers(node.image, node.static, broker=node.node_id).merged()
    config = effective(topic.configs, defaults)
    if config.delay:
        return
    if config.compact or DELAY_SETTING in topic.configs or DELAY_SETTING in defaults:
        detail = f"the topic {topic.name} delays no messages; set its {DELAY_SETTING} to on, without the policy compact"
        raise Refusal(400, "delays_are_off", detail, field=field)
    wanted = AlterConfigs(target=topic.name, items=(ConfigItem(DELAY_SETTING, "on"),))
    decision = await node.metadata.decide(lambda image: alter_configs(image, [wanted], static=node.static))
    for answer in decision.answers:
        if isinstance(answer, Refused):
            raise answer.error
    await DelayAdmin(neighbours.cluster).wait_on(topic.name)


def check_count(count: int) -> None:
    if count > MESSAGES_MAX:
        detail = f"a request has {MESSAGES_MAX} messages at most; send several requests"
        raise Refusal(413, "too_many_messages", detail)


async def send(
    node: Node,
    neighbours: Neighbours,
    producing: Producing,
    name: str,
    records: Sequence[NewRecord],
    *,
    delayed_by: str | None,
) -> Shipment:
    """Returns when it is known what became of each; a queue that is not there is made where topics are. `delayed_by` is
    the field that asks for a delay, where one does."""
    if records:
        if not producing.has_topic(name):
            await _make_queue(node, name)
        topic = find_queue(node, name)
        if delayed_by is not None:
            await let_delay(node, neighbours, topic, delayed_by)
    placed: dict[TopicPartition, list[Numbered]] = {}
    for number, record in enumerate(records):
        placed.setdefault(producing.place(name, record.key, None), []).append((number, record))
    return await ship(producing, placed, count=len(records))


async def ship(producing: Producing, placed: Mapping[TopicPartition, Sequence[Numbered]], *, count: int) -> Shipment:
    """Returns when it is known what became of each."""
    if not count:
        return Shipment(0, lambda _: None)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    shipment = Shipment(count, lambda _: None if done.done() else done.set_result(None))
    shipment.send(producing, placed)
    await done
    return shipment


async def _make_queue(node: Node, name: str) -> None:
    """Where the cluster makes topics for those who write to them; raises the refusal otherwise."""
    if value_of("auto.create.topics.enable", node.static) is not True:
        raise no_such_topic(name)
    wanted = NewTopic(name=name, configs=((DELAY_SETTING, "on"),))
    decision = await node.metadata.decide(
        lambda image: create_topics(image, [wanted], static=node.static, rng=node.rng)
    )
    for answer in decision.answers:
        if isinstance(answer, Refused) and not isinstance(answer.error, TopicAlreadyExists):
            raise answer.error


# Out


async def receive(
    node: Node, name: str, group: str, *, count: int, wait_ms: int, visibility_ms: int | None
) -> list[Handful]:
    """Empty where the time was up first; how long they are the caller's is as the group's settings say, or as asked."""
    topic = find_queue(node, name)
    check_group(group)
    check("max", count, least=1, most=RECEIVE_MESSAGES_MAX)
    check("wait_ms", wait_ms, least=0, most=RECEIVE_WAIT_MS_MAX)
    check("visibility_ms", visibility_ms, least=1, most=node.queues.lock_ms_max)
    holder = draw_holder(node.rng)
    lock_ms = node.queues.config(group).lock_ms if visibility_ms is None else visibility_ms
    handed = await queues.receive(node, group, topic, Want(holder, count, BYTES_MAX, lock_ms), wait_ms=wait_ms)
    return [Handful(partition, stem(holder, partition), records, ids) for partition, records, ids in handed]


# What became of them


async def acknowledge(node: Node, name: str, group: str, receipts: Sequence[str]) -> Settlement:
    return await _settle(node, name, group, receipts, Saying(Outcome.ACCEPT))


async def give_back(
    node: Node, name: str, group: str, receipts: Sequence[str], *, delay_ms: int | None, error: str
) -> Settlement:
    check("delay_ms", delay_ms, least=0, most=RETRY_DELAY_MS_MAX)
    return await _settle(node, name, group, receipts, Saying(Outcome.RELEASE, delay_ms=delay_ms, reason=error))


async def extend(node: Node, name: str, group: str, receipts: Sequence[str], *, visibility_ms: int) -> Settlement:
    check("visibility_ms", visibility_ms, least=1, most=node.queues.lock_ms_max)
    return await _settle(node, name, group, receipts, Saying(Outcome.RENEW, lock_ms=visibility_ms))


async def _settle(node: Node, name: str, group: str, receipts: Sequence[str], saying: Saying) -> Settlement:
    topic = find_queue(node, name)
    check_group(group)
    if not 1 <= len(receipts) <= RECEIPTS_MAX:
        detail = f"there are {len(receipts)} receipts; allowed are 1 to {RECEIPTS_MAX}; send several requests"
        raise wrong("receipts", detail)
    leases = [lease_of(text) for text in receipts]
    failed = await queues.settle(node, group, topic, [each for each in leases if each is not None], saying)
    errors = [
        LeaseLost(f"it is {text[:80]!r}, {NO_RECEIPT}") if lease is None else failed.get(lease)
        for text, lease in zip(receipts, leases, strict=True)
    ]
    return Settlement(leases, errors)


async def groups(node: Node, name: str) -> list[str]:
    return await queues.groups(node, find_queue(node, name))


async def depths(node: Node, name: str, group: str) -> list[Depth]:
    """Of the partitions whose leader answered."""
    topic = find_queue(node, name)
    check_group(group)
    return await queues.depths(node, group, topic)
