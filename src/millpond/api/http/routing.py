"""Which paths there are, what each takes and gives: one table, from which requests are answered and OpenAPI is written.

A route says what it takes as types; what does not fit them is refused before its function is called. Most routes are
coroutines. A quick one is called with the request as it came, and answers when it likes: for what comes many thousand
times a second.

Pure, but for calling what the table holds. Driven by application.py.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import UNSET, Struct

from millpond.api.anywhere.refusals import Refusal, wrong
from millpond.api.http.allowed import Asked
from millpond.api.http.connection import Answer, Request
from millpond.api.http.forms import form_of_body
from millpond.api.http.problems import Blames, NotAllowed, refusal_of
from millpond.api.http.replies import JSON
from millpond.api.http.services import Services
from millpond.model.limits import KIB
from millpond.model.values import dataclass

QUERY_FIELDS_MAX: Final = 32
LOOK_BACK_BYTES: Final = 64 * KIB
_NAME: Final = re.compile(rb'"([^"\\]{1,80})"\s*:')
_SLASH: Final = re.compile("%2[fF]")


class Call(NamedTuple):
    """A request that fits its route."""

    services: Services
    request: Request
    names: Mapping[str, str]
    """From the path."""
    query: Any
    body: Any


Handler = Callable[[Call], Awaitable[object]]
Quick = Callable[[Services, Request, Answer], Coroutine[Any, Any, None] | None]
"""What it returns is waited for, and answers; what it raises meanwhile, in the place of an answer, is answered too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    """With names in braces."""
    summary: str
    handler: Handler | None = None
    quick: Quick | None = None
    query: type[Struct] | None = None
    body: Any = None
    needs_body: bool = True
    """Where it has one; otherwise nothing at all is an object without fields."""
    answer: Any = None
    """The type of what is answered; None where it is no JSON."""
    status: int = 200
    takes: Sequence[str] = (JSON,)
    gives: Sequence[str] = (JSON,)
    also: Mapping[int, Any] = field(default_factory=dict)
    """Further statuses with an answer of their own."""
    blames: Blames = field(default_factory=dict)


class Found(NamedTuple):
    route: Route
    names: Mapping[str, str]


class Table:
    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in routes:
            if "{" in route.path:
                pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path))
                self._patterns.setdefault(route.path, (pattern, {}))[1][route.method] = route
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str) -> Found:
        methods = self._exact.get(path)
        names: dict[str, str] = {}
        if methods is None:
            methods, names = self._match(path)
        route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if route is None:
            allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
            raise NotAllowed(method, allowed)
        return Found(route, names)

    def _match(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        for pattern, methods in self._patterns.values():
            if found := pattern.fullmatch(path):
                try:
                    return methods, {name: unquote(text, errors="strict") for name, text in found.groupdict().items()}
                except UnicodeDecodeError as error:
                    raise refusal_of(error, what="the path") from None
        if (with_slashes := _SLASH.sub("/", path)) != path:  # a message id may come as one part of the path
            return self._match(with_slashes)
        raise Refusal(404, "no_such_path", "nothing is at this path; /docs says what there is")


@cache
def _decoder(body: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401
    return msgspec.json.Decoder(body)


def body_of(request: Request, route: Route) -> Any:  # noqa: ANN401
    form_of_body(request.headers)
    return decoded(_decoder(route.body), request.body if request.body or route.needs_body else b"{}")


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:  # noqa: ANN401
    try:
        body.decode()  # what is handed on as it was written is not looked at otherwise
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not body:
            raise Refusal(400, "invalid_json", "the body is empty; it is JSON, as /docs says") from None
        refusal = refusal_of(error, asked=_asked(decoder, body) if isinstance(error, msgspec.ValidationError) else None)
        if isinstance(error, UnicodeDecodeError):
            refusal.field = _field_at(body, error.start)
        raise refusal from None


def _asked(decoder: msgspec.json.Decoder[Any], body: bytes) -> Asked:
    """A long body is not taken apart again to show a value of it."""
    try:
        return Asked(decoder.type, msgspec.json.decode(body) if len(body) <= LOOK_BACK_BYTES else UNSET)
    except (msgspec.DecodeError, RecursionError):  # the fault was found before its end, where there is another
        return Asked(decoder.type, UNSET)


def _field_at(body: bytes, position: int) -> str | None:
    """The name that stands last before it."""
    names = _NAME.findall(body, max(0, position - LOOK_BACK_BYTES), position)
    return names[-1].decode(errors="replace") if names else None


def query_of(request: Request, kind: type[Struct]) -> Any:  # noqa: ANN401
    try:
        pairs = parse_qsl(
            request.query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except UnicodeDecodeError as error:
        raise refusal_of(error, what="the query") from None
    except ValueError:
        raise Refusal(400, "too_many_fields", f"the query has more than {QUERY_FIELDS_MAX} fields; ask less") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1)
        raise Refusal(400, "named_twice", f"the query has {twice[:80]!r} twice; say it once", field=twice[:80])
    try:
        asked = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refusal_of(error, what="the query", asked=Asked(kind, fields, is_query=True)) from None
    for name, text in fields.items():
        if getattr(asked, name) is None:  # what is null in JSON is left out of a query
            raise wrong(name, f"{name} is {text!r}; leave it out, or give it a value")
    return asked
