"""/api/v1/queues: send messages, receive them, and say what became of them; any topic is a queue to whoever asks.

    POST /api/v1/queues/jobs/messages  {"value": "one coffee"}                    {"message_id": "jobs/0/17", ...}
    POST /api/v1/queues/jobs/messages  {"messages": [{"value": "one"}, ...]}      {"messages": [{"message_id": ...}]}
    POST /api/v1/queues/jobs/receive   {"group": "kitchen", "wait_ms": 5000}      {"messages": [{"receipt": ...}]}
    POST /api/v1/queues/jobs/ack       {"group": "kitchen", "receipts": [...]}    {"settled": 1}

A message that was received is its consumer's until it is acknowledged, given back, or its time is up; then it is
delivered again. Where some receipts no longer hold, the answer is a problem, and its `results` say which; the others
are settled.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.api.http.forms import FORMS, form_of_accept, form_of_content
from millpond.api.http.problems import Refusal, code_of, no_such_topic, problem, status_of
from millpond.api.http.queue_messages import (
    MISSING,
    Caps,
    Delivered,
    NewQueueMessage,
    OneOrMany,
    check,
    delivered,
    record_of,
    span,
)
from millpond.api.http.receipts import draw_holder, lease_of, receipt, stem
from millpond.api.http.replies import Reply
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.api.http.shipment import Numbered, Shipment
from millpond.broker.drivers.queue_links import Saying
from millpond.broker.drivers.queue_partition import Want
from millpond.broker.node import Node
from millpond.broker.operations import queues
from millpond.client.admin_delays import DelayAdmin
from millpond.core.delivery.states import Outcome
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, alter_configs
from millpond.core.metadata.broker_configs import layers, value_of, whole
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Topic
from millpond.core.metadata.topic_configs import effective
from millpond.model.errors import LeaseLost, MillpondError, PolicyViolation, TopicAlreadyExists
from millpond.model.ids import TopicPartition
from millpond.model.limits import (
    MIB,
    RECEIPTS_MAX,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_WAIT_MS_MAX,
    RETRY_DELAY_MS_MAX,
    VISIBILITY_MS_MAX,
)

MESSAGES_MAX: Final = 10_000
"""Of one array: they are put into batches on the broker's loop, and others wait meanwhile."""
RECEIVE_DEFAULT: Final = 10
BYTES_MAX: Final = MIB
"""Of the batches that one answer's messages are in, and one more."""
ERROR_CHARS_MAX: Final = 10_000
"""Of an error that comes with a message; what is kept of it is less."""
DELAY: Final = "millpond.delay"
PATIENCE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.05
NO_RECEIPT: Final = "which is no receipt of this broker's; send one as it was received"

Group = Annotated[str, Meta(min_length=1, max_length=249, examples=["kitchen"])]
Visibility = Annotated[int, span(1, VISIBILITY_MS_MAX)]
WaitMs = Annotated[int, span(0, RECEIVE_WAIT_MS_MAX)]
RetryDelay = Annotated[int, span(0, RETRY_DELAY_MS_MAX)]
Count = Annotated[int, span(1, RECEIVE_MESSAGES_MAX, description="Messages.")]


class Sent(Struct):
    message_id: str
    """Topic, partition and offset."""
    partition: int
    offset: int


class SentOneOrMany(Struct):
    """What one message is answered with; or `messages`, where they were sent so."""

    message_id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    messages: list[Sent] | UnsetType = UNSET


class Wish(Struct, forbid_unknown_fields=True):
    group: Group
    """Each message is delivered to one consumer of each group."""
    max: Count = RECEIVE_DEFAULT
    wait_ms: WaitMs = 0
    """How long the answer waits for the first message."""
    visibility_ms: Visibility | None = None
    """How long the messages are this consumer's; as the group's settings say, where it is left out."""


class Received(Struct):
    messages: list[Delivered]


Receipts = Annotated[list[str], Meta(min_length=1)]


class Acknowledgement(Struct, forbid_unknown_fields=True):
    group: Group
    receipts: Receipts


class GivenBack(Acknowledgement):
    delay_ms: RetryDelay | None = None
    """Before the next delivery; as the group's settings say, where it is left out."""
    error: Annotated[str, Meta(max_length=ERROR_CHARS_MAX)] = ""
    """What went wrong: a dead letter has it, after the last attempt."""


class Extension(Acknowledgement):
    visibility_ms: Visibility
    """From now on."""


class Settled(Struct):
    settled: int


class QueueQuery(Struct, forbid_unknown_fields=True):
    group: Group


class PartitionDepth(Struct):
    partition: int
    ready: int
    """Could be delivered now."""
    in_flight: int
    """With a consumer."""
    waiting: int
    """Given back, and not yet due."""
    dying: int
    """On their way to the dead-letter topic."""
    start_offset: int
    """All before is done."""
    end_offset: int
    """Nothing from here on was ever delivered."""


class QueueStats(Struct):
    topic: str
    group: str
    ready: int
    in_flight: int
    waiting: int
    dying: int
    partitions: list[PartitionDepth]
    """Those whose leader answered."""


def find_queue(node: Node, name: str) -> Topic:
    topic = node.image.topics.get(name)
    if topic is None or topic.internal:
        raise no_such_topic(name)
    return topic


# In


async def send(call: Call) -> object:
    services, name = call.services, call.names["topic"]
    node, form = services.node, form_of_content(call.request.headers.get(b"content-type", b""))
    messages, prefix = _messages(call.body)
    now_ms, caps = node.clock.wall_ms(), _caps(node)
    placed: dict[TopicPartition, list[Numbered]] = {}
    records = []
    delayed_by: str | None = None
    for number, message in enumerate(messages):
        try:
            record, asks = record_of(form, message, now_ms=now_ms, caps=caps)
        except Refusal as refusal:
            refusal.field = f"{prefix.format(number)}{refusal.field}"
            raise
        records.append(record)
        delayed_by = delayed_by or (asks and f"{prefix.format(number)}{asks}")
    if records:
        if not services.producing.has_topic(name):
            await _make_queue(node, name)
        topic = find_queue(node, name)
        if delayed_by is not None:
            await let_delay(services, topic, delayed_by)
    for number, record in enumerate(records):
        placed.setdefault(services.producing.place(name, record.key, None), []).append((number, record))
    shipment = await ship(services, placed, count=len(records))
    if shipment.errors:
        return _refused(shipment, name)
    sent = [Sent(f"{name}/{partition}/{offset}", partition, offset) for partition, offset in shipment.places]
    if isinstance(call.body, list):
        return sent
    return sent[0] if call.body.messages is None else SentOneOrMany(messages=sent)


def _messages(body: OneOrMany | list[NewQueueMessage]) -> tuple[Sequence[NewQueueMessage], str]:
    """And what stands before the field of one of them where it is named."""
    messages: Sequence[NewQueueMessage]
    if isinstance(body, list):
        messages, prefix = body, "[{}]."
    elif body.messages is not None:
        if body != OneOrMany(messages=body.messages):
            detail = "messages are given, and something beside them; say it of each of them"
            raise Refusal(400, "invalid_field", detail, field="messages")
        messages, prefix = body.messages, "messages[{}]."
    elif body.value is MISSING:
        raise Refusal(400, "missing_field", "the body has no value, which is required", field="value")
    else:
        messages, prefix = [body], ""
    if len(messages) > MESSAGES_MAX:
        raise Refusal(413, "too_many_messages", f"an array has {MESSAGES_MAX} messages at most; send several arrays")
    return messages, prefix


def _caps(node: Node) -> Caps:
    return Caps(whole("millpond.delay.max.ms", node.static), whole("millpond.ttl.max.ms", node.static))


async def ship(services: Services, placed: dict[TopicPartition, list[Numbered]], *, count: int) -> Shipment:
    """Returns when it is known what became of each."""
    if not count:
        return Shipment(0, lambda _: None)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    shipment = Shipment(count, lambda _: None if done.done() else done.set_result(None))
    shipment.send(services.producing, placed)
    await done
    return shipment


async def _make_queue(node: Node, name: str) -> None:
    """Where the cluster makes topics for those who write to them; raises the refusal otherwise."""
    if value_of("auto.create.topics.enable", node.static) is not True:
        raise no_such_topic(name)
    wanted = NewTopic(name=name, configs=((DELAY, "on"),))
    decision = await node.metadata.decide(
        lambda image: create_topics(image, [wanted], static=node.static, rng=node.rng)
    )
    for answer in decision.answers:
        if isinstance(answer, Refused) and not isinstance(answer.error, TopicAlreadyExists):
            raise answer.error


async def let_delay(services: Services, topic: Topic, field: str) -> None:
    """Who asks for a delay is not answered with a message that comes at once: a topic that was never told whether it
    delays does from now on, one that was told not to is no place for the message."""
    node = services.node
    config = effective(topic.configs, layers(node.image, node.static, broker=node.node_id).merged())
    if config.delay:
        return
    if config.compact or topic.configs.get(DELAY) is not None:
        detail = f"the topic {topic.name} delays no messages; set its {DELAY} to on, without the policy compact"
        raise Refusal(400, "delays_are_off", detail, field=field)
    wanted = AlterConfigs(target=topic.name, items=(ConfigItem(DELAY, "on"),))
    decision = await node.metadata.decide(lambda image: alter_configs(image, [wanted], static=node.static))
    for answer in decision.answers:
        if isinstance(answer, Refused):
            raise answer.error
    # A leader that has not heard of it would deliver the message at once.
    loop = asyncio.get_running_loop()
    patience = loop.time() + PATIENCE_SECONDS
    while True:
        try:
            await DelayAdmin(services.neighbours.cluster).page(topic.name, partition=None, after=None, count=1)
            return
        except MillpondError as error:
            if loop.time() >= patience or not (error.retriable or isinstance(error, PolicyViolation)):
                raise
        await asyncio.sleep(PAUSE_SECONDS)


def _refused(shipment: Shipment, name: str) -> Reply:
    results: list[dict[str, int | str]] = [
        {"code": code_of(error), "detail": str(error)}
        if (error := shipment.errors.get(number))
        else {"message_id": f"{name}/{partition}/{offset}", "partition": partition, "offset": offset}
        for number, (partition, offset) in enumerate(shipment.places)
    ]
    first = shipment.first_error
    return problem(status_of(first), code_of(first), shipment.told(), results=results)


# Out


async def receive(call: Call) -> Reply:
    node, wish = call.services.node, call.body
    form = form_of_accept(call.request.headers.get(b"accept", b""))
    topic = find_queue(node, call.names["topic"])
    check("max", wish.max, least=1, most=RECEIVE_MESSAGES_MAX)
    check("wait_ms", wish.wait_ms, least=0, most=RECEIVE_WAIT_MS_MAX)
    check("visibility_ms", wish.visibility_ms, least=1, most=node.queues.lock_ms_max)
    holder = draw_holder(node.rng)
    lock_ms = node.queues.config(wish.group).lock_ms if wish.visibility_ms is None else wish.visibility_ms
    want = Want(holder, wish.max, BYTES_MAX, lock_ms)
    messages: list[Delivered] = []
    for partition, records, ids in await queues.receive(node, wish.group, topic, want, wait_ms=wish.wait_ms):
        begin, place = stem(holder, partition), f"{topic.name}/{partition}/"
        messages += [
            delivered(
                form,
                record,
                attempt,
                message_id=f"{place}{ids.get(record.offset, record.offset)}",
                partition=partition,
                receipt=receipt(begin, record.offset),
            )
            for record, attempt in records
        ]
    return Reply(200, form.value, msgspec.json.encode(Received(messages)) + b"\n")


# What became of them


async def ack(call: Call) -> object:
    return await _settle(call, Saying(Outcome.ACCEPT))


async def nack(call: Call) -> object:
    check("delay_ms", call.body.delay_ms, least=0, most=RETRY_DELAY_MS_MAX)
    return await _settle(call, Saying(Outcome.RELEASE, delay_ms=call.body.delay_ms, reason=call.body.error))


async def extend(call: Call) -> object:
    check("visibility_ms", call.body.visibility_ms, least=1, most=call.services.node.queues.lock_ms_max)
    return await _settle(call, Saying(Outcome.RENEW, lock_ms=call.body.visibility_ms))


async def _settle(call: Call, saying: Saying) -> object:
    node = call.services.node
    topic = find_queue(node, call.names["topic"])
    receipts: list[str] = call.body.receipts
    if len(receipts) > RECEIPTS_MAX:
        detail = f"there are {len(receipts)} receipts; allowed are 1 to {RECEIPTS_MAX}; send several requests"
        raise Refusal(400, "invalid_field", detail, field="receipts")
    leases = [lease_of(text) for text in receipts]
    held = [lease for lease in leases if lease is not None]
    failed = await queues.settle(node, call.body.group, topic, held, saying)
    errors = [
        LeaseLost(f"it is {text[:80]!r}, {NO_RECEIPT}") if lease is None else failed.get(lease)
        for text, lease in zip(receipts, leases, strict=True)
    ]
    refused = [number for number, error in enumerate(errors) if error is not None]
    if not refused:
        return Settled(len(receipts))
    results: list[dict[str, int | str]] = [
        {"receipt": text, "message_id": f"{topic.name}/{lease.partition}/{lease.offset}"}
        if error is None and lease is not None
        else {"receipt": text[:80], "code": code_of(error or LeaseLost()), "detail": str(error)}
        for text, lease, error in zip(receipts, leases, errors, strict=True)
    ]
    first = errors[refused[0]] or LeaseLost()
    detail = f"{len(refused)} of {len(receipts)} receipts were refused, the others are settled; the first: {first}"
    return problem(status_of(first), code_of(first), detail, field=f"receipts[{refused[0]}]", results=results)


async def stats(call: Call) -> QueueStats:
    node, group = call.services.node, call.query.group
    topic = find_queue(node, call.names["topic"])
    found = await queues.depths(node, group, topic)
    parts = [
        PartitionDepth(each.partition, each.ready, each.leased, each.waiting, each.doomed, each.start, each.end)
        for each in found
    ]
    return QueueStats(
        topic=topic.name,
        group=group,
        ready=sum(each.ready for each in parts),
        in_flight=sum(each.in_flight for each in parts),
        waiting=sum(each.waiting for each in parts),
        dying=sum(each.dying for each in parts),
        partitions=parts,
    )


_QUEUE = "/api/v1/queues/{topic}"

ROUTES = (
    Route(
        method="POST",
        path=f"{_QUEUE}/messages",
        summary="Send a message to a queue, or an array of them",
        handler=send,
        body=OneOrMany | list[NewQueueMessage],
        answer=SentOneOrMany | list[Sent],
        takes=tuple(FORMS),
    ),
    Route(
        method="POST",
        path=f"{_QUEUE}/receive",
        summary="Receive messages of a queue",
        handler=receive,
        body=Wish,
        answer=Received,
        gives=tuple(FORMS),
    ),
    Route(
        method="POST",
        path=f"{_QUEUE}/ack",
        summary="Acknowledge messages: they are done",
        handler=ack,
        body=Acknowledgement,
        answer=Settled,
    ),
    Route(
        method="POST",
        path=f"{_QUEUE}/nack",
        summary="Give messages back: they are delivered again, or become dead letters",
        handler=nack,
        body=GivenBack,
        answer=Settled,
    ),
    Route(
        method="POST",
        path=f"{_QUEUE}/extend",
        summary="Keep messages longer",
        handler=extend,
        body=Extension,
        answer=Settled,
    ),
    Route(
        method="GET",
        path=f"{_QUEUE}/stats",
        summary="How many messages a group has before it",
        handler=stats,
        query=QueueQuery,
        answer=QueueStats,
    ),
)
