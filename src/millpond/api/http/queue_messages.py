"""Messages of queues in JSON: what is sent with them, what comes with them, and how far each may go.

Pure. Driven by the queue routes.
"""

from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from millpond.api.anywhere.queues import Asked, Caps, headers_with
from millpond.api.anywhere.refusals import wrong
from millpond.api.http.forms import INT64_MAX, NOTHING, Form, Message, NewHeaders, bytes_of, headers_of, shown
from millpond.core.delivery.delay_headers import moment
from millpond.model.errors import InvalidRecord
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, Record

MISSING: Final = Raw(b"")
"""What has to be there, and is not."""


def span(least: int, most: int, *, description: str = "Milliseconds.") -> Meta:
    """In the schema alone: what is asked for is checked further in, which says which value it was."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most, "description": description})


Delay = Annotated[int, span(0, INT64_MAX)]
Life = Annotated[int, span(1, INT64_MAX)]
Moment = Annotated[
    int | str, Meta(description="Milliseconds since 1970, or ISO 8601 with a zone.", examples=["2027-01-01T08:00:00Z"])
]
Priority = Literal["high", "normal", "low", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class NewQueueMessage(Struct, forbid_unknown_fields=True, gc=False):
    value: Annotated[Raw, Meta(examples=["one coffee"])]
    """What becomes of it is the content type's: the bytes of a text, JSON as it stands, or base64."""
    key: Annotated[Raw, Meta(examples=["table 4"])] = msgspec.field(default_factory=lambda: NOTHING)
    headers: NewHeaders = ()
    """In order, as name and value; or as an object."""
    delay_ms: Delay | None = None
    """Delivered no earlier than so long from now."""
    deliver_at: Moment | None = None
    """Delivered no earlier than then; in the place of a delay."""
    priority: Priority | None = None
    """By name; or by number: 0 to 3 low, 4 to 6 normal, 7 to 9 high."""
    ttl_ms: Life | None = None
    """Not delivered after so long."""


class OneOrMany(NewQueueMessage, forbid_unknown_fields=True, gc=False):
    value: Annotated[Raw, Meta(examples=["one coffee"])] = msgspec.field(default_factory=lambda: MISSING)
    """What becomes of it is the content type's. Only where there are no `messages`."""
    messages: tuple[NewQueueMessage, ...] | None = None
    """Many at once, and nothing beside them."""


class Outgoing(NamedTuple):
    record: NewRecord
    delayed_by: str | None
    """The field that asks for a delay, where one does."""


class Delivered(Message, kw_only=True):
    message_id: str
    receipt: str
    """What is shown to acknowledge it, give it back, or keep it longer."""
    attempt: int
    """1 for the first."""
    partition: int


def record_of(form: Form, message: NewQueueMessage, *, now_ms: int, caps: Caps) -> Outgoing:
    asked = Asked(message.delay_ms, moment_of(message.deliver_at), message.priority, message.ttl_ms)
    headers, delayed_by = headers_with(headers_of(form, message.headers), asked, now_ms=now_ms, caps=caps)
    key, value = bytes_of(form, message.key, "key"), bytes_of(form, message.value, "value")
    return Outgoing(NewRecord(value, key, TimestampMs(now_ms), headers), delayed_by)


def moment_of(given: int | str | None) -> int | None:
    if not isinstance(given, str):
        return given
    try:
        return moment(given, name="deliver_at")
    except InvalidRecord as error:
        raise wrong("deliver_at", str(error)) from None


def delivered(form: Form, record: Record, attempt: int, *, message_id: str, partition: int, receipt: str) -> Delivered:
    message = shown(form, record)
    return Delivered(
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        message.headers,
        message.key_base64,
        message.value_base64,
        message_id=message_id,
        receipt=receipt,
        attempt=attempt,
        partition=partition,
    )
