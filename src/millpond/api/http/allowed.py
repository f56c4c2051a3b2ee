"""What a value should have been, in words, as its type says it; and which value it was.

    partition is "x"; allowed is a whole number from 0 to 2147483647

Pure. Driven by problems.py, for what msgspec refuses: it knows the types, and speaks of them as programs do.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

SHOWN_CHARS_MAX: Final = 60
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]|^([^.\[]+)")
_NULL: Final = {"type": "null"}
_WORDS: Final = {"string": "a text", "number": "a number", "object": "an object", "boolean": "true or false"}


class Asked:
    """A body, or a query, that does not fit its type."""

    def __init__(self, kind: Any, value: object, *, is_query: bool = False) -> None:  # noqa: ANN401
        self._kind = kind
        self._value = value
        self._is_query = is_query
        """In which all is text, and nothing is null."""

    def explain(self, place: str, what: str) -> str | None:
        """The place as msgspec names it: `headers[0].name`. None where the type says nothing of it."""
        schema, value = _schema(self._kind), self._value
        for step in _steps(place):
            schema, value = _inside(schema, step), _part(value, step)
        if self._is_query:
            schema = {**schema, "anyOf": [each for each in _choices(schema) if each != _NULL]}
        words = " or ".join(dict.fromkeys(_words(each) for each in _choices(schema)))
        if not words:
            return None
        given = "" if value is msgspec.UNSET else f" is {_shown(value)}"
        return f"{place or what}{given or ' is not right'}; allowed is {words}"

    def names(self, place: str) -> list[str]:
        """Of the fields that there are at a place; none where there are no fields."""
        schema = _schema(self._kind)
        for step in _steps(place):
            schema = _inside(schema, step)
        return sorted({name for each in _choices(schema) for name in each.get("properties", ())})


def _steps(place: str) -> list[str]:
    return [name or number or first for name, number, first in _STEP.findall(place)]


@cache
def _schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    """With every reference followed, as far as our types go: none of them holds itself."""
    whole = msgspec.json.schema(kind)
    followed: dict[str, Any] = _follow(whole, whole.get("$defs", {}))
    return followed


def _follow(schema: Any, known: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if isinstance(schema, list):
        return [_follow(each, known) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _follow(known[schema["$ref"].rpartition("/")[2]], known)
    return {name: _follow(each, known) for name, each in schema.items() if name != "$defs"}


def _choices(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(schema.get("anyOf", [schema]))


def _inside(schema: dict[str, Any], step: str) -> dict[str, Any]:
    for each in _choices(schema):
        if step in each.get("properties", {}):
            return dict(each["properties"][step])
        if step == "..." and isinstance(each.get("additionalProperties"), dict):
            return dict(each["additionalProperties"])
        if (step == "..." or step.isdigit()) and "items" in each:
            return dict(each["items"])
    return {}


def _part(value: object, step: str) -> object:
    if isinstance(value, dict):
        return value.get(step, msgspec.UNSET)
    if isinstance(value, list) and step.isdigit() and int(step) < len(value):
        return value[int(step)]
    return msgspec.UNSET


def _words(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(str(each) for each in schema['enum'])}"
    if "pattern" in schema and "description" in schema:  # which says it better
        said: str = schema["description"].rstrip(".").replace("`", "")
        return said[0].lower() + said[1:]
    kind = schema.get("type", "")
    if kind in ("integer", "number"):
        return _number(kind, schema)
    if kind == "string":
        return "a text" + _length(schema, "minLength", "maxLength", "characters")
    if kind == "array":
        return "a list" + _length(schema, "minItems", "maxItems", "items")
    return str(_WORDS.get(kind, kind))


def _number(kind: str, schema: Mapping[str, Any]) -> str:
    word = "a whole number" if kind == "integer" else "a number"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None or most is None:
        return word if least is None else f"{word} from {least} on"
    return f"{word} from {least} to {most}"


def _length(schema: Mapping[str, Any], least_name: str, most_name: str, of: str) -> str:
    least, most = schema.get(least_name, 0), schema.get(most_name)
    if most is not None:
        return f" of {least} to {most} {of}"
    return f" of at least {least} {of}" if least else ""


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
