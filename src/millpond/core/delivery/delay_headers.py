"""What a record's headers say of when it shall be delivered, and what a delivered record says of its past.

Asked with:    millpond-delay-ms      milliseconds from now, as text
               millpond-deliver-at    milliseconds since 1970, or ISO 8601 with a zone, as text
               millpond-cron          five fields, in UTC: again and again
Delivered with: millpond-message-id   topic/partition/offset, as the producer was told it
               millpond-sent-at       the record's time, as its producer set it
               millpond-next-at       of a schedule: when it fires next

Invariant: what a delivered record says of its past is the broker's own word; the same names from a client are dropped.
Pure. Used by the broker when a batch comes in, and by parked_format.py.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from millpond.core.delivery.cron import Schedule
from millpond.model.errors import InvalidRecord
from millpond.model.limits import HEADERS_PER_RECORD_MAX
from millpond.protocol.records import Headers, Record, kernel

DELAY: Final = "millpond-delay-ms"
DELIVER_AT: Final = "millpond-deliver-at"
CRON: Final = "millpond-cron"
MESSAGE_ID: Final = "millpond-message-id"
SENT_AT: Final = "millpond-sent-at"
NEXT_AT: Final = "millpond-next-at"

MARKS: Final = (b"millpond-d", b"millpond-c")
"""One of these bytes is in every batch that wants a delay."""
ASKING: Final = frozenset({DELAY, DELIVER_AT, CRON})
"""A record has one of them at most."""
TOLD: Final = frozenset({MESSAGE_ID, SENT_AT, NEXT_AT})
_ID_NAME: Final = kernel.sized(MESSAGE_ID.encode())
_SENT_AT_NAME: Final = kernel.sized(SENT_AT.encode())
_NEXT_AT_NAME: Final = kernel.sized(NEXT_AT.encode())
_DIGITS_MAX: Final = 16
_ADDED_MAX: Final = 3
MOMENT_FIRST: Final = 1
"""A moment is never 0, so that its sign can tell a schedule."""


class Plan(NamedTuple):
    due: int
    is_recurring: bool = False

    @property
    def signed(self) -> int:
        """As it is kept: a schedule's moment is negative."""
        return -self.due if self.is_recurring else self.due


def plans(records: Sequence[Record], *, now: int, delay_ms_max: int) -> list[Plan | None]:
    """When each record is due; None for those that do not say."""
    found = [plan(record.headers, now=now, delay_ms_max=delay_ms_max) for record in records]
    for record, each in zip(records, found, strict=True):
        if each is not None and len(record.headers) > HEADERS_PER_RECORD_MAX - _ADDED_MAX:
            raise InvalidRecord(
                f"a delayed record has {len(record.headers)} headers; at most {HEADERS_PER_RECORD_MAX - _ADDED_MAX} "
                "are taken, since some are added"
            )
    return found


def schedule_of(headers: Headers) -> Schedule:
    """Of a record that has one."""
    return next(Schedule.parse(_text(name, value)) for name, value in headers if name == CRON)


def is_any_told(headers: bytes) -> bool:
    """Whether a record that was sent may hold any header that is the broker's own, by the bytes of all of them."""
    return _ID_NAME in headers or _SENT_AT_NAME in headers or _NEXT_AT_NAME in headers


def headers_untold(headers: Headers) -> tuple[int, bytes]:
    """Without those that are the broker's own: how many, and their bytes."""
    left = tuple(each for each in headers if each[0] not in TOLD)
    return len(left), kernel.encode_header_list(left)


def headers_told(message_id: bytes, sent_at: int, next_at: int | None) -> tuple[int, bytes]:
    """The broker's own: how many, and their bytes."""
    own = _ID_NAME + kernel.sized(message_id) + _SENT_AT_NAME + kernel.sized(b"%d" % sent_at)
    if next_at is None:
        return 2, own
    return 3, own + _NEXT_AT_NAME + kernel.sized(b"%d" % next_at)


def told(headers: Iterable[tuple[str, bytes | None]]) -> tuple[int, int | None]:
    """Of a delivered record: the offset in its message id, and when it comes next."""
    said = {name: value for name, value in headers if name in TOLD and value is not None}
    offset = int(said[MESSAGE_ID].rpartition(b"/")[2])
    return offset, int(said[NEXT_AT]) if NEXT_AT in said else None


def plan(headers: Headers, *, now: int, delay_ms_max: int) -> Plan | None:
    """What one record asks for, if anything."""
    asked = [(name, _text(name, value)) for name, value in headers if name in ASKING]
    if not asked:
        return None
    if len(asked) > 1:
        names = " and ".join(name for name, _ in asked[:3])
        raise InvalidRecord(f"a record has the headers {names}; allowed is one of {', '.join(sorted(ASKING))}, once")
    name, text = asked[0]
    if name == CRON:
        return Plan(Schedule.parse(text).after(now), is_recurring=True)
    due = now + _whole(name, text) if name == DELAY else moment(text, name=name)
    check_cap(due, now=now, delay_ms_max=delay_ms_max, name=name, text=text)
    return Plan(max(due, MOMENT_FIRST))


def check_cap(due: int, *, now: int, delay_ms_max: int, name: str, text: str) -> None:
    if due - now > delay_ms_max:
        raise InvalidRecord(
            f"{name} is {text[:80]!r}, which is {due - now} ms from now; allowed are at most {delay_ms_max} ms "
            "(millpond.delay.max.ms)"
        )


def moment(text: str, *, name: str) -> int:
    """Milliseconds since 1970."""
    if text.isdecimal():
        return _whole(name, text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidRecord(
            f"{name} is {text[:80]!r}; allowed are milliseconds since 1970, or ISO 8601 with a zone, such as "
            "2026-07-01T12:00:00Z"
        )
    return round(at.timestamp() * 1000)


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise InvalidRecord(f"{name} is {text[:80]!r}; allowed is a whole number of milliseconds, 0 or more")
    return int(text)


def _text(name: str, value: bytes | None) -> str:
    try:
        return (value or b"").decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidRecord(f"{name} is {(value or b'')[:40]!r}; allowed is text in ASCII") from None
