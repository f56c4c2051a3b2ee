"""Why a request is refused, as `application/problem+json` (RFC 9457) with one code for machines.

    {"title": "Bad Request", "status": 400, "code": "unknown_field", "detail": "...", "field": "valeu"}

Invariant: every refusal has a `code` that stays the same from version to version, and a `detail` that says which value,
what is allowed and what to do. Pure.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from millpond.api.anywhere.refusals import Refusal, code_of, status_of
from millpond.api.http.allowed import Asked
from millpond.api.http.replies import Reply
from millpond.model.errors import MillpondError

PROBLEM_JSON: Final = "application/problem+json"

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


def problem(
    status: int, code: str, detail: str, *, field: str | None = None, results: list[dict[str, int | str]] | None = None
) -> Reply:
    body = Problem(
        HTTPStatus(status).phrase, status, code, detail, field or UNSET, UNSET if results is None else results
    )
    return Reply(status, PROBLEM_JSON, msgspec.json.encode(body) + b"\n")


class NotAllowed(Refusal):
    """A method that its path does not take."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(405, "method_not_allowed", f"this path takes {allowed}, and not {method[:20]}")
        self.allowed = allowed


Blames = Mapping[type[MillpondError], str]
"""Which field of a request is at fault where such an error comes of it."""


def reply_to(error: MillpondError | Refusal, blames: Blames = MappingProxyType({})) -> Reply:
    if not isinstance(error, Refusal):
        return problem(status_of(error), code_of(error), str(error), field=blames.get(type(error)))
    headers = (("allow", error.allowed),) if isinstance(error, NotAllowed) else ()
    return problem(error.status, error.code, str(error), field=error.field)._replace(headers=headers)


def refusal_of(
    error: msgspec.DecodeError | UnicodeDecodeError | RecursionError,
    *,
    what: str = "the body",
    asked: Asked | None = None,
) -> Refusal:
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
        detail = (asked and asked.explain(place, what)) or f"{place or what}: {found['what']}"
        return Refusal(400, "invalid_field", detail, field=place or None)
    field = f"{place}.{named['name']}" if place else named["name"]
    if named["how"].startswith("missing"):
        return Refusal(400, "missing_field", f"{what} has no {field}, which is required", field=field)
    names = asked.names(place) if asked else ()
    remedy = f"allowed are {', '.join(names)}" if names else "leave it out"
    return Refusal(400, "unknown_field", f"{what} has {field}, which means nothing here; {remedy}", field=field)
