"""Messages as text, out and in: values by line, JSON lines, or a format string.

    {"topic": "orders", "partition": 0, "offset": 3, "timestamp": 1763280000000, "key": "table 4",
     "value_base64": "/wA=", "headers": [{"name": "waiter", "value": "Ada"}]}

Invariant: a JSON line that was written can be read, and is the same message: what is no UTF-8 goes as base64 in a field
of its own name, and headers keep their order and may repeat. A field that is null is a message's null.
Pure. Driven by produce.py and consume.py.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Final, NamedTuple

from millpond.client.messages import Message
from millpond.model.errors import InvalidSetting
from millpond.protocol.records import Headers

Writer = Callable[[Sequence[Message]], bytes]
VALUE, JSON = "value", "json"

_FIELDS: Final[dict[str, Callable[[Message], bytes]]] = {
    "topic": lambda message: message.topic.encode(),
    "partition": lambda message: b"%d" % message.partition,
    "offset": lambda message: b"%d" % message.offset,
    "timestamp": lambda message: b"%d" % message.timestamp,
    "time": lambda message: _time(message.timestamp).encode(),
    "key": lambda message: message.key or b"",
    "value": lambda message: message.value or b"",
    "headers": lambda message: b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers),
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_WHERE_IT_WAS: Final = {"topic", "partition", "offset"}
"""Of a line that `consume` wrote: not where it goes."""
_WHAT_IT_IS: Final = {"key", "key_base64", "value", "value_base64", "headers", "timestamp"}


# Out


def writer(text: str) -> Writer:
    """For `--format`."""
    if text == VALUE:
        return lambda messages: b"".join([(each.value or b"") + b"\n" for each in messages])
    if text == JSON:
        return lambda messages: "".join([_json_line(each) for each in messages]).encode()
    if "{" not in text:
        raise _wrong_format(text, "has no field")
    return _template(text)


def _template(text: str) -> Writer:
    pieces: list[Callable[[Message], bytes]] = []
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise _wrong_format(text, str(error)) from None
    for literal, field, spec, conversion in parsed:
        if literal:
            data = _unescaped(literal).encode()
            pieces.append(lambda _, data=data: data)  # type: ignore[misc]
        if field is not None:
            if field not in _FIELDS or spec or conversion:
                raise _wrong_format(text, f"there is no field {{{field}}}")
            pieces.append(_FIELDS[field])
    return lambda messages: b"".join([b"".join([piece(each) for piece in pieces]) + b"\n" for each in messages])


def _wrong_format(text: str, why: str) -> InvalidSetting:
    fields = ", ".join(f"{{{name}}}" for name in _FIELDS)
    return InvalidSetting(
        f"--format is {text[:80]!r}: {why}; allowed is value, json, or a text with {fields}, such as "
        "'{partition} {offset} {value}'"
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\([ntr0\\])", lambda found: _ESCAPES[found[1]], text)


def _json_line(message: Message) -> str:
    document: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
    }
    document |= _text_or_base64("key", message.key) | _text_or_base64("value", message.value)
    document["headers"] = [{"name": name} | _text_or_base64("value", value) for name, value in message.headers]
    return json.dumps(document, ensure_ascii=False) + "\n"


def _text_or_base64(name: str, data: bytes | None) -> dict[str, object]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


# In


class Parsed(NamedTuple):
    """What a line says."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


def parse_json(line: bytes) -> Parsed:
    """Raises `InvalidSetting` with the field that is wrong."""
    try:
        document = json.loads(line)
    except ValueError:
        raise InvalidSetting(f"{_shown(line)} is no JSON") from None
    if not isinstance(document, dict):
        raise InvalidSetting(f"{_shown(line)} is no JSON object")
    unknown = set(document) - _WHERE_IT_WAS - _WHAT_IT_IS
    if unknown:
        raise InvalidSetting(
            f"field {min(unknown)!r} is unknown; allowed are {', '.join(sorted(_WHAT_IT_IS))}; "
            f"{', '.join(sorted(_WHERE_IT_WAS))} are passed over"
        )
    timestamp = document.get("timestamp")
    if timestamp is not None and (type(timestamp) is not int or timestamp < 0):
        raise InvalidSetting(f"timestamp is {_shown(timestamp)}; allowed are milliseconds since 1970")
    headers = document.get("headers") or []
    if not isinstance(headers, list):
        raise InvalidSetting(f'headers is {_shown(headers)}; allowed is a list of {{"name": …, "value": …}}')
    return Parsed(_data(document, "value"), _data(document, "key"), tuple(map(_header, headers)), timestamp)


def _header(given: Any) -> tuple[str, bytes | None]:  # noqa: ANN401
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise InvalidSetting(f'a header is {_shown(given)}; allowed is {{"name": …, "value": …}}')
    return given["name"], _data(given, "value")


def _data(document: Mapping[str, Any], name: str) -> bytes | None:
    """A string as it is, null as null, any other JSON as its text."""
    binary = document.get(f"{name}_base64")
    if binary is not None:
        try:
            return b64decode(binary, validate=True)
        except (ValueError, TypeError):
            raise InvalidSetting(f"{name}_base64 is {_shown(binary)}, which is no base64") from None
    value = document.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="surrogatepass")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
