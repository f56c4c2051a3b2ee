"""What was asked on Kafka's door, how long it took, and which errors were answered.

Invariant: nothing here is created per request; the names are those of APIs and error codes, which have an end.
Driven by api/kafka/dispatch.py for each request, on the loop; read by exposition.py.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from millpond.model.latencies import Latencies

FindErrors = Callable[[Any], Sequence[int]]
"""The error codes in a response that are not zero."""


class ApiFacts:
    __slots__ = ("errors", "latencies", "name", "unanswered")

    def __init__(self, name: str) -> None:
        self.name = name
        self.latencies = Latencies()
        """From a whole request to its whole answer; a Fetch that waits for data is waiting in here."""
        self.unanswered = 0
        """Handled where the client wanted no answer, as with acks=0."""
        self.errors: dict[int, int] = {}
        """How often each code was answered; one response may hold several."""

    def note_errors(self, codes: Sequence[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def request_count(self) -> int:
        return self.latencies.count + self.unanswered


class RequestFacts:
    def __init__(self) -> None:
        self.by_api: dict[int, ApiFacts] = {}
        self.malformed = 0
        """Bytes that are no request of the version they claim."""
        self.unserved = 0
        """APIs and versions that are not advertised."""

    def of(self, key: int, name: str) -> ApiFacts:
        return self.by_api.setdefault(key, ApiFacts(name))


@cache
def error_finder(response_class: type[Any]) -> FindErrors:
    """Written as straight-line source, like the codec: it runs for each response."""
    lines = ["def find(m):", " found = []"]
    _write_search(response_class, "m", 1, lines)
    lines.append(" return found")
    space: dict[str, FindErrors] = {}
    exec("\n".join(lines), space)
    return space["find"]


def _write_search(cls: type[Any], name: str, depth: int, lines: list[str]) -> bool:
    """Whether the class, or what is in it, has an error code."""
    indent, found = " " * depth, False
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.name == "error_code":
            lines.append(f"{indent}if {name}.error_code: found.append({name}.error_code)")
            found = True
        element = _element_class(hints[field.name])
        if element is not None:
            start = len(lines)
            lines.append(f"{indent}for {name}x in {name}.{field.name} or ():")
            if _write_search(element, f"{name}x", depth + 1, lines):
                found = True
            else:
                del lines[start:]
    return found


def _element_class(hint: object) -> type[Any] | None:
    """Of a list of structs, or None for any other kind of field."""
    for each in (hint, *get_args(hint)):
        if get_origin(each) is list and dataclasses.is_dataclass(element := get_args(each)[0]):
            assert isinstance(element, type)
            return element
    return None
