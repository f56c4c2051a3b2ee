"""Messages of queues in JSON: what is sent with them, what comes with them, and how far each may go.

What a message asks of its queue stands in its headers, so that any client can say the same:

    delay_ms     millpond-delay-ms       delivered no earlier than so long from now
    deliver_at   millpond-deliver-at     delivered no earlier than then
    priority     millpond-priority       high, normal or low; or 9 to 0
    ttl_ms       millpond-ttl-ms         not delivered after so long

and `millpond-cron`, among the headers, again and again. How long a delay and a life may be is for the broker's settings
to say.
Pure. Driven by the queue routes.
"""

from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from millpond.api.http.forms import INT64_MAX, NOTHING, Form, Message, NewHeader, bytes_of, shown
from millpond.api.http.problems import Refusal
from millpond.core.delivery.delay_headers import ASKING, DELIVER_AT, moment, plan
from millpond.core.delivery.delay_headers import DELAY as DELAY_MS
from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.model.errors import InvalidRecord
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, Record

MISSING: Final = Raw(b"")
"""What has to be there, and is not."""
_PRIORITIES: Final = frozenset({b"high", b"normal", b"low"})
_DIGITS_MAX: Final = 15


def span(least: int, most: int, *, description: str = "Milliseconds.") -> Meta:
    """In the schema alone: `check` refuses, and says which value it was."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most, "description": description})


def check(field: str, value: int | None, *, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        shown_value = str(value) if abs(value) < 10**30 else "a very long number"
        raise Refusal(400, "invalid_field", f"{field} is {shown_value}; allowed are {least} to {most}", field=field)


Delay = Annotated[int, span(0, INT64_MAX)]
Life = Annotated[int, span(1, INT64_MAX)]
Moment = Annotated[
    int | str, Meta(description="Milliseconds since 1970, or ISO 8601 with a zone.", examples=["2027-01-01T08:00:00Z"])
]
Priority = Literal["high", "normal", "low", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class NewQueueMessage(Struct, forbid_unknown_fields=True, gc=False):
    value: Annotated[Raw, Meta(examples=["one coffee"])]
    """Any JSON; what becomes of it is the content type's."""
    key: Annotated[Raw, Meta(examples=["table 4"])] = msgspec.field(default_factory=lambda: NOTHING)
    headers: tuple[NewHeader, ...] | dict[str, Raw] = ()
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
    """Any JSON; what becomes of it is the content type's. Only where there are no `messages`."""
    messages: tuple[NewQueueMessage, ...] | None = None
    """Many at once, and nothing beside them."""


class Caps(NamedTuple):
    """How far a message may go."""

    delay_ms: int
    ttl_ms: int


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
    if message.delay_ms is not None and message.deliver_at is not None:
        raise Refusal(400, "invalid_field", "delay_ms and deliver_at are both given; leave one out", field="deliver_at")
    deliver_at = moment_of(message.deliver_at)
    check("delay_ms", message.delay_ms, least=0, most=caps.delay_ms)
    check("deliver_at", deliver_at, least=0, most=now_ms + caps.delay_ms)
    check("ttl_ms", message.ttl_ms, least=1, most=caps.ttl_ms)
    asked = (
        (DELAY_MS, message.delay_ms),
        (DELIVER_AT, deliver_at),
        (PRIORITY, message.priority),
        (TTL_MS, message.ttl_ms),
    )
    headers = _headers(form, message, now_ms, caps)
    delayed_by = "headers" if any(name in ASKING for name, _ in headers) else None
    if message.delay_ms is not None or deliver_at is not None:
        field = "delay_ms" if deliver_at is None else "deliver_at"
        if delayed_by is not None:
            detail = f"{field} is given, and a header asks for a delay too; leave one out"
            raise Refusal(400, "invalid_field", detail, field=field)
        delayed_by = field
    headers += ((name, str(value).encode()) for name, value in asked if value is not None)
    key, value = bytes_of(form, message.key, "key"), bytes_of(form, message.value, "value")
    return Outgoing(NewRecord(value, key, TimestampMs(now_ms), tuple(headers)), delayed_by)


def moment_of(given: int | str | None) -> int | None:
    if not isinstance(given, str):
        return given
    try:
        return moment(given, name="deliver_at")
    except InvalidRecord as error:
        raise Refusal(400, "invalid_field", str(error), field="deliver_at") from None


def _headers(form: Form, message: NewQueueMessage, now_ms: int, caps: Caps) -> list[tuple[str, bytes | None]]:
    """A header that queues look at, and that says nothing to them, is a mistake."""
    given = message.headers
    pairs = given.items() if isinstance(given, dict) else ((each.name, each.value) for each in given)
    headers = [(name, bytes_of(form, value, "headers")) for name, value in pairs]
    if not any(name.startswith("millpond-") for name, _ in headers):
        return headers
    for name, value in headers:
        _check_header(name, b"" if value is None else value, caps)
    try:
        plan(tuple(headers), now=now_ms, delay_ms_max=caps.delay_ms)
    except InvalidRecord as error:
        raise Refusal(400, "invalid_field", f"headers: {error}", field="headers") from None
    return headers


def _check_header(name: str, text: bytes, caps: Caps) -> None:
    if name == TTL_MS and not (text.isdigit() and len(text) <= _DIGITS_MAX and 1 <= int(text) <= caps.ttl_ms):
        allowed = f"a number of milliseconds, 1 to {caps.ttl_ms}"
    elif name == PRIORITY and not (text.lower() in _PRIORITIES or (len(text) == 1 and text.isdigit())):
        allowed = "high, normal, low, or 0 to 9"
    else:
        return
    seen = text[:80].decode(errors="replace")
    raise Refusal(400, "invalid_field", f"the header {name} is {seen!r}; allowed is {allowed}", field="headers")


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
