"""Batches decoded as columns are what the plain decoder finds in them, whatever they hold."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch, MillpondError
from millpond.model.ids import Offset, TimestampMs
from millpond.pipeline.columns import TYPES, arrow_schema
from millpond.pipeline.decode import decode_batches
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches, parse_header
from millpond.protocol.records.header import CRC_AT, CRC_START
from tests.pipeline.logs import batches

ALL = tuple(TYPES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown(name: str) -> str:
    """As Spark can hold it: where a byte is not UTF-8, something that stands for it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def plain_rows(data: bytes, *, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    rows = []
    for place, header in iter_batches(data):
        for record in [] if header.is_control else decode_batch(data, place):
            if record.offset >= start and (end is None or record.offset < end):
                row = {
                    "key": record.key,
                    "value": record.value,
                    "topic": "orders",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
                    "timestampType": int(header.is_log_append_time),
                    "headers": [{"key": shown(name), "value": value} for name, value in record.headers] or None,
                }
                rows.append(row)
    return rows


@given(batches(), st.data())
def test_columns_hold_what_the_plain_decoder_finds(log: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(log)
    first, last = parse_header(log[0]).base_offset, parse_header(log[-1]).next_offset
    start = data.draw(st.integers(first, last))
    end = data.draw(st.none() | st.integers(start, last + 3))
    found = decode_batches(whole, topic="orders", partition=3, columns=ALL, start=start, end=end)
    found.validate(full=True)
    assert found.to_pylist() == plain_rows(whole, start=start, end=end)


@given(batches(), st.lists(st.sampled_from(ALL), min_size=1, unique=True))
def test_only_the_columns_asked_for_come_in_the_order_asked_for(log: list[bytes], asked: list[str]) -> None:
    whole = b"".join(log)
    found = decode_batches(whole, topic="orders", partition=3, columns=tuple(asked))
    assert found.schema == arrow_schema(tuple(asked))
    assert found.to_pylist() == [{name: row[name] for name in asked} for row in plain_rows(whole)]


@given(batches(), st.data())
def test_bytes_that_lie_are_refused_as_the_plain_decoder_refuses_them(log: list[bytes], data: st.DataObject) -> None:
    """A byte of the records is changed, and the checksum made right again, as only somebody hostile would."""
    changed = bytearray(log[0])
    place = data.draw(st.integers(61, max(61, len(changed) - 1)))
    if place < len(changed):
        changed[place] = data.draw(st.integers(0, 255))
    changed[CRC_AT:CRC_START] = crc32c(bytes(changed[CRC_START:])).to_bytes(4, "big")
    try:
        expected: Any = plain_rows(bytes(changed))
    except MillpondError as error:
        expected = (type(error), str(error))
    except (OverflowError, ValueError):  # a time that Python has no date for
        return
    try:
        got: Any = decode_batches(bytes(changed), topic="orders", partition=3, columns=ALL).to_pylist()
    except MillpondError as error:
        got = (type(error), str(error))
    assert got == expected


def test_a_flipped_bit_is_found() -> None:
    damaged = bytearray(encode_batch([NewRecord(b"coffee")], base_offset=Offset(0)))
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_batches(bytes(damaged), topic="orders", partition=3, columns=ALL)


def test_a_header_name_that_is_not_utf8_is_shown_as_well_as_can_be() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    batch = encode_batch([NewRecord(b"x", None, TimestampMs(0), ((name, b"1"),))])
    (row,) = decode_batches(batch, topic="orders", partition=3, columns=("headers",)).to_pylist()
    assert row == {"headers": [{"key": "caf\N{REPLACEMENT CHARACTER}", "value": b"1"}]}


def test_records_of_several_sizes_whose_sum_divides_evenly_are_no_table() -> None:
    """Where the second would begin, were all of one size, is the middle of a value that is no length at all."""
    values = [b"", *[b"\xff" * 40] * 6, b"\xff" * 80]
    batch = encode_batch([NewRecord(value) for value in values])
    found = decode_batches(batch, topic="orders", partition=3, columns=("value",))
    assert found.column(0).to_pylist() == values


def test_nothing_is_an_empty_table() -> None:
    assert decode_batches(b"", topic="orders", partition=3, columns=ALL).num_rows == 0
