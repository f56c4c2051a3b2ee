"""Queues, as every door serves them: messages in with what they ask, out with receipts, and what became of them.

What a message asks of its queue stands in its headers, so that any client can say the same:

    delay_ms     millpond-delay-ms       delivered no earlier than so long from now
    deliver_at   millpond-deliver-at     delivered no earlier than then
    priority     millpond-priority       high, normal or low; or 9 to 0
    ttl_ms       millpond-ttl-ms         not delivered after so long

Invariant: nothing of a request is sent before all of it was found right.
Driven by the doors, on the broker's loop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.receipts import draw_holder, lease_of, receipt, stem
from millpond.api.anywhere.refusals import Refusal, check, no_such_topic, wrong
from millpond.api.anywhere.shipment import Numbered, Shipment
from millpond.broker.drivers.queue_links import Depth, Saying
from millpond.broker.drivers.queue_partition import Want
from millpond.broker.node import Node
from millpond.broker.operations import queues
from millpond.core.delivery.delay_headers import DELAY as DELAY_MS
from millpond.core.delivery.delay_headers import DELIVER_AT
from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.core.delivery.states import Outcome
from millpond.core.metadata.broker_configs import layers, value_of
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.core.metadata.topic_configs import TOPIC_KEYS, effective
from millpond.model.errors import MillpondError, PolicyViolation, TopicAlreadyExists
from millpond.model.ids import TopicPartition
from millpond.model.limits import (
    DELAY_MS_MAX,
    MIB,
    RECEIPTS_MAX,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_WAIT_MS_MAX,
    RETRY_DELAY_MS_MAX,
    VISIBILITY_MS_MAX,
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

_DELAY_SETTING: Final = "millpond.delay"
_DELAYS: Final = frozenset({DELAY_MS, DELIVER_AT})
_NUMBERS: Final = frozenset({DELAY_MS, DELIVER_AT, TTL_MS})
_PRIORITIES: Final = frozenset({b"high", b"normal", b"low"})
_DIGITS_MAX: Final = 15


class Asked(NamedTuple):
    """What one message asks of its queue."""

    delay_ms: int | None = None
    deliver_at: int | None = None
    priority: str | int | None = None
    ttl_ms: int | None = None


class Handful(NamedTuple):
    """Messages that one receive had of a partition."""

    partition: int
    stem: str
    """How their receipts begin."""
    records: list[tuple[Record, int]]
    """Each with its attempt."""

    def receipt(self, offset: int) -> str:
        return receipt(self.stem, offset)


class Settlement(NamedTuple):
    """What became of what was said; of each receipt the lease it is for."""

    leases: list[queues.Lease]
    failed: dict[queues.Lease, MillpondError]

    @property
    def refused(self) -> list[int]:
        """Which of the receipts."""
        return [number for number, lease in enumerate(self.leases) if lease in self.failed]

    def told(self) -> str:
        """Where some were refused."""
        refused = self.refused
        first = self.failed[self.leases[refused[0]]]
        return f"{len(refused)} of {len(self.leases)} receipts were refused, the others are settled; the first: {first}"


def find_queue(node: Node, name: str) -> Topic:
    topic = node.image.topics.get(name)
    if topic is None or topic.internal:
        raise no_such_topic(name)
    return topic


def check_group(group: str) -> None:
    if not 1 <= len(group) <= GROUP_CHARS_MAX:
        raise wrong("group", f"the group's name has {len(group)} characters; allowed are 1 to {GROUP_CHARS_MAX}")


# In


def headers_with(own: Headers, asked: Asked, *, now_ms: int) -> Headers:
    """What the message brings, and what it asks of its queue."""
    for name, value in own:
        if name.startswith("millpond-"):
            _check_header(name, value)
    if asked.delay_ms is not None and asked.deliver_at is not None:
        raise wrong("deliver_at", "delay_ms and deliver_at are both given; leave one out")
    check("delay_ms", asked.delay_ms, least=0, most=DELAY_MS_MAX)
    check("deliver_at", asked.deliver_at, least=0, most=now_ms + DELAY_MS_MAX)
    check("ttl_ms", asked.ttl_ms, least=1, most=DELAY_MS_MAX)
    named = zip((DELAY_MS, DELIVER_AT, PRIORITY, TTL_MS), asked, strict=True)
    return (*own, *((name, str(value).encode()) for name, value in named if value is not None))


def _check_header(name: str, value: bytes | None) -> None:
    """One that queues look at, and that says nothing to them, is a mistake."""
    text = b"" if value is None else value
    if name in _NUMBERS and not (text.isdigit() and len(text) <= _DIGITS_MAX):
        allowed = "a number of milliseconds"
    elif name == PRIORITY and not (text.lower() in _PRIORITIES or (len(text) == 1 and text.isdigit())):
        allowed = "high, normal, low, or 0 to 9"
    else:
        return
    seen = text[:80].decode(errors="replace")
    raise wrong("headers", f"the header {name} is {seen!r}; allowed is {allowed}")


def asks_delay(headers: Headers) -> bool:
    return any(name in _DELAYS for name, _ in headers)


def check_delays(node: Node, topic: Topic) -> None:
    """Whoever asks for a delay where there is none would be surprised by a message that comes at once."""
    if not effective(topic.configs, layers(node.image, node.static, broker=node.node_id).merged()).delay:
        raise PolicyViolation(f"{topic.name} delays no messages; set its {_DELAY_SETTING} to on first")


def check_count(count: int) -> None:
    if count > MESSAGES_MAX:
        detail = f"a request has {MESSAGES_MAX} messages at most; send several requests"
        raise Refusal(413, "too_many_messages", detail)


async def send(node: Node, producing: Producing, name: str, records: Sequence[NewRecord]) -> Shipment:
    """Returns when it is known what became of each; a queue that is not there is made where topics are."""
    if not producing.has_topic(name):
        await _make_queue(node, name)
    topic = find_queue(node, name)
    if any(asks_delay(record.headers) for record in records if record.headers):
        check_delays(node, topic)
    placed: dict[TopicPartition, list[Numbered]] = {}
    for number, record in enumerate(records):
        placed.setdefault(producing.place(name, record.key, None), []).append((number, record))
    return await ship(producing, placed, count=len(records))


async def ship(producing: Producing, placed: Mapping[TopicPartition, Sequence[Numbered]], *, count: int) -> Shipment:
    """Returns when it is known what became of each."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    shipment = Shipment(count, lambda _: None if done.done() else done.set_result(None))
    shipment.send(producing, placed)
    await done
    return shipment


async def _make_queue(node: Node, name: str) -> None:
    """Where the cluster makes topics for those who write to them; raises the refusal otherwise."""
    if value_of("auto.create.topics.enable", node.static) is not True:
        raise no_such_topic(name)
    configs = ((_DELAY_SETTING, "on"),) if _DELAY_SETTING in TOPIC_KEYS else ()
    wanted = NewTopic(name=name, configs=configs)
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
    check("visibility_ms", visibility_ms, least=1, most=VISIBILITY_MS_MAX)
    holder = draw_holder(node.rng)
    lock_ms = node.queues.config(group).lock_ms if visibility_ms is None else visibility_ms
    handed = await queues.receive(node, group, topic, Want(holder, count, BYTES_MAX, lock_ms), wait_ms=wait_ms)
    return [Handful(partition, stem(holder, partition), records) for partition, records in handed]


# What became of them


async def acknowledge(node: Node, name: str, group: str, receipts: Sequence[str]) -> Settlement:
    return await _settle(node, name, group, receipts, Saying(Outcome.ACCEPT))


async def give_back(
    node: Node, name: str, group: str, receipts: Sequence[str], *, delay_ms: int | None, error: str
) -> Settlement:
    check("delay_ms", delay_ms, least=0, most=RETRY_DELAY_MS_MAX)
    return await _settle(node, name, group, receipts, Saying(Outcome.RELEASE, delay_ms=delay_ms, reason=error))


async def extend(node: Node, name: str, group: str, receipts: Sequence[str], *, visibility_ms: int) -> Settlement:
    check("visibility_ms", visibility_ms, least=1, most=VISIBILITY_MS_MAX)
    return await _settle(node, name, group, receipts, Saying(Outcome.RENEW, lock_ms=visibility_ms))


async def _settle(node: Node, name: str, group: str, receipts: Sequence[str], saying: Saying) -> Settlement:
    topic = find_queue(node, name)
    check_group(group)
    leases = _leases(receipts)
    return Settlement(leases, await queues.settle(node, group, topic, leases, saying))


def _leases(receipts: Sequence[str]) -> list[queues.Lease]:
    if not 1 <= len(receipts) <= RECEIPTS_MAX:
        detail = f"there are {len(receipts)} receipts; allowed are 1 to {RECEIPTS_MAX}; send several requests"
        raise wrong("receipts", detail)
    leases = []
    for number, text in enumerate(receipts):
        lease = lease_of(text)
        if lease is None:
            detail = f"receipts[{number}] is {text[:80]!r}, which is no receipt; send one as it was received"
            raise Refusal(400, "invalid_receipt", detail, field=f"receipts[{number}]")
        leases.append(lease)
    return leases


async def depths(node: Node, name: str, group: str) -> list[Depth]:
    """Of the partitions whose leader answered."""
    topic = find_queue(node, name)
    check_group(group)
    return await queues.depths(node, group, topic)
