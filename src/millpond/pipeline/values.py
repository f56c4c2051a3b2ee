"""Values that are JSON, read inside the source into a typed column: most of a pipeline's time goes there otherwise.

The compiled kernel, where there is one (kernel.py), reads what is usual straight into columns. What it leaves, and all
where there is none, a decoder made for the schema reads, one value after the other, so that a bad one costs what a good
one does, and its complaint says where in the value it is; columns are then made of all of them at once.

    string, boolean, whole and floating numbers, array, struct
    map         from string to any of these: an object with whatever names
    timestamp   a text as ISO 8601 has it, in UTC where it names no zone; or a whole number, in milliseconds since 1970
    date        a text as ISO 8601 has it

Invariant: `JsonValues.read` puts each value either into the typed column or, as it came and with a reason, into the
columns of malformed ones; a null is in neither.
Pure. Driven by source.py.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from millpond.model.errors import InvalidSetting
from millpond.pipeline import kernel

MALFORMED: Final = "malformed"
REASON: Final = "malformedReason"
"""The columns beside the typed one."""
_INTS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_PER_MS: Final = 1000
_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, after which Python's dates end."""

Rows = Sequence[Any]
Build = Callable[[Rows], pa.Array]


def check_readable(kind: pa.DataType, name: str = "value") -> None:
    """Raises `InvalidSetting` for a type that JSON is not read into here."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_readable(field.type, f"{name}.{field.name}")
    elif pa.types.is_list(kind):
        check_readable(kind.value_type, f"{name}[]")
    elif pa.types.is_map(kind) and kind.key_type == pa.string():
        check_readable(kind.item_type, f"{name}[]")
    elif not (_is_plain(kind) or pa.types.is_timestamp(kind) or kind in _INTS):
        raise InvalidSetting(
            f"value.schema: {name} is {kind}; JSON is read into string, boolean, whole and floating numbers, date, "
            "timestamp, array, struct, and map from string. Read it as one of these, or use from_json on a raw value"
        )


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_floating(kind)
    )


class JsonValues:
    def __init__(self, kind: pa.StructType) -> None:
        self.kind = kind
        expected, self._build = _reader(kind)
        self._decode = msgspec.json.Decoder(expected).decode
        self._fields = _kernel_fields(kind)

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, with values typed, and those that are not behind all other columns."""
        place = batch.schema.get_field_index("value")
        typed, malformed, reasons = self.read(batch.column(place))
        changed = batch.set_column(place, pa.field("value", self.kind), typed)
        changed = changed.append_column(pa.field(MALFORMED, pa.binary()), malformed)
        return changed.append_column(pa.field(REASON, pa.string()), reasons)

    def read(self, values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
        """The typed column, the column of malformed values, and why they are."""
        if kernel.KERNEL is None or self._fields is None:
            return self._read_each(values)
        columns, left = kernel.KERNEL.json(values, self._fields)
        if len(left) == len(values):
            return self._read_each(values)
        typed = pa.StructArray.from_arrays(columns, fields=list(self.kind), mask=values.is_null())
        found = typed, pa.nulls(len(values), pa.binary()), pa.nulls(len(values), pa.string())
        if not len(left):
            return found
        places = np.arange(len(values))
        places[left] = len(values) + np.arange(len(left))
        others = self._read_each(values.take(pa.array(left)))
        first, second, third = (
            pa.concat_arrays([mine, other]).take(pa.array(places)) for mine, other in zip(found, others, strict=True)
        )
        return first, second, third

    def _read_each(self, values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
        decode = self._decode
        rows: list[Any] = []
        bad: dict[int, tuple[bytes, str]] = {}
        for value in values.to_pylist():
            try:
                rows.append(None if value is None else decode(value))
            except (ValueError, RecursionError) as error:
                bad[len(rows)] = value, str(error).replace("`", "")
                rows.append(None)
        malformed: list[bytes | None] = [None] * len(rows)
        reasons: list[str | None] = [None] * len(rows)
        for place, (value, reason) in bad.items():
            malformed[place], reasons[place] = value, reason
        return self._build(rows), pa.array(malformed, pa.binary()), pa.array(reasons, pa.string())


def _kernel_fields(kind: pa.StructType) -> list[kernel.Field] | None:
    """The fields as the kernel reads them; None where it does not know one of them."""
    kinds = [_kernel_kind(field.type) for field in kind]
    if len(kinds) > kernel.FIELDS_MAX:
        return None
    fields = zip(kind, kinds, strict=True)
    known = [kernel.Field(field.name.encode(), told, field.type) for field, told in fields if told is not None]
    return known if len(known) == len(kinds) else None


def _kernel_kind(kind: pa.DataType) -> kernel.Kind | None:
    if pa.types.is_string(kind):
        return kernel.STRING
    if pa.types.is_float64(kind):
        return kernel.FLOAT
    if pa.types.is_boolean(kind):
        return kernel.BOOLEAN
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return kernel.moment(_MS_MAX)
    if pa.types.is_map(kind) and kind.key_type == kind.item_type == pa.string():
        return kernel.MAP
    return kernel.whole(_INTS[kind]) if kind in _INTS else None


# A type of Arrow, as what the decoder expects and as what makes a column of what it found


def _reader(kind: pa.DataType) -> tuple[Any, Build]:
    if pa.types.is_struct(kind):
        return _struct_reader(kind)
    if pa.types.is_list(kind):
        expected, build = _reader(kind.value_type)
        return list[expected | None], lambda rows: _lists(kind, build, rows)  # type: ignore[valid-type]
    if pa.types.is_map(kind):
        expected, build = _reader(kind.item_type)
        return dict[str, expected | None], lambda rows: _maps(kind, build, rows)  # type: ignore[valid-type]
    if pa.types.is_timestamp(kind):
        moment = Annotated[int, msgspec.Meta(ge=-_MS_MAX, le=_MS_MAX)]
        return moment | datetime, lambda rows: pa.array(list(map(_micros, rows)), pa.int64()).cast(kind)
    if kind in _INTS:
        limit = 1 << _INTS[kind]
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)], lambda rows: pa.array(rows, kind)
    if pa.types.is_boolean(kind):
        return bool, lambda rows: pa.array(rows, kind)
    if pa.types.is_floating(kind):
        return float, lambda rows: pa.array(rows, kind)
    return (date if pa.types.is_date32(kind) else str), lambda rows: pa.array(rows, kind)


def _struct_reader(kind: pa.StructType) -> tuple[Any, Build]:
    """Fields have numbers for names, since a schema's need not be Python's."""
    readers = [_reader(field.type) for field in kind]
    names = {f"f{place}": field.name for place, field in enumerate(kind)}
    fields = [(name, expected | None, None) for name, (expected, _) in zip(names, readers, strict=True)]
    expected = msgspec.defstruct("Value", fields, rename=names, gc=False)
    absent = expected()
    getters = [(attrgetter(name), build) for name, (_, build) in zip(names, readers, strict=True)]

    def build(rows: Rows) -> pa.Array:
        is_absent = [row is None for row in rows]
        if any(is_absent):
            rows = [absent if row is None else row for row in rows]
        columns = [make(list(map(get, rows))) for get, make in getters]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(is_absent, pa.bool_()))

    return expected, build


def _lists(kind: pa.ListType, build: Build, rows: Rows) -> pa.Array:
    items = build(list(chain.from_iterable(row for row in rows if row)))
    return pa.ListArray.from_arrays(_offsets(rows), items, type=kind, mask=_nulls(rows))


def _maps(kind: pa.MapType, build: Build, rows: Rows) -> pa.Array:
    keys = pa.array(list(chain.from_iterable(row for row in rows if row)), pa.string())
    items = build(list(chain.from_iterable(row.values() for row in rows if row)))
    return pa.MapArray.from_arrays(_offsets(rows), keys, items, type=kind, mask=_nulls(rows))


def _offsets(rows: Rows) -> pa.Array:
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([0 if row is None else len(row) for row in rows], out=offsets[1:])
    return pa.array(offsets)


def _nulls(rows: Rows) -> pa.Array:
    return pa.array([row is None for row in rows], pa.bool_())


def _micros(moment: int | datetime | None) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, int):
        return moment * _MICROS_PER_MS
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
