"""The compiled kernel finds what the pure code finds, and takes nothing that it refuses; without it all goes on."""

import json
import os
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.model import limits
from millpond.model.errors import MillpondError
from millpond.model.ids import Offset, TimestampMs
from millpond.pipeline import decode, encode, kernel
from millpond.pipeline.columns import TYPES
from millpond.pipeline.values import JsonValues
from millpond.protocol.records import Codec, NewRecord, encode_batch, parse_header
from millpond.protocol.records.header import CRC_AT, CRC_START
from millpond.protocol.records.kernel import RECORD_BYTES_MIN
from tests.pipeline.logs import batches

ALL = tuple(TYPES)
LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT = 23, 57
EXAMPLES = int(os.environ.get("KERNEL_EXAMPLES", "40"))
"""Thousands, after a change of kernel.c: KERNEL_EXAMPLES=5000 python -m pytest tests/pipeline/test_kernel.py"""
needs_kernel = pytest.mark.skipif(
    kernel.KERNEL is None, reason="the compiled kernel is not there: there is no C compiler, or `make kernel` builds it"
)


def rows(data: bytes, *, columns: tuple[str, ...] = ALL, start: int = 0, end: int | None = None) -> object:
    try:
        found = decode.decode_batches(data, topic="orders", partition=3, columns=columns, start=start, end=end)
    except MillpondError as error:
        return type(error), str(error)
    found.validate(full=True)
    return found


def pure_rows(data: bytes, **which: Any) -> object:  # noqa: ANN401
    with patch.object(decode, "KERNEL", None):
        return rows(data, **which)


@needs_kernel
@settings(max_examples=EXAMPLES)
@given(batches(), st.lists(st.sampled_from(ALL), min_size=1, unique=True), st.data())
def test_batches_are_the_same_columns(log: list[bytes], columns: list[str], data: st.DataObject) -> None:
    whole = b"".join(log)
    first, last = parse_header(log[0]).base_offset, parse_header(log[-1]).next_offset
    start = data.draw(st.integers(first, last))
    end = data.draw(st.none() | st.integers(start, last + 3))
    which: dict[str, Any] = {"columns": tuple(columns), "start": start, "end": end}
    with patch.object(decode, "_Content", None):  # all of these are usual: nothing is left to the pure code
        found = rows(whole, **which)
    assert found == pure_rows(whole, **which)


@needs_kernel
@settings(max_examples=EXAMPLES)
@given(batches(), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_that_lie_are_the_same_refusal(log: list[bytes], changes: list[tuple[float, int]]) -> None:
    changed = bytearray(log[0])
    for place, byte in changes:
        at = 61 + int(place * (len(changed) - 61))
        if at < len(changed):
            changed[at] = byte
    changed[CRC_AT:CRC_START] = crc32c(bytes(changed[CRC_START:])).to_bytes(4, "big")
    assert rows(bytes(changed)) == pure_rows(bytes(changed))


def test_a_batch_that_claims_more_records_than_it_has_room_for_gets_no_memory() -> None:
    changed = bytearray(encode_batch([NewRecord(b"coffee")], codec=Codec.LZ4))
    changed[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (3_999_999).to_bytes(4, "big")
    changed[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (4_000_000).to_bytes(4, "big")
    changed[CRC_AT:CRC_START] = crc32c(bytes(changed[CRC_START:])).to_bytes(4, "big")
    with patch.object(kernel, "_Columns", side_effect=AssertionError), pytest.raises(MillpondError, match="4000000"):
        decode.decode_batches(bytes(changed), topic="orders", partition=3, columns=ALL)


CONTENTS = st.none() | st.binary(max_size=300)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), CONTENTS), max_size=2)


@needs_kernel
@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(CONTENTS, CONTENTS, HEADERS), min_size=1, max_size=90), st.integers(0, 10), st.booleans())
def test_rows_are_the_same_records(
    given_rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    skipped: int,
    with_headers: bool,
) -> None:
    keys, values, named = zip(*given_rows, strict=True)
    pairs = [None if each is None else [{"key": name, "value": value} for name, value in each] for each in named]
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(pairs, TYPES["headers"])]
    start = min(skipped, len(keys) - 1)
    key, value, headers = (column[start:] for column in columns)
    given_headers = headers if with_headers else None
    how: dict[str, Any] = {"timestamp": TimestampMs(7), "codec": Codec.NONE}
    with patch.object(encode, "_records", side_effect=AssertionError):
        found = encode.encode_rows(key, value, given_headers, **how)
    with patch.object(encode, "KERNEL", None):
        assert found == encode.encode_rows(key, value, given_headers, **how)


FLAT = pa.struct(
    [
        pa.field("client", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("count", pa.int64()),
        pa.field("small", pa.int8()),
        pa.field("is_late", pa.bool_()),
        pa.field("labels", pa.map_(pa.string(), pa.string())),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
    ]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**19), 10**19)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "client": st.none() | TEXT,
        "value": st.none()
        | st.floats(-1e6, 1e6)
        | st.integers(-(2**55), 2**55)
        | st.decimals(-99, 99, places=3).map(float),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-130, 130),
        "is_late": st.booleans(),
        "labels": st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
        "moment": st.integers(-(10**15), 10**15),
        "unknown": ANYTHING,
    },
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Objects as they should be, with blanks or without, and with a few bytes changed in some."""
    found = draw(OBJECTS if draw(st.integers(0, 4)) else ANYTHING)
    blank = draw(st.sampled_from(["", " ", "\n\t"]))
    text = json.dumps(found, ensure_ascii=draw(st.booleans()), separators=(f"{blank},{blank}", f":{blank}"))
    document = bytearray(f"{blank}{text}{blank}".encode())
    for place, byte in draw(
        st.lists(
            st.tuples(st.floats(0, 1), st.sampled_from(b'{}[]":,.-+eE0159ntf \\\x00\x7f\x80\xc3\xed\xff')), max_size=2
        )
    ):
        at = int(place * len(document))
        if at < len(document):
            document[at] = byte
    return bytes(document)


@needs_kernel
@settings(max_examples=EXAMPLES)
@given(st.lists(st.none() | documents(), max_size=12), st.integers(0, 3))
@example([b'{"client":"a","client":"b"}', b'{"labels":{"a":"1","a":"2"}}', b'{"value":-0}', b'{"value":-0.0}'], 0)
@example(
    [b'{"value":0.1}', b'{"value":123456.789}', b'{"value":9007199254740993}', b'{"value":01}', b'{"value":1.}'], 0
)
@example([b'{"moment":253402300799999}', b'{"moment":253402300800000}', b'{"small":128}', b'{"count":1.0}'], 0)
@example([b'{"client":"x"} ', b'{"client":"x"},', b'{"client":"x"}\x00', b"", b"{}", b"{,}", b'{"client":"x",}'], 0)
@example(
    [b'{"unknown":' + b"[" * 40 + b"]" * 40 + b',"client":"deep"}', b'{"unknown":{"a":[1,{"b":null}]},"client":"x"}'], 0
)
def test_json_is_the_same_columns(values: list[bytes | None], skipped: int) -> None:
    array = pa.array(values, pa.binary())[skipped:]
    reader = JsonValues(FLAT)
    found = reader.read(array)
    with patch.object(kernel, "KERNEL", None):
        expected = reader.read(array)
    for mine, other in zip(found, expected, strict=True):
        mine.validate(full=True)
        assert mine.type == other.type
        assert repr(mine.to_pylist()) == repr(other.to_pylist())


@needs_kernel
def test_usual_json_is_left_to_nobody() -> None:
    values = [b'{"client":"c","value":1.5,"labels":{"a":"b"},"moment":1700000000000,"is_late":true}', None] * 3
    reader = JsonValues(FLAT)
    with patch.object(JsonValues, "_read_each", side_effect=AssertionError):
        typed, malformed, _ = reader.read(pa.array(values, pa.binary()))
    assert typed.to_pylist()[0]["labels"] == [("a", "b")]
    assert typed.null_count == 3
    assert malformed.null_count == 6


def test_batches_that_inflate_to_more_come_in_parts() -> None:
    log = b"".join(encode_batch([NewRecord(bytes(900))] * 10, base_offset=Offset(10 * n)) for n in range(6))
    which: dict[str, Any] = {"topic": "orders", "partition": 3, "columns": ("offset",), "start": 5, "end": 55}
    with patch.object(decode, "PART_BYTES", 20_000):
        parts = list(decode.decode_in_parts(log, **which))
    assert [part.num_rows for part in parts] == [15, 20, 15]
    assert [row["offset"] for part in parts for row in part.to_pylist()] == list(range(5, 55))


@needs_kernel
@settings(max_examples=EXAMPLES)
@given(batches(), st.data())
def test_a_flipped_bit_is_the_same_refusal(log: list[bytes], data: st.DataObject) -> None:
    """In headers too, but for the offset, which no checksum covers; and a batch behind the end is nobody's."""
    number = data.draw(st.integers(0, len(log) - 1))
    damaged = bytearray(log[number])
    damaged[data.draw(st.integers(8, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    whole = b"".join([*log[:number], damaged, *log[number + 1 :]])
    end = data.draw(st.none() | st.integers(0, parse_header(log[-1]).next_offset + 3))
    assert rows(whole, end=end) == pure_rows(whole, end=end)


def test_the_limits_in_its_source_are_those_of_the_log() -> None:
    source = kernel.LIBRARY.with_name("kernel.c").read_text()
    assert f"#define BATCH_BYTES_MAX ((int64_t){limits.BATCH_BYTES_MAX >> 20} << 20)" in source
    assert f"#define RECORDS_MAX {limits.RECORDS_PER_BATCH_MAX}\n" in source
    assert f"#define RECORD_BYTES_MIN {RECORD_BYTES_MIN}\n" in source


def test_a_variable_switches_it_off() -> None:
    program = "from millpond.pipeline import kernel; print(kernel.KERNEL)"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"MILLPOND_PURE": "1"}, capture_output=True, check=True
    )
    assert ran.stdout == b"None\n"


@needs_kernel
def test_the_library_is_not_older_than_its_source() -> None:
    source = kernel.LIBRARY.with_name("kernel.c")
    assert kernel.LIBRARY.stat().st_mtime >= source.stat().st_mtime, "build it anew: make kernel"


@needs_kernel
@pytest.mark.parametrize("size", [6_000, 6_080, 6_144, 6_151, 12_300, 18_500, 100_003])
def test_checksums_of_large_batches_are_right(size: int) -> None:
    batch = bytearray(encode_batch([NewRecord(bytes(number * 7 % 251 for number in range(size)))]))
    with patch.object(decode, "_decode", None):  # nothing is left to the pure code
        found = rows(bytes(batch))
    assert found == pure_rows(bytes(batch))
    for place in range(CRC_START, len(batch), 997):
        batch[place] ^= 1
        assert rows(bytes(batch)) == pure_rows(bytes(batch))
        batch[place] ^= 1
