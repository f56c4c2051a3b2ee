"""Why a request is refused, as `application/problem+json` (RFC 9457) with one code for machines.

    {"title": "Bad Request", "status": 400, "code": "unknown_field", "detail": "...", "field": "valeu"}

Invariant: every refusal has a `code` that stays the same from version to version, and a `detail` that says which value,
what is allowed and what to do. Pure.
"""

import re
from functools import cache
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from millpond.api.http.replies import Extra, Reply
from millpond.model.errors import MillpondError, RefusedByBroker
from millpond.telemetry.kafka_errors import error_name

PROBLEM_JSON: Final = "application/problem+json"

_REFUSED_STATUS: Final = dict.fromkeys((22, 23, 27, 79, 81, 82, 86, 110, 111, 113), 409) | {24: 400, 112: 400}
"""Of what a group's coordinator answers, and no class of our tree stands for."""

NO_SUCH_PLACE: Final = "unknown_topic_or_partition"

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>.*)`)?$", re.DOTALL)
_NAMED: Final = re.compile(r"^Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


class Problem(Struct, omit_defaults=True):
    title: str
    status: int
    code: str
    """Of this kind of problem, for machines."""
    detail: str
    field: str | UnsetType = UNSET
    """Which part of the request it is about."""
    results: list[dict[str, int | str]] | UnsetType = UNSET
    """Of many messages, what became of each: its place, or the code and detail of what went wrong."""


class Refusal(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, code: str, detail: str, *, field: str | None = None, headers: Extra = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.field = field
        self.headers = headers

    def reply(self) -> Reply:
        return problem(self.status, self.code, str(self), field=self.field)._replace(headers=self.headers)


def problem(
    status: int, code: str, detail: str, *, field: str | None = None, results: list[dict[str, int | str]] | None = None
) -> Reply:
    body = Problem(
        HTTPStatus(status).phrase, status, code, detail, field or UNSET, UNSET if results is None else results
    )
    return Reply(status, PROBLEM_JSON, msgspec.json.encode(body) + b"\n")


def reply_to(error: MillpondError) -> Reply:
    return problem(status_of(error), code_of(error), str(error))


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


def no_such_topic(topic: str) -> Refusal:
    return Refusal(404, NO_SUCH_PLACE, f"there is no topic {topic[:80]!r}; create it first", field="topic")


def no_such_partition(topic: str, partition: int, count: int) -> Refusal:
    detail = f"there is no partition {partition} of {topic}; it has {count}, from 0 to {count - 1}"
    return Refusal(404, NO_SUCH_PLACE, detail, field="partition")


def refusal_of(error: msgspec.DecodeError | UnicodeDecodeError | RecursionError, *, what: str = "the body") -> Refusal:
    """For what could not be read, with the field named where there is one."""
    if isinstance(error, UnicodeDecodeError):
        return Refusal(400, "invalid_utf8", f"{what} is no UTF-8: byte {error.start} cannot be there; encode it so")
    if isinstance(error, RecursionError):
        return Refusal(400, "nested_too_deeply", f"{what} is nested too deeply; send what has fewer levels")
    if not isinstance(error, msgspec.ValidationError):
        return Refusal(400, "invalid_json", f"{what} is no JSON: {error}")
    found = _AT.match(str(error))
    assert found is not None
    place = (found["place"] or "").removeprefix("$").removeprefix(".")
    named = _NAMED.match(found["what"])
    if named is None:
        return Refusal(400, "invalid_field", f"{place or what}: {found['what']}", field=place or None)
    field = f"{place}.{named['name']}" if place else named["name"]
    if named["how"].startswith("missing"):
        return Refusal(400, "missing_field", f"{what} has no {field}, which is required", field=field)
    return Refusal(400, "unknown_field", f"{what} has {field}, which means nothing here; leave it out", field=field)
