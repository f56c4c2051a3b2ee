"""How keys, values and headers of messages, which are bytes, stand in JSON. The content type chooses:

    application/json                        text    a string is its UTF-8; any other JSON is kept as it was written
    application/vnd.millpond.json+json      JSON    any JSON, a string too, is kept as it was written
    application/vnd.millpond.binary+json    binary  a string is base64

`null` is no key, or no value, in all of them. Of a request it is the `Content-Type` that counts, of an answer the
`Accept`; without one both are text, and so is what `curl --data` sends by itself. What cannot stand in the form asked
for is given in base64, under a name of its own: `value_base64` instead of `value`.

Pure. Driven by the routes that take or give messages.
"""

from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from millpond.api.anywhere.refusals import Refusal
from millpond.api.http.replies import JSON
from millpond.protocol.records import Headers, Record

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NOTHING: Final = Raw(b"null")
"""What is left out."""

TopicName = Annotated[str, Meta(examples=["orders"])]
Partition = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Timestamp = Annotated[int, Meta(ge=0, le=INT64_MAX, description="Milliseconds since 1970.")]


class Form(Enum):
    TEXT = JSON
    JSON = "application/vnd.millpond.json+json"
    BINARY = "application/vnd.millpond.binary+json"


FORMS: Final = {form.value: form for form in Form}
_ANY: Final = frozenset({"*/*", "application/*"})
_UNSAID: Final = frozenset({b"", b"application/x-www-form-urlencoded"})
"""What a request says whose sender said nothing; the second is curl's."""


def form_of_body(headers: Mapping[bytes, bytes]) -> Form:
    """What a body is in. Where nobody said so it is text, but not for a page in a browser, which names its origin: any
    site can make a browser send such a body here without being asked, and only what it must ask for first is safe."""
    content_type = headers.get(b"content-type", b"")
    if content_type in _UNSAID and b"origin" not in headers:
        return Form.TEXT
    return _form_of_content(content_type)


@lru_cache(64)
def _form_of_content(content_type: bytes) -> Form:
    found = FORMS.get(_media_type(content_type))
    if found is None:
        raise Refusal(
            415,
            "unsupported_media_type",
            f"the content-type is {content_type.decode('latin-1')[:80]!r}; it is one of {', '.join(FORMS)}",
            field="content-type",
        )
    return found


@lru_cache(64)
def form_of_accept(accept: bytes) -> Form:
    """What an answer shall be in: the first of those named that there is."""
    for each in accept.split(b","):
        media_type = _media_type(each)
        if media_type in FORMS:
            return FORMS[media_type]
        if media_type in _ANY or not media_type:
            return Form.TEXT
    raise Refusal(
        406,
        "not_acceptable",
        f"accept is {accept.decode('latin-1')[:80]!r}; there are {', '.join(FORMS)}",
        field="accept",
    )


def _media_type(text: bytes) -> str:
    return text.partition(b";")[0].strip().lower().decode("latin-1")


# In


class NewHeader(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    value: Raw = msgspec.field(default_factory=lambda: NOTHING)


NewHeaders = tuple[NewHeader, ...] | dict[str, Raw]
"""In order, as name and value; or as an object."""

_text_decoder: Final = msgspec.json.Decoder(str)


def bytes_of(form: Form, raw: Raw, field: str) -> bytes | None:
    content = bytes(raw)
    if content == b"null":
        return None
    if content[:1] != b'"':
        if form is Form.BINARY:
            raise Refusal(400, "invalid_field", f"{field} is no string; in this content type it is base64", field=field)
        return content
    if form is Form.JSON:
        return content
    if form is Form.TEXT and b"\\" not in content:
        return content[1:-1]
    text = _text_decoder.decode(content)
    if form is Form.TEXT:
        return text.encode()
    try:
        return a2b_base64(text.encode(), strict_mode=True)
    except BinasciiError as error:
        raise Refusal(400, "invalid_base64", f"{field} is no base64: {error}", field=field) from None


def headers_of(form: Form, given: NewHeaders) -> Headers:
    pairs = given.items() if isinstance(given, dict) else ((each.name, each.value) for each in given)
    return tuple([(name, bytes_of(form, value, "headers")) for name, value in pairs])


# Out


class Header(Struct, gc=False):
    name: str
    value: Any = None
    value_base64: str | UnsetType = UNSET


class Message(Struct, gc=False):
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 where its producer gave none."""
    key: Any
    value: Any
    headers: Sequence[Header] = ()
    key_base64: str | UnsetType = UNSET
    """In the place of a key that cannot stand in the form asked for."""
    value_base64: str | UnsetType = UNSET


class PlacedMessage(Message):
    topic: str = ""
    partition: int = 0


def shown(form: Form, record: Record) -> Message:
    offset, timestamp, key, value, headers = record
    if form is Form.TEXT:  # the usual way, made short
        try:
            return Message(
                offset,
                timestamp,
                None if key is None else key.decode(),
                None if value is None else value.decode(),
                _headers(form, headers) if headers else (),
            )
        except UnicodeDecodeError:
            pass
    key_shown, key_base64 = _shown(form, key)
    value_shown, value_base64 = _shown(form, value)
    return Message(offset, timestamp, key_shown, value_shown, _headers(form, headers), key_base64, value_base64)


def shown_placed(form: Form, record: Record, topic: str, partition: int) -> PlacedMessage:
    shared = msgspec.structs.asdict(shown(form, record))
    return PlacedMessage(**shared, topic=topic, partition=partition)


def _headers(form: Form, headers: Headers) -> Sequence[Header]:
    return [Header(_encodable(name), *_shown(form, value)) for name, value in headers]


def _encodable(name: str) -> str:
    """A name that was no UTF-8 loses what cannot stand in JSON."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _shown(form: Form, content: bytes | None) -> tuple[Any, str | UnsetType]:
    """In the form, or in base64."""
    if content is None:
        return None, UNSET
    if form is Form.BINARY:
        return _base64(content), UNSET
    try:
        text = content.decode()
        if form is Form.TEXT:
            return text, UNSET
        msgspec.json.decode(content, type=Raw)
        return Raw(content), UNSET
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None, _base64(content)


def _base64(content: bytes) -> str:
    return b2a_base64(content, newline=False).decode()
