"""Why a request is refused, alike at all doors: a code for machines, a sentence for people, the field it is about.

Invariant: a code stays the same from version to version, and is the same at every door; the sentence says which value,
what is allowed and what to do. Each door has its own words for the kind, which is HTTP's status here. Pure.
"""

import re
from functools import cache
from typing import Final

from millpond.model.errors import MillpondError, RefusedByBroker
from millpond.telemetry.kafka_errors import error_name

NO_SUCH_PLACE: Final = "unknown_topic_or_partition"

_REFUSED_STATUS: Final = dict.fromkeys((22, 23, 27, 79, 81, 82, 86, 110, 111, 113), 409) | {24: 400, 112: 400}
"""Of what a group's coordinator answers, and no class of our tree stands for."""


class Refusal(Exception):
    """A request that cannot be done as it was asked."""

    def __init__(self, status: int, code: str, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.field = field


def status_of(error: MillpondError) -> int:
    if isinstance(error, RefusedByBroker):
        return _REFUSED_STATUS.get(error.code, error.http_status)
    return error.http_status


def code_of(error: MillpondError) -> str:
    if isinstance(error, RefusedByBroker):
        return error_name(error.code).lower()
    return _snake(type(error).__name__)


@cache
def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def wrong(field: str, detail: str) -> Refusal:
    """A value that is not allowed there."""
    return Refusal(400, "invalid_field", detail, field=field)


def check(field: str, value: int | None, *, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        shown_value = str(value) if abs(value) < 10**30 else "a very long number"
        raise wrong(field, f"{field} is {shown_value}; allowed are {least} to {most}")


def no_such_topic(topic: str) -> Refusal:
    return Refusal(404, NO_SUCH_PLACE, f"there is no topic {topic[:80]!r}; create it first", field="topic")


def no_such_partition(topic: str, partition: int, count: int) -> Refusal:
    detail = f"there is no partition {partition} of {topic}; it has {count}, from 0 to {count - 1}"
    return Refusal(404, NO_SUCH_PLACE, detail, field="partition")
