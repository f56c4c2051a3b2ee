"""Records decoded as a table come out as they do one by one; and whatever is not alike, or broken, is left alone."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.model.errors import MillpondError
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import NewRecord, kernel
from millpond.protocol.records.kernel import encode_new

BASE_OFFSET, BASE_TIME = Offset(1_000), TimestampMs(50_000)

KINDS = st.sampled_from(
    [
        NewRecord(b"value"),
        NewRecord(b"", b""),
        NewRecord(b"v" * 100, b"key"),
        NewRecord(b"v" * 10_000),
        NewRecord(b"v" * 200, b"k" * 90),
        NewRecord(None, b"key"),
        NewRecord(b"value", None, headers=(("name", b"value"),)),
    ]
)
STEPS = st.sampled_from([0, 1, -1, 100])


def one_by_one(data: bytes, count: int) -> list[Any]:
    rows: list[Any] = []
    assert kernel._decode_rows(rows, data, 0, count, BASE_OFFSET, BASE_TIME) == len(data)
    return rows


def together(data: bytes, count: int) -> list[Any]:
    return kernel.decode_records(
        data, count=count, base_offset=BASE_OFFSET, base_timestamp=BASE_TIME, append_time=None, make=tuple
    )


def records(runs: list[tuple[NewRecord, int, int]]) -> list[NewRecord]:
    made: list[NewRecord] = []
    for kind, count, step in runs:
        made += [kind._replace(timestamp=TimestampMs(BASE_TIME + step * (number % 70))) for number in range(count)]
    return made


@given(st.lists(st.tuples(KINDS, st.integers(1, 700), STEPS), min_size=1, max_size=4))
@example([(NewRecord(b"x"), 9_000, 0)])
@example([(NewRecord(b"x", b"key"), 8_192, 1)])
def test_a_table_says_what_its_rows_say(runs: list[tuple[NewRecord, int, int]]) -> None:
    made = records(runs)
    data = encode_new(made, base_timestamp=BASE_TIME)
    assert together(data, len(made)) == one_by_one(data, len(made))


def test_records_become_what_they_are_wanted_as() -> None:
    for kind in (NewRecord(b"value", b"key"), NewRecord(None)):
        data = encode_new(records([(kind, 100, 0)]), base_timestamp=BASE_TIME)
        made = kernel.decode_records(
            data,
            count=100,
            base_offset=BASE_OFFSET,
            base_timestamp=BASE_TIME,
            append_time=TimestampMs(7),
            make=list,
            tail=("orders", 3),
        )
        assert made[99] == [BASE_OFFSET + 99, 7, kind.key, kind.value, (), "orders", 3]


@given(st.integers(1, 400), STEPS, st.binary(min_size=1, max_size=1), st.data())
def test_a_changed_byte_is_read_or_refused_as_it_would_be_one_by_one(
    count: int, step: int, byte: bytes, data: st.DataObject
) -> None:
    whole = bytearray(encode_new(records([(NewRecord(b"value", b"key"), count, step)]), base_timestamp=BASE_TIME))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + 1] = byte
    changed = bytes(whole)
    try:
        expected = one_by_one(changed, count)
    except (MillpondError, IndexError, AssertionError):
        with pytest.raises(MillpondError):
            together(changed, count)
    else:
        assert together(changed, count) == expected
