"""JSON becomes typed columns; what is malformed stays as it came, with a reason."""

import json
from datetime import UTC, date, datetime
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
        pa.field("small-count", pa.int8()),
        pa.field("is_late", pa.bool_()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("places", pa.list_(pa.field("element", pa.struct([pa.field("room", pa.string())])))),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
    ]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
GOOD: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "client": st.none() | TEXT,
        "value": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**50), 2**50),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small-count": st.integers(-128, 127),
        "is_late": st.booleans(),
        "tags": st.none() | st.lists(st.none() | TEXT, max_size=3),
        "places": st.lists(st.none() | st.fixed_dictionaries({"room": TEXT}), max_size=3),
        "labels": st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
        "moment": st.datetimes(timezones=st.just(UTC)).map(lambda each: each.isoformat()),
        "day": st.dates().map(lambda each: each.isoformat()),
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
{"count": 9223372036854775808}
{"small-count": 128}
{"value": "x"}
{"client": "caf\xe9"}
{"client": "\\ud800"}
{"a": 1}{"a": 2}
{"is_late": 1}
{"value": NaN}
{"value": 1e999}
{"places": [{"room": 3}]}
{"tags": ["a", 1]}
{"labels": {"a": 1}}
{"moment": "yesterday"}
{"day": "2026-02-30"}
 """.split(b"\n")
)


def expected(row: dict[str, Any]) -> dict[str, Any]:
    found = {field.name: row.get(field.name) for field in READING}
    if found["moment"] is not None:
        found["moment"] = datetime.fromisoformat(found["moment"])
    if found["day"] is not None:
        found["day"] = date.fromisoformat(found["day"])
    if found["labels"] is not None:
        found["labels"] = list(found["labels"].items())
    return found


@given(st.lists(st.none() | GOOD | BAD, max_size=30))
def test_each_value_is_typed_or_malformed(given: list[Any]) -> None:
    values = [json.dumps(each).encode() if isinstance(each, dict) else each for each in given]
    typed, malformed, reasons = JsonValues(READING).read(pa.array(values, pa.binary()))
    typed.validate(full=True)
    assert typed.type == READING
    assert typed.to_pylist() == [expected(each) if isinstance(each, dict) else None for each in given]
    assert malformed.to_pylist() == [each if isinstance(each, bytes) else None for each in given]
    assert reasons.is_null().to_pylist() == malformed.is_null().to_pylist()


def test_a_reason_says_where() -> None:
    _, _, reasons = JsonValues(READING).read(pa.array([b'{"places": [{"room": 3}]}'], pa.binary()))
    assert reasons.to_pylist() == ["Expected str | null, got int - at $.places[0].room"]


def test_a_time_may_be_a_number_of_milliseconds() -> None:
    values = [b'{"moment": 1700000000123}', b'{"moment": "2023-11-14T22:13:20.123"}']
    typed, _, _ = JsonValues(READING).read(pa.array(values, pa.binary()))
    assert {row["moment"] for row in typed.to_pylist()} == {datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)}


def test_a_type_that_json_is_not_read_into_is_refused_by_name() -> None:
    kind = pa.struct([pa.field("labels", pa.map_(pa.int32(), pa.string()))])
    with pytest.raises(InvalidSetting, match=r"value\.labels is map"):
        check_readable(kind)
