"""Messages of queues in JSON: what is sent with them, what comes with them, and how far each may go.

What a message asks of its queue stands in its headers, so that any client can say the same:

    delay_ms     millpond-delay-ms       delivered no earlier than so long from now
    deliver_at   millpond-deliver-at     delivered no earlier than then
    priority     millpond-priority       high, normal or low; or 9 to 0
    ttl_ms       millpond-ttl-ms         not delivered after so long

Pure. Driven by the queue routes.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from millpond.api.http.forms import INT64_MAX, NOTHING, Form, Message, NewHeader, bytes_of, shown
from millpond.api.http.problems import Refusal
from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.model.ids import TimestampMs
from millpond.model.limits import DELAY_MS_MAX
from millpond.protocol.records import NewRecord, Record

DELAY_MS: Final = "millpond-delay-ms"
DELIVER_AT: Final = "millpond-deliver-at"
_NUMBERS: Final = frozenset({DELAY_MS, DELIVER_AT, TTL_MS})
_PRIORITIES: Final = frozenset({b"high", b"normal", b"low"})
_DIGITS_MAX: Final = 15


def span(least: int, most: int, *, description: str = "Milliseconds.") -> Meta:
    """In the schema alone: `check` refuses, and says which value it was."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most, "description": description})


def check(field: str, value: int | None, *, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        shown_value = str(value) if abs(value) < 10**30 else "a very long number"
        raise Refusal(400, "invalid_field", f"{field} is {shown_value}; allowed are {least} to {most}", field=field)


Delay = Annotated[int, span(0, DELAY_MS_MAX)]
Life = Annotated[int, span(1, DELAY_MS_MAX)]
Moment = Annotated[int, span(0, INT64_MAX, description="Milliseconds since 1970.")]
Priority = Literal["high", "normal", "low", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class NewQueueMessage(Struct, forbid_unknown_fields=True, gc=False):
    value: Annotated[Raw, Meta(examples=["one coffee"])]
    """Any JSON; what becomes of it is the content type's."""
    key: Annotated[Raw, Meta(examples=["table 4"])] = msgspec.field(default_factory=lambda: NOTHING)
    headers: tuple[NewHeader, ...] = ()
    delay_ms: Delay | None = None
    """Delivered no earlier than so long from now."""
    deliver_at: Moment | None = None
    """Delivered no earlier than then; in the place of a delay."""
    priority: Priority | None = None
    """By name; or by number: 0 to 3 low, 4 to 6 normal, 7 to 9 high."""
    ttl_ms: Life | None = None
    """Not delivered after so long."""


class Delivered(Message, kw_only=True):
    message_id: str
    receipt: str
    """What is shown to acknowledge it, give it back, or keep it longer."""
    attempt: int
    """1 for the first."""
    partition: int


def record_of(form: Form, message: NewQueueMessage, *, now_ms: int) -> NewRecord:
    headers = [(each.name, bytes_of(form, each.value, "headers")) for each in message.headers]
    for name, value in headers:
        if name.startswith("millpond-"):
            _check_header(name, value)
    if message.delay_ms is not None and message.deliver_at is not None:
        raise Refusal(400, "invalid_field", "delay_ms and deliver_at are both given; leave one out", field="deliver_at")
    check("delay_ms", message.delay_ms, least=0, most=DELAY_MS_MAX)
    check("deliver_at", message.deliver_at, least=0, most=now_ms + DELAY_MS_MAX)
    check("ttl_ms", message.ttl_ms, least=1, most=DELAY_MS_MAX)
    asked = (
        (DELAY_MS, message.delay_ms),
        (DELIVER_AT, message.deliver_at),
        (PRIORITY, message.priority),
        (TTL_MS, message.ttl_ms),
    )
    headers += [(name, str(value).encode()) for name, value in asked if value is not None]
    key, value = bytes_of(form, message.key, "key"), bytes_of(form, message.value, "value")
    return NewRecord(value, key, TimestampMs(now_ms), tuple(headers))


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
    raise Refusal(400, "invalid_field", f"the header {name} is {seen!r}; allowed is {allowed}", field="headers")


def delivered(form: Form, record: Record, attempt: int, *, place: str, partition: int, receipt: str) -> Delivered:
    """`place` is where message ids of the partition begin."""
    message = shown(form, record)
    return Delivered(
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        message.headers,
        message.key_base64,
        message.value_base64,
        message_id=f"{place}{message.offset}",
        receipt=receipt,
        attempt=attempt,
        partition=partition,
    )
