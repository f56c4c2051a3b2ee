"""Batches there and back: every field, every codec, and what compaction leaves of a batch."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import BatchTooLarge, InvalidRecord
from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import BATCH_BYTES_MAX, HEADERS_PER_RECORD_MAX, RECORDS_PER_BATCH_MAX
from millpond.protocol.records import (
    HEADER_BYTES,
    Codec,
    NewRecord,
    Record,
    check_batch,
    check_produced,
    decode_batch,
    empty_batch,
    encode_batch,
    encode_survivors,
    encode_values,
    kernel,
    stamp_append_time,
)

names = st.text(max_size=12) | st.binary(max_size=6).map(lambda name: name.decode("utf-8", "surrogateescape"))
new_records = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=100),
    timestamp=(st.integers(-1, 2**43) | st.integers(-(2**61), 2**61 - 1)).map(TimestampMs),
    headers=st.lists(st.tuples(names, st.none() | st.binary(max_size=80)), max_size=4).map(tuple),
)
batches_of_records = st.lists(new_records, min_size=1, max_size=80)


def placed(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(Offset(base_offset + index), timestamp, key, value, headers)
        for index, (value, key, timestamp, headers) in enumerate(records)
    ]


@given(records=batches_of_records, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_went(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(records, codec=codec, base_offset=Offset(base_offset))
    assert decode_batch(b"before" + batch + b"after", 6) == placed(records, base_offset)
    header = check_batch(batch)
    check_produced(header)
    assert header.codec is codec
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.record_count, header.last_offset_delta) == (len(records), len(records) - 1)


@given(records=batches_of_records, offset_delta=st.integers(0, 20_000), added=st.lists(names, max_size=3))
def test_a_record_taken_apart_and_joined_has_another_place_and_more_headers(
    records: list[NewRecord], offset_delta: int, added: list[str]
) -> None:
    batch = encode_batch(records)
    content = batch[HEADER_BYTES:]
    more = tuple((name, b"added") for name in added)
    for record, (start, end) in zip(
        placed(records), pairwise(kernel.record_starts(content, len(records))), strict=True
    ):
        delta, body, count, headers = kernel.split_record(content[start:end])
        assert records[0].timestamp + delta == record.timestamp
        joined = kernel.join_record(offset_delta, body, count + len(more), headers + kernel.encode_header_list(more))
        again = kernel.decode_one(joined, 0, base_offset=Offset(0), base_timestamp=TimestampMs(7), append_time=None)
        assert again == Record(Offset(offset_delta), TimestampMs(7), record.key, record.value, record.headers + more)


@given(values=st.lists(st.binary(max_size=200), min_size=1, max_size=200))
def test_the_fast_way_writes_the_same_bytes_as_the_general_one(values: list[bytes]) -> None:
    time = TimestampMs(1_700_000_000_000)
    assert encode_values(values, timestamp=time) == encode_batch([NewRecord(v, timestamp=time) for v in values])


@pytest.mark.parametrize("size", [0, 53, 54, 55, 62, 63, 64, 65, 8180, 8191, 8192, 8193, 2**20 + 1])
def test_sizes_around_each_width_of_a_varint_come_back(size: int) -> None:
    records = [NewRecord(b"v" * size, b"k" * size, TimestampMs(size), (("h" * size, b"w" * size),)), NewRecord(None)]
    assert decode_batch(encode_batch(records)) == placed(records)
    assert [record.value for record in decode_batch(encode_values([b"v" * size], timestamp=TimestampMs(0)))] == [
        b"v" * size
    ]


def test_all_that_a_caller_says_is_in_the_header() -> None:
    batch = encode_batch(
        [NewRecord(b"commit", b"\x00\x00\x00\x01", TimestampMs(5))],
        base_offset=Offset(10),
        leader_epoch=LeaderEpoch(3),
        producer_id=ProducerId(2**40),
        producer_epoch=ProducerEpoch(2**15 - 1),
        base_sequence=Sequence(2**31 - 1),
        transactional=True,
        control=True,
    )
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (10, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 2**15 - 1, 2**31 - 1)
    assert header.is_transactional
    assert header.is_control
    assert decode_batch(batch) == [Record(Offset(10), TimestampMs(5), b"\x00\x00\x00\x01", b"commit")]


def test_a_header_name_that_is_not_utf8_comes_back_bit_for_bit() -> None:
    name = b"\xff\xfeok".decode("utf-8", "surrogateescape")
    batch = encode_batch([NewRecord(b"", headers=((name, None),))])
    assert b"\xff\xfeok" in batch
    ((found, _),) = decode_batch(batch)[0].headers
    assert found.encode("utf-8", "surrogateescape") == b"\xff\xfeok"


@given(
    records=batches_of_records,
    kept=st.sets(st.integers(0, 79)),
    codec=st.sampled_from(Codec),
    new_codec=st.none() | st.sampled_from(Codec),
    delete_horizon=st.none() | st.integers(0, 2**43).map(TimestampMs),
    append_time=st.none() | st.integers(0, 2**43).map(TimestampMs),
)
def test_survivors_keep_their_offsets_times_and_producer(
    records: list[NewRecord],
    kept: set[int],
    codec: Codec,
    new_codec: Codec | None,
    delete_horizon: TimestampMs | None,
    append_time: TimestampMs | None,
) -> None:
    batch = bytearray(
        encode_batch(
            records,
            base_offset=Offset(1000),
            leader_epoch=LeaderEpoch(4),
            codec=codec,
            producer_id=ProducerId(5),
            producer_epoch=ProducerEpoch(6),
            base_sequence=Sequence(7),
            transactional=True,
        )
    )
    if append_time is not None:
        stamp_append_time(batch, timestamp=append_time)
    before = check_batch(batch)
    survivors = [record for record in decode_batch(batch) if record.offset - 1000 in kept]

    compacted = encode_survivors(survivors, of=before, codec=new_codec, delete_horizon=delete_horizon)
    after = check_batch(compacted)
    assert decode_batch(compacted) == survivors
    assert after.record_count == len(survivors)
    assert (after.base_offset, after.last_offset, after.leader_epoch) == (1000, before.last_offset, 4)
    assert after[9:12] == before[9:12] == (5, 6, 7)
    assert after.is_transactional
    assert after.is_log_append_time is before.is_log_append_time
    assert after.has_delete_horizon is (delete_horizon is not None)
    if delete_horizon is not None:
        assert after.base_timestamp == delete_horizon
    if append_time is not None:
        assert after.max_timestamp == append_time
    elif survivors:
        assert after.max_timestamp == max(record.timestamp for record in survivors)
    again = encode_survivors(survivors, of=after)
    assert check_batch(again).has_delete_horizon is after.has_delete_horizon
    assert decode_batch(again) == survivors
    assert again == encode_survivors(survivors, of=check_batch(again))


def test_an_empty_batch_still_covers_its_offsets() -> None:
    records = [NewRecord(b"x", timestamp=TimestampMs(time)) for time in (5, 9, 7)]
    before = check_batch(encode_batch(records, base_offset=Offset(40), codec=Codec.GZIP, producer_id=ProducerId(3)))
    batch = empty_batch(before)
    after = check_batch(batch)
    assert len(batch) == 61
    assert decode_batch(batch) == []
    assert (after.base_offset, after.next_offset, after.record_count) == (40, 43, 0)
    assert (after.producer_id, after.max_timestamp, after.codec) == (3, 9, Codec.NONE)


def test_survivors_of_another_batch_are_our_own_mistake() -> None:
    header = check_batch(encode_values([b"a", b"b"], timestamp=TimestampMs(0)))
    first, second = (Record(Offset(offset), TimestampMs(0), None, b"") for offset in (0, 1))
    for records in ([second, first], [first, first], [first._replace(offset=Offset(2))]):
        with pytest.raises(AssertionError):
            encode_survivors(records, of=header)


def test_what_could_not_be_read_back_is_not_written() -> None:
    far = TimestampMs(2**62)
    with pytest.raises(InvalidRecord, match="0 records"):
        encode_batch([])
    with pytest.raises(InvalidRecord, match="0 records"):
        encode_values([], timestamp=TimestampMs(0))
    with pytest.raises(InvalidRecord, match="timestamps"):
        encode_values([b""], timestamp=far)
    with pytest.raises(InvalidRecord, match="timestamps"):
        encode_batch([NewRecord(b"", timestamp=TimestampMs(-1)), NewRecord(b"", timestamp=far)])
    with pytest.raises(InvalidRecord, match="does not fit"):
        encode_batch([NewRecord(b"")], producer_epoch=ProducerEpoch(2**15))
    with pytest.raises(InvalidRecord, match="headers"):
        encode_batch([NewRecord(b"", headers=(("h", None),) * (HEADERS_PER_RECORD_MAX + 1))])
    with pytest.raises(InvalidRecord, match="header name"):
        encode_batch([NewRecord(b"", headers=(("\ud800", None),))])
    with pytest.raises(BatchTooLarge, match=str(RECORDS_PER_BATCH_MAX)):
        encode_values([b""] * (RECORDS_PER_BATCH_MAX + 1), timestamp=TimestampMs(0))
    with pytest.raises(BatchTooLarge, match="bytes"):
        encode_values([bytes(BATCH_BYTES_MAX)], timestamp=TimestampMs(0))


def test_as_many_headers_as_allowed_come_back() -> None:
    headers = (("", None),) * HEADERS_PER_RECORD_MAX
    assert decode_batch(encode_batch([NewRecord(None, headers=headers)]))[0].headers == headers
