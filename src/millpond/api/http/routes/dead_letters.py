"""/api/v1/queues/{topic}/dlq and /redrive: messages that no consumer of a group could use, and their way back."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from millpond.api.anywhere import dead_letters
from millpond.api.anywhere.dead_letters import CURSOR, LETTERS_DEFAULT, LETTERS_MAX, REDRIVE_MAX
from millpond.api.http.forms import FORMS, Form, Message, form_of_accept, shown
from millpond.api.http.queue_messages import span
from millpond.api.http.replies import Reply
from millpond.api.http.routes.queues import Group
from millpond.api.http.routing import Call, Route

Letters = Annotated[int, span(1, LETTERS_MAX, description="Letters.")]
Redriven = Annotated[int, span(1, REDRIVE_MAX, description="Letters.")]
Cursor = Annotated[str, Meta(pattern=f"^{CURSOR}$", examples=["0.0"])]


class LettersQuery(Struct, forbid_unknown_fields=True):
    group: Group | None = None
    """Only letters of that group, from the dead-letter topic that it names."""
    count: Letters = LETTERS_DEFAULT
    after: Cursor | None = None
    """Goes on where the page before ended: its `next`."""


class Letter(Message, kw_only=True):
    message_id: str
    """Of the letter; `origin` is that of the message."""
    partition: int
    origin: str | None
    group: str | None
    attempts: int | None
    error: str | None


class LetterPage(Struct):
    topic: str
    """Where they are, but for those of groups that name another."""
    messages: list[Letter]
    next: str | None
    """None where there are no more now."""


class RedriveWish(Struct, forbid_unknown_fields=True):
    group: Group | None = None
    """Whose letters; of every group of the topic, where it is left out."""
    max: Redriven = REDRIVE_MAX


class Redrive(Struct):
    redriven: int


async def dlq(call: Call) -> Reply:
    services, query = call.services, call.query
    form = form_of_accept(call.request.headers.get(b"accept", b""))
    found = await dead_letters.page(
        services.node, services.reading, call.names["topic"], query.group, count=query.count, after=query.after
    )
    page = LetterPage(found.topic, [_letter(form, each) for each in found.letters], found.next)
    return Reply(200, form.value, msgspec.json.encode(page) + b"\n")


def _letter(form: Form, letter: dead_letters.Letter) -> Letter:
    message = shown(form, letter.record)
    return Letter(
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        message.headers,
        message.key_base64,
        message.value_base64,
        message_id=letter.message_id,
        partition=letter.at.partition,
        origin=letter.origin,
        group=letter.group,
        attempts=letter.attempts,
        error=letter.error,
    )


async def redrive(call: Call) -> Redrive:
    services, wish = call.services, call.body
    return Redrive(
        await dead_letters.redrive(
            services.node, services.producing, call.names["topic"], wish.group, count_max=wish.max
        )
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/queues/{topic}/dlq",
        summary="Read the dead letters of a queue",
        handler=dlq,
        query=LettersQuery,
        answer=LetterPage,
        gives=tuple(FORMS),
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{topic}/redrive",
        summary="Send the dead letters of a group back to their topic",
        handler=redrive,
        body=RedriveWish,
        needs_body=False,
        answer=Redrive,
    ),
)
