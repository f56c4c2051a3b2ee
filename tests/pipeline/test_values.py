"""JSON becomes typed columns; what is malformed stays as it came, and both ways of reading agree on it."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import InvalidSetting
from millpond.pipeline.values import JsonValues, check_readable

READING = pa.struct(
    [
        pa.field("client", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("count", pa.int64()),
        pa.field("is_late", pa.bool_()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("place", pa.struct([pa.field("room", pa.string())])),
    ]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
GOOD = st.fixed_dictionaries(
    {},
    optional={
        "client": st.none() | TEXT,
        "value": st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(2**50), 2**50),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "is_late": st.booleans(),
        "tags": st.lists(TEXT, max_size=3),
        "place": st.fixed_dictionaries({"room": TEXT}),
        "unknown": st.lists(st.integers(), max_size=2),
    },
)
BAD = st.sampled_from(
    b"""
3
null
[1]
"x"
{
{"client": 3}
{"count": 1.5}
{"value": "x"}
{"client": "caf\xe9"}
{"a": 1}{"a": 2}
{"is_late": 1}
{"value": NaN}
{"place": {"room": 3}}
{"tags": ["a", 1]}
{"client": "a", "client": "b"}
 """.split(b"\n")
)
VALUES = st.lists(st.none() | GOOD.map(lambda each: json.dumps(each).encode()) | BAD, max_size=30)


@given(VALUES)
def test_each_value_is_typed_or_malformed(values: list[bytes | None]) -> None:
    reader = JsonValues(READING)
    typed, malformed = reader.read(pa.array(values, pa.binary()))
    typed.validate(full=True)
    assert typed.type == READING
    expected: list[Any] = [None if value is None else reader.one(value) for value in values]
    assert typed.to_pylist() == expected
    assert malformed.to_pylist() == [
        value if row is None else None for value, row in zip(values, expected, strict=True)
    ]


@pytest.mark.parametrize("bad", [0, 1, 4, 5, 50, 100])
def test_however_many_are_bad_the_others_are_read(bad: int) -> None:
    values = [b'{"count": "many"}' if number < bad else b'{"count": %d}' % number for number in range(100)]
    typed, malformed = JsonValues(READING).read(pa.array(values[::-1], pa.binary()))
    assert [None if row is None else row["count"] for row in typed.to_pylist()] == [
        *range(99, bad - 1, -1),
        *[None] * bad,
    ]
    assert len(values) - malformed.null_count == bad


def test_a_type_that_json_is_not_read_into_is_refused_by_name() -> None:
    kind = pa.struct([pa.field("tags", pa.map_(pa.string(), pa.string()))])
    with pytest.raises(InvalidSetting, match=r"value\.tags is map"):
        check_readable(kind)
