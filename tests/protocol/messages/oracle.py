"""The same message in Millpond's words and in kio's, a codec written by others and checked against Apache Kafka.

kio names durations and stamps without their unit and gives them Python's types; ids are UUIDs; a tagged struct that is
not there is one made of defaults. Everything else carries over by name.
"""

import dataclasses
import datetime as dt
import io
import random
import uuid
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default

from millpond.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from millpond.protocol.messages.fields import OWN_TAGS, Field, Kind, Message, fields_of
from millpond.protocol.messages.registry import APIS, OWN_KEYS_FROM

EMBEDDED: dict[type[Message], str] = {
    ConsumerProtocolSubscription: "consumer_protocol_subscription",
    ConsumerProtocolAssignment: "consumer_protocol_assignment",
}
ERROR_CODES = [int(code.value) for code in ErrorCode]
INT_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def all_messages() -> list[tuple[type[Message], int]]:
    """Every class of every API of Kafka's, at every version we serve, and the two that travel inside groups."""
    theirs = [api for api in APIS.values() if api.key < OWN_KEYS_FROM]
    classes = [made for api in theirs for made in (api.request_class, api.response_class)]
    return [(declared, version) for declared in (*classes, *EMBEDDED) for version in declared.versions]


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


def kio_class(declared: type[Message], version: int) -> Any:  # noqa: ANN401 - kio's classes share no base
    if declared in EMBEDDED:
        module, kind = EMBEDDED[declared], "data"
    else:
        module = APIS[declared.api_key].module
        kind = "request" if declared.__name__.endswith("Request") else "response"
    return getattr(import_module(f"kio.schema.{module}.v{version}.{kind}"), declared.__name__)


def kio_bytes(message: object) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)  # type: ignore[type-var]
    return out.getvalue()


def kio_read(kio: Any, content: bytes) -> tuple[Any, int]:  # noqa: ANN401
    message, size = entity_reader(kio)(content, 0)
    return message, size


def to_kio(message: Any, kio: Any, version: int) -> Any:  # noqa: ANN401
    """The same message as an instance of kio's class."""
    ours = {field.name: field for field in fields_of(type(message))}
    values = {}
    for theirs in dataclasses.fields(kio):
        name = theirs.name if theirs.name in ours else f"{theirs.name}_ms"
        value = getattr(message, name)
        values[theirs.name] = value_to_kio(value, ours[name], theirs, version)
    return kio(**values)


def value_to_kio(value: Any, ours: Field, theirs: Any, version: int) -> Any:  # noqa: ANN401
    kind = theirs.metadata.get("kafka_type", "")
    if value is None:
        return get_tagged_field_default(theirs) if ours.kind is Kind.STRUCT and ours.tag is not None else None
    if ours.is_array:
        return tuple(item_to_kio(item, ours, kind, theirs.type, version) for item in value)
    return item_to_kio(value, ours, kind, theirs.type, version)


def item_to_kio(value: Any, ours: Field, kind: str, annotation: Any, version: int) -> Any:  # noqa: ANN401
    match ours.kind:
        case Kind.STRUCT:
            return to_kio(value, struct_in(annotation), version)
        case Kind.UUID:
            return uuid.UUID(bytes=value) if value != bytes(16) else None
        case Kind.RECORDS | Kind.DATA:
            return bytes(value)
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    if kind.startswith("datetime"):
        return None if value == -1 else EPOCH + dt.timedelta(milliseconds=value)
    return value


def struct_in(annotation: Any) -> Any:  # noqa: ANN401
    """The one dataclass named in an annotation such as `tuple[Topic, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    found = [struct_in(part) for part in getattr(annotation, "__args__", ())]
    return next((part for part in found if part is not None), None)


class Maker:
    """Random messages: every field of Kafka's that the version has is set, one that may be null sometimes is."""

    def __init__(self, seed: int, *, length_max: int = 4) -> None:
        self._rng = random.Random(seed)
        self._length_max = length_max

    def message(self, declared: type[Any], version: int) -> Any:  # noqa: ANN401
        values = {}
        for field in fields_of(declared):
            if field.is_in(version) and (field.tag or 0) < OWN_TAGS:
                values[field.name] = self._value(field, version)
        return declared(**values)

    def _value(self, field: Field, version: int) -> Any:  # noqa: ANN401
        rng = self._rng
        if field.tag is not None and rng.random() < 0.5:
            return [] if field.is_array else field.default
        if field.tag is None and field.is_nullable(version) and rng.random() < 0.3:
            return None
        if not field.is_array:
            value = self._item(field, version)
            # kio leaves out a tagged struct made of defaults; we, one that is None.
            is_left_out = field.tag is not None and field.kind is Kind.STRUCT and value == type(value)()
            return None if is_left_out else value
        ceiling = 300 if rng.random() < 0.05 and field.kind is not Kind.STRUCT else self._length_max
        return [self._item(field, version) for _ in range(rng.randrange(ceiling))]

    def _item(self, field: Field, version: int) -> Any:  # noqa: ANN401
        rng = self._rng
        match field.kind:
            case Kind.STRUCT:
                return self.message(field.of, version)  # type: ignore[arg-type]
            case Kind.BOOLEAN:
                return rng.random() < 0.5
            case Kind.UINT16:
                return rng.randrange(2**16)
            case Kind.UUID:
                return rng.randbytes(16)
            case Kind.STRING:
                return "".join(rng.choices("abcäß€😀.-_", k=rng.choice((0, 1, 5, 20, 130))))
            case Kind.DATA:
                return rng.randbytes(rng.choice((0, 1, 60, 200)))
            case Kind.RECORDS:
                return memoryview(rng.randbytes(rng.choice((0, 70, 5000, 20_000))))
        if field.name.endswith("error_code"):
            return rng.choice(ERROR_CODES)
        bits = INT_BITS[field.kind]
        if field.name.endswith("_ms"):
            # kio keeps stamps and durations in Python's types, which end before 64 bits do.
            return rng.randrange(2**31)
        return rng.choice((0, -1, rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))))
