"""/api/v1/delays: delayed messages that wait; cancel one, or let it be due at another moment."""

from typing import Annotated

from msgspec import Meta, Struct

from millpond.api.anywhere import delays
from millpond.api.anywhere.delays import PAGE_DEFAULT, PAGE_MAX
from millpond.api.http.forms import Partition, Timestamp, TopicName
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services


class DelayQuery(Struct, forbid_unknown_fields=True):
    topic: TopicName
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
    topic: str
    pending: int
    """How many wait, on this page or not."""
    messages: list[DelayInfo]
    next: str | None
    """To be given as `after` for the next page; null where this is the last."""


class NewMoment(Struct, forbid_unknown_fields=True):
    deliver_at: Timestamp


class Rescheduled(Struct):
    message_id: str
    deliver_at: int


class CancelledDelay(Struct):
    cancelled: str


async def list_delays(call: Call) -> DelayList:
    wish = call.query
    services = call.services
    page = await delays.page(
        services.neighbours,
        services.reading,
        wish.topic,
        partition=wish.partition,
        after=wish.after,
        count=wish.limit,
    )
    messages = [
        DelayInfo(each.message_id, each.at.partition, each.offset, each.due_ms, each.is_recurring)
        for each in page.messages
    ]
    following = page.messages[-1].cursor if len(messages) == wish.limit else None
    return DelayList(wish.topic, page.pending, messages, following)


async def cancel(call: Call) -> CancelledDelay:
    message_id = _message_id(call)
    await _alter(call.services, message_id, None)
    return CancelledDelay(message_id)


async def reschedule(call: Call) -> Rescheduled:
    message_id = _message_id(call)
    await _alter(call.services, message_id, call.body.deliver_at)
    return Rescheduled(message_id, call.body.deliver_at)


def _message_id(call: Call) -> str:
    return "/".join(call.names[each] for each in ("topic", "partition", "offset"))


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
    ),
    Route(
        method="DELETE",
        path=_ONE,
        summary="Cancel a delayed message, or a schedule, by its message id",
        handler=cancel,
        answer=CancelledDelay,
    ),
    Route(
        method="PATCH",
        path=_ONE,
        summary="Let a delayed message be due at another moment",
        handler=reschedule,
        body=NewMoment,
        answer=Rescheduled,
    ),
)
