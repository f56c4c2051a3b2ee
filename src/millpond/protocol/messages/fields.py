"""The words a message is declared with: what each field is on the wire, and in which versions.

A message is a slotted dataclass; every field is made by one of the functions below, which record a `Field` beside
the Python default. The Python type of a field is its annotation:

    int8 int16 int32 int64    int           fixed size, big-endian
    boolean                   bool          one byte
    uuid                      bytes         16 of them; all zero where there is none
    string                    str           UTF-8 behind its length
    data                      bytes         copied out of the frame
    records                   Buffer        a view of the frame when decoded, passed on uncopied when encoded
    struct                    another class
    array                     list          of structs or of one of the kinds above

`since` and `until` are the first and last version that carries the field, `nullable_since` the first in which it may
be None, `tag` its number where it travels as a tagged field: then it is written only where it differs from its default,
and a tagged struct that is not there is None. The functions claim to return the value itself, so that a type checker
holds a field's annotation to its kind; whether None is allowed, only the annotation says.

Invariant: a declaration is read once, by the compiler, and never changes.
Pure. Driven by compiler.py.
"""

import dataclasses
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast, dataclass_transform, overload

from millpond.model.ports import Buffer
from millpond.model.values import dataclass

NO_ID: Final = bytes(16)
"""The topic id, or other uuid, of nothing."""

OWN_TAGS: Final = 8_500
"""Tags from here on are Millpond's: far from those that Kafka hands out, one by one from 0. Whoever does not know a tag
passes over its field."""

_METADATA_KEY: Final = "wire"


C = TypeVar("C")


class Message(Protocol):
    """A whole request or response."""

    api_key: ClassVar[int]
    versions: ClassVar[range]
    """The versions we can read and write."""
    flexible_since: ClassVar[int | None]
    """First version with compact lengths and tagged fields; None where no version has them."""


class Kind(Enum):
    """What a field, or one element of an array, is on the wire. The value is its code for `struct`, if it has one."""

    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    BOOLEAN = "?"
    UUID = "16s"
    STRING = "string"
    DATA = "data"
    RECORDS = "records"
    STRUCT = "struct"

    @property
    def is_fixed(self) -> bool:
        return self in _FIXED


_FIXED: Final = frozenset({Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64, Kind.BOOLEAN, Kind.UUID})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one class, in all its versions."""

    kind: Kind
    of: type[Any] | None
    """The class, where the kind is a struct."""
    is_array: bool
    since: int
    until: int | None
    nullable_since: int | None
    tag: int | None
    default: object
    name: str = ""

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def is_nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


@dataclass_transform(kw_only_default=True)
def wire(declared: type[C]) -> type[C]:
    """Makes a class whose fields were made by the functions below a slotted dataclass, built by keyword."""
    return dataclass(slots=True, kw_only=True)(declared)


def served(first: int, last: int) -> range:
    """The versions from `first` to `last`, both among them."""
    return range(first, last + 1)


def fields_of(declared: type[Any]) -> list[Field]:
    """The fields in wire order."""
    return [
        dataclasses.replace(field.metadata[_METADATA_KEY], name=field.name) for field in dataclasses.fields(declared)
    ]


def int8(*, since: int = 0, until: int | None = None, tag: int | None = None, default: int = 0) -> int:
    return _field(Kind.INT8, since=since, until=until, tag=tag, default=default)


def int16(*, since: int = 0, until: int | None = None, tag: int | None = None, default: int = 0) -> int:
    return _field(Kind.INT16, since=since, until=until, tag=tag, default=default)


def uint16(*, since: int = 0, until: int | None = None, tag: int | None = None, default: int = 0) -> int:
    return _field(Kind.UINT16, since=since, until=until, tag=tag, default=default)


def int32(*, since: int = 0, until: int | None = None, tag: int | None = None, default: int = 0) -> int:
    return _field(Kind.INT32, since=since, until=until, tag=tag, default=default)


def int64(*, since: int = 0, until: int | None = None, tag: int | None = None, default: int = 0) -> int:
    return _field(Kind.INT64, since=since, until=until, tag=tag, default=default)


def boolean(*, since: int = 0, until: int | None = None, tag: int | None = None, default: bool = False) -> bool:
    return _field(Kind.BOOLEAN, since=since, until=until, tag=tag, default=default)


def uuid(*, since: int = 0, until: int | None = None, tag: int | None = None) -> bytes:
    return _field(Kind.UUID, since=since, until=until, tag=tag, default=NO_ID)


def string(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: str | None = "",
) -> str:
    return cast(
        "str", _field(Kind.STRING, since=since, until=until, nullable_since=nullable_since, tag=tag, default=default)
    )


def data(
    *, since: int = 0, until: int | None = None, nullable_since: int | None = None, default: bytes | None = b""
) -> bytes:
    return cast("bytes", _field(Kind.DATA, since=since, until=until, nullable_since=nullable_since, default=default))


def records(*, nullable_since: int | None = None, default: Buffer | None = None) -> Buffer:
    return cast("Buffer", _field(Kind.RECORDS, nullable_since=nullable_since, default=default))


def struct(
    of: type[C], *, since: int = 0, until: int | None = None, nullable_since: int | None = None, tag: int | None = None
) -> C:
    """None by default where it may be: as a tagged field, or where null has a form on the wire."""
    if tag is None and nullable_since is None:
        field = Field(Kind.STRUCT, of, False, since, until, None, None, dataclasses.MISSING)
        return dataclasses.field(default_factory=of, metadata={_METADATA_KEY: field})
    made = _field(Kind.STRUCT, of=of, since=since, until=until, nullable_since=nullable_since, tag=tag, default=None)
    return cast("C", made)


@overload
def array(
    of: type[C],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: tuple[()] | None = (),
) -> list[C]: ...
@overload
def array(
    of: Kind,
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: tuple[()] | None = (),
) -> list[Any]: ...
def array(
    of: type[Any] | Kind,
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: tuple[()] | None = (),
) -> list[Any]:
    """Empty by default; `default=None` where nothing and empty mean different things."""
    kind, struct_class = (of, None) if isinstance(of, Kind) else (Kind.STRUCT, of)
    field = Field(kind, struct_class, True, since, until, nullable_since, tag, default)
    if default is None:
        return cast("list[Any]", dataclasses.field(default=None, metadata={_METADATA_KEY: field}))
    return dataclasses.field(default_factory=list, metadata={_METADATA_KEY: field})


def _field(
    kind: Kind,
    *,
    of: type[Any] | None = None,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: C,
) -> C:
    field = Field(kind, of, False, since, until, nullable_since, tag, default)
    return dataclasses.field(default=default, metadata={_METADATA_KEY: field})
