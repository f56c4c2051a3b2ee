"""Batches with a right checksum and wrong records: only errors of the tree may come of them."""

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import BatchTooLarge, InvalidRecord, MalformedBatch, RequestError
from millpond.model.ids import TimestampMs
from millpond.model.limits import HEADERS_PER_RECORD_MAX, MIB
from millpond.protocol.compression import Codec, compress
from millpond.protocol.records import NewRecord, check_batch, decode_batch, encode_batch, iter_batches

MINUS_ONE = b"\x01"
PLAIN = bytes.fromhex("0e 00 00 00 01 02 76 00")  # length 7, attributes, deltas, no key, "v", no headers


def varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = b""
    while rest > 127:
        out += bytes((rest & 127 | 128,))
        rest >>= 7
    return out + bytes((rest,))


def sized(record: bytes) -> bytes:
    return varint(len(record)) + record


def batch_of(
    content: bytes, *, count: int = 1, attributes: int = 0, last_delta: int | None = None, base_timestamp: int = 0
) -> bytes:
    """A batch whose header and checksum are right, whatever its records are."""
    last = max(count - 1, 0) if last_delta is None else last_delta
    covered = struct.pack("!hiqqqhii", attributes, last, base_timestamp, 0, -1, -1, -1, count) + content
    return struct.pack("!qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def test_the_plain_record_is_fine() -> None:
    assert decode_batch(batch_of(PLAIN))[0].value == b"v"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(PLAIN + b"\x00", id="a byte after the last record"),
        pytest.param(PLAIN + PLAIN, id="more records than claimed"),
        pytest.param(PLAIN[:-1], id="the last byte missing"),
        pytest.param(varint(-1) + PLAIN[1:], id="a negative record length"),
        pytest.param(varint(8) + PLAIN[1:], id="a record length beyond the batch"),
        pytest.param(varint(2**31 - 1) + PLAIN[1:], id="the largest record length"),
        pytest.param(varint(6) + PLAIN[1:] + b"\x00", id="a record length shorter than its fields"),
        pytest.param(sized(PLAIN[1:] + b"\x00"), id="a record length longer than its fields"),
        pytest.param(b"\x80" * 7, id="a varint without an end"),
        pytest.param(b"\x8e\x80\x80\x80\x80\x00" + PLAIN[1:], id="a varint of six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x7f" + PLAIN[1:], id="a varint of 35 bits"),
        pytest.param(sized(b"\x00" + b"\x80" * 10 + b"\x00" + PLAIN[3:]), id="a varlong of eleven bytes"),
        pytest.param(sized(b"\x00" + b"\xff" * 9 + b"\x7f" + PLAIN[3:]), id="a varlong of 70 bits"),
        pytest.param(sized(PLAIN[1:4] + varint(-2) + PLAIN[5:]), id="a negative key length"),
        pytest.param(sized(PLAIN[1:4] + varint(100) + PLAIN[5:]), id="a key length beyond the record"),
        pytest.param(sized(PLAIN[1:4] + varint(2**31 - 1) + PLAIN[5:]), id="the largest key length"),
        pytest.param(sized(PLAIN[1:5] + varint(-2) + b"\x00"), id="a negative value length"),
        pytest.param(sized(PLAIN[1:5] + varint(-(2**31)) + b"\x00"), id="the smallest value length"),
        pytest.param(sized(PLAIN[1:5] + varint(3) + b"v\x00"), id="a value length beyond the record"),
        pytest.param(sized(PLAIN[1:5] + varint(2**31 - 1) + b"v\x00"), id="the largest value length"),
        pytest.param(sized(PLAIN[1:7] + varint(-1)), id="a negative header count"),
        pytest.param(sized(PLAIN[1:7] + varint(1)), id="a header count without headers"),
        pytest.param(sized(PLAIN[1:7] + varint(2**31 - 1)), id="the largest header count"),
        pytest.param(sized(PLAIN[1:7] + varint(1) + varint(5) + b"h\x00"), id="a header name beyond the record"),
        pytest.param(sized(PLAIN[1:7] + varint(1) + varint(1) + b"h" + varint(9)), id="a header value beyond it"),
        pytest.param(sized(PLAIN[1:7] + varint(1) + varint(1) + b"h" + varint(-2)), id="a negative header value"),
    ],
)
def test_records_that_do_not_add_up_are_malformed(content: bytes) -> None:
    check_batch(batch_of(content))
    for codec in Codec:
        with pytest.raises(MalformedBatch):
            decode_batch(batch_of(compress(codec, content), attributes=codec))


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch_of(sized(PLAIN[1:7] + varint(1) + MINUS_ONE + MINUS_ONE)), id="a header without a name"),
        pytest.param(
            batch_of(
                sized(PLAIN[1:7] + varint(HEADERS_PER_RECORD_MAX + 1) + b"\x00\x00" * (HEADERS_PER_RECORD_MAX + 1))
            ),
            id="too many headers",
        ),
        pytest.param(batch_of(sized(b"\x00\x00" + varint(-1) + PLAIN[4:])), id="an offset before the batch"),
        pytest.param(batch_of(sized(b"\x00\x00" + varint(1) + PLAIN[4:])), id="an offset after the batch"),
        pytest.param(batch_of(PLAIN + PLAIN, count=2, last_delta=9), id="an offset twice"),
        pytest.param(
            batch_of(sized(b"\x00\x00" + varint(2) + PLAIN[4:]) + PLAIN, count=2, last_delta=9), id="falling offsets"
        ),
        pytest.param(batch_of(sized(b"\x00" + varint(2**62) + PLAIN[3:])), id="a time out of range"),
        pytest.param(batch_of(sized(b"\x00" + varint(-(2**63)) + PLAIN[3:])), id="the earliest delta"),
        pytest.param(batch_of(PLAIN, base_timestamp=2**63 - 1), id="a base time out of range"),
        pytest.param(batch_of(compress(Codec.ZSTD, PLAIN), attributes=4, count=10), id="more records than bytes"),
    ],
)
def test_records_that_say_something_impossible_are_invalid(batch: bytes) -> None:
    check_batch(batch)
    with pytest.raises(InvalidRecord):
        decode_batch(batch)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_inflates_beyond_the_limit_is_too_large(codec: Codec) -> None:
    batch = encode_batch([NewRecord(bytes(MIB))], codec=codec)
    with pytest.raises(BatchTooLarge):
        decode_batch(batch, inflated_bytes_max=MIB)
    assert len(decode_batch(batch, inflated_bytes_max=MIB + 100)) == 1


def test_overlong_varints_are_read_as_other_clients_read_them() -> None:
    assert decode_batch(batch_of(b"\x8e\x80\x80\x80\x00" + PLAIN[1:]))[0].value == b"v"


def only_our_errors(batch: bytes) -> None:
    with contextlib.suppress(RequestError):
        for position, _ in iter_batches(batch):
            decode_batch(batch, position, inflated_bytes_max=MIB)


@given(st.binary(max_size=300))
def test_any_bytes_at_all_give_only_our_errors(data: bytes) -> None:
    only_our_errors(data)


@given(content=st.binary(max_size=200), count=st.integers(0, 30), attributes=st.integers(0, 2**15 - 1))
@settings(max_examples=500)
def test_any_records_under_a_right_checksum_give_only_our_errors(content: bytes, count: int, attributes: int) -> None:
    only_our_errors(batch_of(content, count=count, attributes=attributes))


ORDINARY = [
    NewRecord(b"value %d" % number * 9, b"key", TimestampMs(1_700_000_000_000 + number), (("name", b"x"), ("né", None)))
    for number in range(70)
]
edits = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "insert"]), st.integers(0, 10_000), st.binary(min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("inside", [True, False], ids=["before compression", "after compression"])
@given(edits=edits)
@settings(max_examples=200)
def test_any_change_under_a_right_checksum_gives_only_our_errors(
    codec: Codec, inside: bool, edits: list[tuple[str, int, bytes]]
) -> None:
    content = bytearray(encode_batch(ORDINARY)[61:] if inside else encode_batch(ORDINARY, codec=codec)[61:])
    for action, at, data in edits:
        at %= len(content) + 1
        if action == "insert":
            content[at:at] = data
        else:
            content[at : at + len(data)] = data if action == "set" else b""
    packed = compress(codec, bytes(content)) if inside else bytes(content)
    only_our_errors(batch_of(packed, count=len(ORDINARY), attributes=codec, base_timestamp=1_700_000_000_000))
