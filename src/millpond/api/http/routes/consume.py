"""GET /consume: messages of one partition, from an offset or a time on.

    /consume?topic=orders&partition=0&offset=0&count=10      {"messages": [...], "next_offset": 10}

Whoever asks again with `offset=next_offset` reads on. With `wait_ms` the answer waits so long for the first message.
"""

from collections.abc import Coroutine
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from millpond.api.anywhere.reading import EARLIEST, LATEST, Place, Read, Reading
from millpond.api.anywhere.refusals import Refusal
from millpond.api.http.connection import Answer, Request
from millpond.api.http.forms import FORMS, Form, Message, Partition, Timestamp, TopicName, form_of_accept, shown
from millpond.api.http.replies import Reply
from millpond.api.http.routing import Route, query_of
from millpond.api.http.services import Services
from millpond.model.errors import OffsetOutOfRange
from millpond.model.ids import TopicPartition

COUNT_DEFAULT: Final = 100
COUNT_MAX: Final = 10_000
WAIT_MS_MAX: Final = 30_000

Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
WaitMs = Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)]
Start = Annotated[
    str,
    Meta(
        pattern="^(earliest|latest|[0-9]{1,18})$",
        description="An offset, or `earliest`, or `latest`.",
        examples=["earliest"],
    ),
]


class ConsumeQuery(Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Partition = 0
    offset: Start | None = None
    """The earliest, where neither this nor a timestamp is given."""
    count: Count = COUNT_DEFAULT
    wait_ms: WaitMs = 0
    timestamp: Timestamp | None = None
    """In the place of an offset: the first message that is not older."""


class Messages(Struct):
    messages: list[Message]
    next_offset: int


def consume(services: Services, request: Request, answer: Answer) -> Coroutine[Any, Any, None] | None:
    """Waits for itself only where there is nothing yet, or another broker has to be asked."""
    form = form_of_accept(request.headers.get(b"accept", b""))
    query: ConsumeQuery = query_of(request, ConsumeQuery)
    reading = services.reading
    at = TopicPartition(query.topic, query.partition)
    reading.check(at)
    if query.offset is not None and query.timestamp is not None:
        raise Refusal(400, "invalid_field", "offset and timestamp are both given; leave one out", field="timestamp")
    if query.offset is not None and query.offset.isdigit():
        place = Place(at, int(query.offset))
        read = reading.now(place, count=query.count)
        if read is not None and (read.records or not query.wait_ms):
            answer(_reply(form, read))
            return None
    return _read(reading, at, query, form, answer)


async def _read(reading: Reading, at: TopicPartition, query: ConsumeQuery, form: Form, answer: Answer) -> None:
    place = Place(at, await start_of(reading, at, query.offset, query.timestamp))
    reads = await reading.read([place], count=query.count, wait_ms=query.wait_ms)
    answer(_reply(form, reads[0] if reads else Read(at, [], place.offset)))


async def start_of(reading: Reading, at: TopicPartition, offset: str | None, timestamp: int | None) -> int:
    if offset is not None and offset.isdigit():
        return int(offset)
    moment = LATEST if offset == "latest" else EARLIEST if timestamp is None else timestamp
    return await reading.offset_at(at, moment)


def _reply(form: Form, read: Read) -> Reply:
    found = Messages([shown(form, record) for record in read.records], read.next_offset)
    return Reply(200, form.value, msgspec.json.encode(found) + b"\n")


ROUTES = (
    Route(
        method="GET",
        path="/consume",
        summary="Read messages of one partition",
        quick=consume,
        query=ConsumeQuery,
        answer=Messages,
        gives=tuple(FORMS),
        blames={OffsetOutOfRange: "offset"},
    ),
)
