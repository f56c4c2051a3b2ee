"""/api/v1/queues: send messages, receive them, and say what became of them; any topic is a queue to whoever asks.

    POST /api/v1/queues/jobs/messages  {"value": "one coffee"}                    {"message_id": "jobs/0/17", ...}
    POST /api/v1/queues/jobs/messages  {"messages": [{"value": "one"}, ...]}      {"messages": [{"message_id": ...}]}
    POST /api/v1/queues/jobs/receive   {"group": "kitchen", "wait_ms": 5000}      {"messages": [{"receipt": ...}]}
    POST /api/v1/queues/jobs/ack       {"group": "kitchen", "receipts": [...]}    {"settled": 1}

A message that was received is its consumer's until it is acknowledged, given back, or its time is up; then it is
delivered again. Where some receipts no longer hold, the answer is a problem, and its `results` say which; the others
are settled.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.api.anywhere import queues
from millpond.api.anywhere.queues import ERROR_CHARS_MAX, GROUP_CHARS_MAX, RECEIVE_DEFAULT, Settlement
from millpond.api.anywhere.refusals import Refusal, code_of, status_of
from millpond.api.anywhere.shipment import Shipment
from millpond.api.http.forms import FORMS, form_of_accept, form_of_body
from millpond.api.http.problems import Blames, problem
from millpond.api.http.queue_messages import (
    MISSING,
    Delivered,
    NewQueueMessage,
    OneOrMany,
    delivered,
    record_of,
    span,
)
from millpond.api.http.replies import Reply
from millpond.api.http.routing import Call, Route
from millpond.model.errors import BatchTooLarge, InvalidTopicName, LeaseLost, PolicyViolation
from millpond.model.limits import RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MS_MAX, RETRY_DELAY_MS_MAX, VISIBILITY_MS_MAX

Group = Annotated[str, Meta(min_length=1, max_length=GROUP_CHARS_MAX, examples=["kitchen"])]
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


class QueueGroups(Struct):
    topic: str
    groups: list[str]
    """All that ever asked for messages of the queue, by whatever door, and were not deleted since."""


class QueueStats(Struct):
    topic: str
    group: str
    ready: int
    in_flight: int
    waiting: int
    dying: int
    partitions: list[PartitionDepth]
    """Those whose leader answered."""


# In


async def send(call: Call) -> object:
    services, name = call.services, call.names["topic"]
    node, form = services.node, form_of_body(call.request.headers)
    messages, prefix = _messages(call.body)
    now_ms, caps = node.clock.wall_ms(), queues.caps_of(node)
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
    shipment = await queues.send(node, services.neighbours, services.producing, name, records, delayed_by=delayed_by)
    if shipment.errors:
        return _refused(shipment, name, prefix)
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
    queues.check_count(len(messages))
    return messages, prefix


def _refused(shipment: Shipment, name: str, prefix: str) -> Reply:
    results: list[dict[str, int | str]] = [
        {"code": code_of(error), "detail": str(error)}
        if (error := shipment.errors.get(number))
        else {"message_id": f"{name}/{partition}/{offset}", "partition": partition, "offset": offset}
        for number, (partition, offset) in enumerate(shipment.places)
    ]
    first = shipment.first_error
    field = f"{prefix.format(min(shipment.errors))}value" if isinstance(first, BatchTooLarge) else None
    return problem(status_of(first), code_of(first), shipment.told(), field=field, results=results)


# Out


async def receive(call: Call) -> Reply:
    wish, name = call.body, call.names["topic"]
    form = form_of_accept(call.request.headers.get(b"accept", b""))
    handfuls = await queues.receive(
        call.services.node,
        name,
        wish.group,
        count=wish.max,
        wait_ms=wish.wait_ms,
        visibility_ms=wish.visibility_ms,
    )
    messages: list[Delivered] = []
    for each in handfuls:
        messages += [
            delivered(
                form,
                record,
                attempt,
                message_id=each.message_id(name, record.offset),
                partition=each.partition,
                receipt=each.receipt(record.offset),
            )
            for record, attempt in each.records
        ]
    return Reply(200, form.value, msgspec.json.encode(Received(messages)) + b"\n")


# What became of them


async def ack(call: Call) -> object:
    return _settled(call, await queues.acknowledge(call.services.node, *_whose(call)))


async def nack(call: Call) -> object:
    body = call.body
    settlement = await queues.give_back(call.services.node, *_whose(call), delay_ms=body.delay_ms, error=body.error)
    return _settled(call, settlement)


async def extend(call: Call) -> object:
    settlement = await queues.extend(call.services.node, *_whose(call), visibility_ms=call.body.visibility_ms)
    return _settled(call, settlement)


def _whose(call: Call) -> tuple[str, str, list[str]]:
    return call.names["topic"], call.body.group, call.body.receipts


def _settled(call: Call, settlement: Settlement) -> object:
    receipts: list[str] = call.body.receipts
    refused = settlement.refused
    if not refused:
        return Settled(len(set(receipts)))
    results: list[dict[str, int | str]] = [
        {"receipt": text, "message_id": f"{call.names['topic']}/{lease.partition}/{lease.offset}"}
        if error is None and lease is not None
        else {"receipt": text[:80], "code": code_of(error or LeaseLost()), "detail": str(error)}
        for text, lease, error in zip(receipts, settlement.leases, settlement.errors, strict=True)
    ]
    first = settlement.errors[refused[0]] or LeaseLost()
    field = f"receipts[{refused[0]}]"
    return problem(status_of(first), code_of(first), settlement.told(), field=field, results=results)


async def groups(call: Call) -> QueueGroups:
    name = call.names["topic"]
    return QueueGroups(name, await queues.groups(call.services.node, name))


async def stats(call: Call) -> QueueStats:
    name, group = call.names["topic"], call.query.group
    found = await queues.depths(call.services.node, name, group)
    parts = [
        PartitionDepth(each.partition, each.ready, each.leased, each.waiting, each.doomed, each.start, each.end)
        for each in found
    ]
    return QueueStats(
        topic=name,
        group=group,
        ready=sum(each.ready for each in parts),
        in_flight=sum(each.in_flight for each in parts),
        waiting=sum(each.waiting for each in parts),
        dying=sum(each.dying for each in parts),
        partitions=parts,
    )


_QUEUE = "/api/v1/queues/{topic}"
_BLAMES: Final[Blames] = {InvalidTopicName: "topic", PolicyViolation: "topic"}

ROUTES = (
    Route(
        method="POST",
        path=f"{_QUEUE}/messages",
        summary="Send a message to a queue, or an array of them",
        handler=send,
        body=OneOrMany | list[NewQueueMessage],
        answer=SentOneOrMany | list[Sent],
        takes=tuple(FORMS),
        blames=_BLAMES,
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
        path=f"{_QUEUE}/groups",
        summary="Which groups receive of a queue",
        handler=groups,
        answer=QueueGroups,
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
