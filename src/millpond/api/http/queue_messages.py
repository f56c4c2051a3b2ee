"""Messages of queues in JSON: what is sent with them, what comes with them, and how far each may go.

Pure. Driven by the queue routes.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from millpond.api.anywhere.queues import Asked, headers_with
from millpond.api.http.forms import INT64_MAX, NOTHING, Form, Message, NewHeader, bytes_of, shown
from millpond.model.ids import TimestampMs
from millpond.model.limits import DELAY_MS_MAX
from millpond.protocol.records import NewRecord, Record


def span(least: int, most: int, *, description: str = "Milliseconds.") -> Meta:
    """In the schema alone: what is asked for is checked further in, which says which value it was."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most, "description": description})


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
    own = tuple([(each.name, bytes_of(form, each.value, "headers")) for each in message.headers])
    asked = Asked(message.delay_ms, message.deliver_at, message.priority, message.ttl_ms)
    headers = headers_with(own, asked, now_ms=now_ms)
    key, value = bytes_of(form, message.key, "key"), bytes_of(form, message.value, "value")
    return NewRecord(value, key, TimestampMs(now_ms), headers)


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
