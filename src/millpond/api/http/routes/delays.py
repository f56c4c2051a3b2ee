"""/api/v1/delays: delayed messages that wait; cancel one, or let it be due at another moment."""

import heapq
from typing import Annotated

from msgspec import Meta, Struct

from millpond.api.anywhere import delays
from millpond.api.anywhere.delays import PAGE_DEFAULT, PAGE_MAX
from millpond.api.anywhere.refusals import Refusal, check, wrong
from millpond.api.http.forms import Partition, TopicName
from millpond.api.http.queue_messages import Delay, Moment, moment_of
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.client.admin_delays import Delayed, DelayPage
from millpond.core.metadata.broker_configs import layers, whole
from millpond.core.metadata.topic_configs import effective
from millpond.model.errors import InvalidRequest


class DelayQuery(Struct, forbid_unknown_fields=True):
    topic: TopicName | None = None
    """Of every topic that delays messages, where it is left out: the first that come due, on one page."""
    partition: Partition | None = None
    after: str | None = None
    """What the page before said in `next`."""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT


class DelayInfo(Struct):
    message_id: str
    partition: int
    offset: int
    deliver_at: int
    """Milliseconds since 1970; of a schedule, when it fires next."""
    recurring: bool


class DelayList(Struct):
    topic: str | None
    pending: int
    """How many wait, on this page or not."""
    messages: list[DelayInfo]
    next: str | None
    """To be given as `after` for the next page; null where this is the last."""


class NewMoment(Struct, forbid_unknown_fields=True):
    """One of them."""

    deliver_at: Moment | None = None
    delay_ms: Delay | None = None
    """From now."""


class Rescheduled(Struct):
    message_id: str
    deliver_at: int


class CancelledDelay(Struct):
    cancelled: str


async def list_delays(call: Call) -> DelayList:
    wish = call.query
    if wish.topic is None:
        return await _list_all(call)
    page = await _page(call.services, wish.topic, partition=wish.partition, after=wish.after, count=wish.limit)
    messages = [_info(each) for each in page.messages]
    following = page.messages[-1].cursor if len(messages) == wish.limit else None
    return DelayList(wish.topic, page.pending, messages, following)


async def _list_all(call: Call) -> DelayList:
    node, limit = call.services.node, call.query.limit
    if call.query.partition is not None or call.query.after is not None:
        name = "after" if call.query.partition is None else "partition"
        raise Refusal(400, "missing_field", f"{name} is given, and no topic; say which topic's", field="topic")
    defaults = layers(node.image, node.static, broker=node.node_id).merged()
    delaying = [
        name
        for name, topic in sorted(node.image.topics.items())
        if not topic.internal and effective(topic.configs, defaults).delay
    ]
    pages = [await _page(call.services, name, partition=None, after=None, count=limit) for name in delaying]
    found = heapq.nsmallest(limit, (each for page in pages for each in page.messages))
    return DelayList(None, sum(page.pending for page in pages), [_info(each) for each in found], None)


def _info(message: Delayed) -> DelayInfo:
    return DelayInfo(message.message_id, message.at.partition, message.offset, message.due_ms, message.is_recurring)


async def cancel(call: Call) -> CancelledDelay:
    message_id = _message_id(call)
    await _alter(call.services, message_id, None)
    return CancelledDelay(message_id)


async def reschedule(call: Call) -> Rescheduled:
    message_id, wish = _message_id(call), call.body
    if wish.deliver_at is None and wish.delay_ms is None:
        detail = "deliver_at or delay_ms is required, one of them"
        raise Refusal(400, "missing_field", detail, field="deliver_at")
    if wish.deliver_at is not None and wish.delay_ms is not None:
        raise wrong("deliver_at", "delay_ms and deliver_at are both given; leave one out")
    now_ms, delay_ms_max = call.services.node.clock.wall_ms(), whole("millpond.delay.max.ms", call.services.node.static)
    check("delay_ms", wish.delay_ms, least=0, most=delay_ms_max)
    deliver_at = moment_of(wish.deliver_at)
    check("deliver_at", deliver_at, least=0, most=now_ms + delay_ms_max)
    due_ms = now_ms + (wish.delay_ms or 0) if deliver_at is None else deliver_at
    await _alter(call.services, message_id, due_ms)
    return Rescheduled(message_id, due_ms)


def _message_id(call: Call) -> str:
    return "/".join(call.names[each] for each in ("topic", "partition", "offset"))


async def _page(services: Services, topic: str, *, partition: int | None, after: str | None, count: int) -> DelayPage:
    return await delays.page(
        services.neighbours, services.reading, topic, partition=partition, after=after, count=count
    )


async def _alter(services: Services, message_id: str, due_ms: int | None) -> None:
    await delays.alter(services.neighbours, services.reading, message_id, due_ms)


_ALL, _ONE = "/api/v1/delays", "/api/v1/delays/{topic}/{partition}/{offset}"

ROUTES = (
    Route(
        method="GET",
        path=_ALL,
        summary="Delayed messages of a topic that wait, in the order in which they are due",
        handler=list_delays,
        query=DelayQuery,
        answer=DelayList,
        blames={InvalidRequest: "after"},
    ),
    Route(
        method="DELETE",
        path=_ONE,
        summary="Cancel a delayed message, or a schedule, by its message id",
        handler=cancel,
        answer=CancelledDelay,
        blames={InvalidRequest: "message_id"},
    ),
    Route(
        method="PATCH",
        path=_ONE,
        summary="Let a delayed message be due at another moment",
        handler=reschedule,
        body=NewMoment,
        answer=Rescheduled,
        blames={InvalidRequest: "message_id"},
    ),
)
