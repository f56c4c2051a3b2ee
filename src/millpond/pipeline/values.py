"""Values that are JSON, read inside the source into a typed column: most of a pipeline's time goes there otherwise.

Arrow reads many values at once, and fails as a whole where one of them is bad. So a bad part is halved until the bad
ones are found; where there are many, the rest is read one by one in Python, which is slower and says the same.

Invariant: `JsonValues.read` puts each value either into the typed column or, as it came, into the column of malformed
ones; a null is in neither. Both ways of reading agree on which is which.
Pure. Driven by source.py.
"""

import io
import json
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from millpond.model.errors import InvalidSetting

MALFORMED: Final = "malformed"
"""The column beside the typed one."""
BAD_MAX: Final = 4
"""So many bad values are looked for by halving; it costs a try for each half."""
_INTS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def check_readable(kind: pa.DataType, name: str = "value") -> None:
    """Raises `InvalidSetting` for a type that JSON is not read into here."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_readable(field.type, f"{name}.{field.name}")
    elif pa.types.is_list(kind):
        check_readable(kind.value_type, f"{name}[]")
    elif not (pa.types.is_string(kind) or pa.types.is_boolean(kind) or kind in (pa.float32(), pa.float64(), *_INTS)):
        raise InvalidSetting(
            f"value.schema: {name} is {kind}; JSON is read into string, boolean, whole and floating numbers, array and "
            "struct. Read it as one of these, or use from_json on a raw value"
        )


class _TooManyBad(Exception):
    """Never leaves this module."""


class JsonValues:
    def __init__(self, kind: pa.StructType) -> None:
        self.kind = kind
        self._parse_options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"
        )

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, with values typed, and those that are not behind all other columns."""
        place = batch.schema.get_field_index("value")
        typed, malformed = self.read(batch.column(place))
        changed = batch.set_column(place, pa.field("value", self.kind), typed)
        return changed.append_column(pa.field(MALFORMED, pa.binary()), malformed)

    def read(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The typed column, and the column of malformed values."""
        good = np.asarray(values.is_valid().to_numpy(zero_copy_only=False)) & self._looks_like_objects(values)
        places = np.flatnonzero(good)
        read, bad = self._read_good(values.take(pa.array(places)))
        places = np.delete(places, bad)
        taken = np.full(len(values), -1, np.int64)
        taken[places] = np.arange(len(places))
        typed = read.take(pa.array(taken, mask=taken < 0))
        return typed, pc.if_else(pa.array(taken < 0), values, pa.scalar(None, pa.binary()))

    @staticmethod
    def _looks_like_objects(values: pa.Array) -> Any:  # noqa: ANN401 - an array of truths
        """From brace to brace on one line: so that as many objects as values means one in each."""
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:  # somewhere is a byte that is not UTF-8: those values are malformed
            text = pa.array([_text(each) for each in values.to_pylist()], pa.string())
        shape = pc.match_substring_regex(text, r"(?s)\A[ \t]*\{[^\r\n]*\}[ \t]*\z").fill_null(False)
        return np.asarray(shape.to_numpy(zero_copy_only=False))

    def _read_good(self, values: pa.Array) -> tuple[pa.Array, list[int]]:
        """What could be read, in order, and the places of what could not."""
        bad: list[int] = []
        try:
            parts = self._halve(values, 0, bad)
        except _TooManyBad:
            bad = []
            rows = [self.one(each) for each in values.to_pylist()]
            bad = [place for place, row in enumerate(rows) if row is None]
            parts = [pa.array([row for row in rows if row is not None], self.kind)]
        return (pa.concat_arrays(parts) if parts else pa.array([], self.kind)), bad

    def _halve(self, values: pa.Array, start: int, bad: list[int]) -> list[pa.Array]:
        if not len(values):
            return []
        read = self._at_once(values)
        if read is not None:
            return [read]
        if len(values) == 1:
            bad.append(start)
            if len(bad) > BAD_MAX:
                raise _TooManyBad
            return []
        middle = len(values) // 2
        return self._halve(values[:middle], start, bad) + self._halve(values[middle:], start + middle, bad)

    def _at_once(self, values: pa.Array) -> pa.Array | None:
        """None where one of them is bad."""
        lines = pc.binary_join_element_wise(values, pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary()))
        bounds = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
        text = lines.buffers()[2][int(bounds[0]) : int(bounds[-1])]
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pyarrow.json.read_json(
                io.BytesIO(text), read_options=options, parse_options=self._parse_options
            ).combine_chunks()
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(values):
            return None
        columns = [_one_chunk(table.column(field.name), field.type) for field in self.kind]
        read = pa.StructArray.from_arrays(columns, fields=list(self.kind))
        return read if _is_finite(read) else None

    def one(self, value: bytes) -> dict[str, Any] | None:
        """A single value, read in Python; None where it is bad."""
        try:
            document = json.loads(value, object_pairs_hook=_distinct, parse_float=_finite)
            conform = _conform(self.kind)
            return conform(document) if isinstance(document, dict) else None
        except (ValueError, RecursionError):
            return None


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _is_finite(read: pa.Array) -> bool:
    """Arrow takes NaN and Infinity for numbers; JSON does not have them."""
    if pa.types.is_floating(read.type):
        return pc.all(pc.is_finite(read)).as_py() is not False
    if pa.types.is_struct(read.type) or pa.types.is_list(read.type):
        return all(map(_is_finite, [read.flatten()] if pa.types.is_list(read.type) else read.flatten()))
    return True


def _one_chunk(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], kind), *column.chunks])


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _conform(kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes a document into a value of the type, or raises ValueError."""

    def conform(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        if value is None:
            return None
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return {field.name: _conform(field.type)(value.get(field.name)) for field in kind}
        if pa.types.is_list(kind) and isinstance(value, list):
            return [_conform(kind.value_type)(each) for each in value]
        if pa.types.is_string(kind) and isinstance(value, str):
            value.encode()
            return value
        if pa.types.is_boolean(kind) and isinstance(value, bool):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            if pa.types.is_floating(kind) and math.isfinite(value):
                return float(value)
            if kind in _INTS and isinstance(value, int) and -(1 << _INTS[kind]) <= value < 1 << _INTS[kind]:
                return value
        raise ValueError(value)

    return conform
