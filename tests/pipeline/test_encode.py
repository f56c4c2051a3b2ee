"""Rows become the very batches that the plain encoder makes of them, and go where other clients would send them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.client.partitioners import by_murmur2
from millpond.model.errors import InvalidRecord
from millpond.model.ids import TimestampMs
from millpond.pipeline.columns import TYPES
from millpond.pipeline.encode import check_headers, cut_by_size, encode_rows
from millpond.pipeline.partitioning import by_key
from millpond.protocol.records import Codec, NewRecord, encode_batch

NOW = TimestampMs(1_700_000_000_000)
CONTENTS = st.none() | st.binary(max_size=300)
HEADERS = st.none() | st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), CONTENTS), max_size=3)


def header_rows(headers: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    rows = [None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers]
    return pa.array(rows, TYPES["headers"])


@given(
    st.lists(st.tuples(CONTENTS, CONTENTS, HEADERS), min_size=1, max_size=150), st.sampled_from(Codec), st.booleans()
)
def test_rows_are_encoded_as_records_are(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    codec: Codec,
    with_headers: bool,
) -> None:
    keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    expected = encode_batch(
        [
            NewRecord(value, key, NOW, tuple(pairs or ()) if with_headers else ())
            for key, value, pairs in zip(keys, values, headers, strict=True)
        ],
        codec=codec,
    )
    got = encode_rows(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        header_rows(headers) if with_headers else None,
        timestamp=NOW,
        codec=codec,
    )
    assert got == expected


def test_a_part_of_an_array_is_encoded_as_that_part() -> None:
    values = pa.array([b"a", b"bb", None, b"dddd"], pa.binary())
    headers = header_rows([[("x", b"1")], None, [("y", None), ("z", b"")], []])
    got = encode_rows(values[1:3], values[1:3], headers[1:3], timestamp=NOW, codec=Codec.NONE)
    records = [NewRecord(b"bb", b"bb", NOW), NewRecord(None, None, NOW, (("y", None), ("z", b"")))]
    assert got == encode_batch(records)


@given(st.lists(CONTENTS, max_size=60), st.integers(1, 50), st.integers(0, 3))
def test_a_key_goes_where_other_clients_send_it(keys: list[bytes | None], partitions: int, skipped: int) -> None:
    array = pa.array(keys, pa.binary())[min(skipped, len(keys)) :]
    expected = [by_murmur2("orders", key, partitions) for key in keys[skipped:]]
    got = by_key(array, partitions=partitions, without_key=0).tolist()
    assert got == [0 if each is None else each for each in expected]


@given(st.lists(st.integers(0, 500), max_size=80), st.integers(1, 2000))
def test_rows_are_cut_into_batches_that_fit(sizes: list[int], bytes_max: int) -> None:
    parts = list(cut_by_size(np.array(sizes, np.int64), bytes_max=bytes_max))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert part.stop - part.start == 1 or sum(sizes[part]) + 24 * (part.stop - part.start) <= bytes_max


def test_a_header_without_a_name_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"1"}]], TYPES["headers"])
    with pytest.raises(InvalidRecord, match="no name"):
        check_headers(headers)
