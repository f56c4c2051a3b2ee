"""The first 61 bytes: read, checked and patched. Golden bytes are written out; every single bit is flipped."""

from collections.abc import Callable
from random import Random

import pytest
from crc32c import crc32c

from millpond.model.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    MalformedBatch,
    RequestError,
    UnsupportedCompression,
    UnsupportedMagic,
)
from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from millpond.protocol.records import (
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    Codec,
    NewRecord,
    check_batch,
    check_produced,
    decode_batch,
    encode_batch,
    encode_values,
    iter_batches,
    parse_header,
    stamp,
    stamp_append_time,
)
from millpond.protocol.records.header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL

SMALL = encode_batch(
    [NewRecord(b"hello", b"k1", TimestampMs(1_700_000_000_000), (("h", b"v"),)), NewRecord(b"world")],
    base_offset=Offset(7),
)

GOLDEN = bytes.fromhex(
    "0000000000000102"  # base offset 258
    "00000034"  # 52 bytes follow
    "00000005"  # leader epoch
    "02"  # magic
    "7c3d2e05"  # checksum, of other bytes
    "0059"  # gzip, append time, transaction and delete horizon
    "00000003"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56805"  # max timestamp
    "0000000000000309"  # producer id
    "0007"  # producer epoch
    "0000002a"  # base sequence
    "00000002"  # two records, of four offsets
    "abcdef"  # not looked at
)


def test_every_field_is_read_from_its_place() -> None:
    header = parse_header(GOLDEN)
    assert header == BatchHeader(
        Offset(258),
        52,
        LeaderEpoch(5),
        2,
        0x7C3D2E05,
        0x59,
        3,
        TimestampMs(1_700_000_000_000),
        TimestampMs(1_700_000_000_005),
        ProducerId(777),
        ProducerEpoch(7),
        Sequence(42),
        2,
    )
    assert (header.size, header.last_offset, header.next_offset) == (len(GOLDEN), 261, 262)
    assert header.codec is Codec.GZIP
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.has_delete_horizon
    assert not header.is_control


def test_a_header_is_read_from_any_buffer_at_any_position() -> None:
    for make in (bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))):
        buffer = make(b"before" + SMALL + b"after")
        assert check_batch(buffer, 6) == check_batch(SMALL)


def with_fields(**fields: int) -> bytes:
    """The small batch with some header fields changed and the checksum renewed."""
    changed = bytearray(SMALL)
    HEADER.pack_into(changed, 0, *parse_header(SMALL)._replace(**fields))  # type: ignore[arg-type]
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_less_than_a_header_is_malformed(size: int) -> None:
    with pytest.raises(MalformedBatch, match=f"{size} bytes"):
        parse_header(SMALL[:size])


@pytest.mark.parametrize("position", [len(SMALL), len(SMALL) + 1, len(SMALL) - 60])
def test_a_position_without_room_for_a_header_is_malformed(position: int) -> None:
    with pytest.raises((MalformedBatch, UnsupportedMagic)):
        parse_header(SMALL, position)


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (-(2**31), MalformedBatch),
        (-1, MalformedBatch),
        (0, MalformedBatch),
        (48, MalformedBatch),
        (len(SMALL) - LENGTH_END + 1, MalformedBatch),
        (BATCH_BYTES_MAX - LENGTH_END, MalformedBatch),
        (BATCH_BYTES_MAX - LENGTH_END + 1, BatchTooLarge),
        (2**31 - 1, BatchTooLarge),
    ],
)
def test_a_length_that_lies_is_refused_and_named(length: int, error: type[RequestError]) -> None:
    batch = bytearray(SMALL)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(error, match=f"is {length};") as caught:
        parse_header(batch)
    assert type(caught.value) is error


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_another_magic_is_unsupported_even_in_a_buffer_shorter_than_our_header(magic: int) -> None:
    batch = bytearray(SMALL)
    batch[16] = magic & 0xFF
    for buffer in (batch, batch[:30]):
        with pytest.raises(UnsupportedMagic, match=f"is {magic};"):
            parse_header(buffer)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"attributes": 5}, UnsupportedCompression),
        ({"attributes": 7}, UnsupportedCompression),
        ({"last_offset_delta": -1}, InvalidRecord),
        ({"record_count": -1}, InvalidRecord),
        ({"record_count": 3}, InvalidRecord),
        ({"record_count": 100, "last_offset_delta": 99}, InvalidRecord),
        ({"record_count": RECORDS_PER_BATCH_MAX + 1, "last_offset_delta": 2**31 - 1}, BatchTooLarge),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1, "attributes": 4}, BatchTooLarge),
    ],
)
def test_an_impossible_header_with_a_right_checksum_is_refused(
    fields: dict[str, int], error: type[RequestError]
) -> None:
    with pytest.raises(error):
        check_batch(with_fields(**fields))


def test_bits_of_the_attributes_that_mean_nothing_yet_are_ignored() -> None:
    assert check_batch(with_fields(attributes=-(2**15))).codec is Codec.NONE


def test_the_codec_of_an_unchecked_header_is_refused_when_asked_for() -> None:
    with pytest.raises(UnsupportedCompression, match="codec is 6"):
        _ = parse_header(with_fields(attributes=6)).codec


def test_an_ordinary_batch_may_be_produced() -> None:
    check_produced(check_batch(SMALL))
    check_produced(check_batch(with_fields(producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)))


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": CONTROL},
        {"attributes": DELETE_HORIZON},
        {"attributes": TRANSACTIONAL},
        {"record_count": 1},
        {"record_count": 0},
        {"last_offset_delta": 5},
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
    ],
)
def test_what_only_the_broker_may_write_is_readable_but_not_taken_from_a_producer(fields: dict[str, int]) -> None:
    header = check_batch(with_fields(**fields))
    with pytest.raises(InvalidRecord):
        check_produced(header)


def flipped(batch: bytes, bit: int) -> bytes:
    changed = bytearray(batch)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_that_matters_is_caught() -> None:
    uncovered = {*range(8), *range(12, 16)}  # base offset and leader epoch, stamped without reading the batch
    for bit in range(8 * len(SMALL)):
        if bit // 8 in uncovered:
            assert decode_batch(flipped(SMALL, bit))[0].value == b"hello"
        else:
            with pytest.raises((MalformedBatch, BatchTooLarge, UnsupportedMagic)):
                check_batch(flipped(SMALL, bit))


def test_flipped_bits_of_a_large_batch_are_caught() -> None:
    large = encode_values([b"%0100d" % number for number in range(5000)], timestamp=TimestampMs(1))
    random = Random(20240229)
    for _ in range(500):
        with pytest.raises(CorruptBatch):
            check_batch(flipped(large, random.randrange(8 * 17, 8 * len(large))))


def test_two_flipped_bits_are_caught() -> None:
    random = Random(77)
    for _ in range(2000):
        first, second = random.sample(range(8 * 21, 8 * len(SMALL)), 2)
        with pytest.raises(CorruptBatch):
            check_batch(flipped(flipped(SMALL, first), second))


def test_batches_back_to_back_are_found_at_their_positions() -> None:
    batches = [encode_values([b"x" * size], timestamp=TimestampMs(size)) for size in (0, 1, 100, 3000)]
    found = list(iter_batches(memoryview(b"".join(batches))))
    assert [header.base_timestamp for _, header in found] == [0, 1, 100, 3000]
    assert [position for position, _ in found] == [sum(map(len, batches[:index])) for index in range(4)]
    assert list(iter_batches(b"")) == []


def test_batches_before_a_torn_one_are_still_found() -> None:
    batches = iter_batches(SMALL + SMALL[:-1])
    assert next(batches) == (0, check_batch(SMALL))
    with pytest.raises(MalformedBatch, match="cut short"):
        next(batches)


@pytest.mark.parametrize("make", [bytearray, lambda data: memoryview(bytearray(data))])
def test_a_stamp_moves_a_batch_without_touching_its_checksum(make: Callable[[bytes], bytearray | memoryview]) -> None:
    buffer = make(b"12345" + SMALL)
    stamp(buffer, base_offset=Offset(2**62), leader_epoch=LeaderEpoch(2**31 - 1), position=5)
    header = check_batch(buffer, 5)
    assert (header.base_offset, header.leader_epoch) == (2**62, 2**31 - 1)
    assert header.crc == parse_header(SMALL).crc
    assert bytes(buffer[:5]) == b"12345"
    assert bytes(buffer[5 + 16 :]) == SMALL[16:]


def test_append_time_becomes_the_time_of_every_record() -> None:
    buffer = bytearray(b"12345" + SMALL)
    stamp_append_time(buffer, timestamp=TimestampMs(99), position=5)
    header = check_batch(buffer, 5)
    assert header.attributes == LOG_APPEND_TIME
    assert header.base_timestamp == parse_header(SMALL).base_timestamp
    assert [record.timestamp for record in decode_batch(buffer, 5)] == [99, 99]
    assert len(buffer) == 5 + len(SMALL)
    assert HEADER.size == HEADER_BYTES
