"""Bytes of `__consumer_offsets`: held to Kafka's own, and read back."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.groups.offsets_format import decode, encode
from millpond.core.groups.records import (
    ClassicGroupRecord,
    ClassicMemberRecord,
    ConsumerGroupForgotten,
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    GroupForgotten,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    ShareGroupForgotten,
    ShareGroupRecord,
    ShareMemberForgotten,
    ShareMemberRecord,
    TopicIdPartition,
)
from millpond.model.errors import InvalidRecord
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition

AT = TopicPartition("orders", 7)
OFFSET = OffsetCommitted("g", AT, Offset(42), LeaderEpoch(5), "hi", TimestampMs(1_000))
MEMBER = ClassicMemberRecord("m-1", None, "cl", "/10.0.0.1", 30_000, 10_000, b"sub", b"ass")
GROUP = ClassicGroupRecord("g", "consumer", 3, "range", "m-1", (MEMBER,), TimestampMs(2_000))

NAMES = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
PLACES = st.builds(TopicPartition, NAMES, INT32)
STAMPS = st.builds(TimestampMs, INT64)
PARTITIONS = st.frozensets(
    st.builds(TopicIdPartition, st.binary(min_size=16, max_size=16), st.integers(0, 99)), max_size=4
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(OffsetCommitted, NAMES, PLACES, INT64.map(Offset), INT32.map(LeaderEpoch), NAMES, STAMPS),
    st.builds(OffsetCommitted, NAMES, PLACES, INT64.map(Offset), st.just(LeaderEpoch(-1)), NAMES, STAMPS, STAMPS),
    st.builds(OffsetForgotten, NAMES, PLACES),
    st.builds(
        ClassicGroupRecord,
        NAMES,
        NAMES,
        INT32,
        st.none() | NAMES,
        st.none() | NAMES,
        st.lists(
            st.builds(
                ClassicMemberRecord,
                *(NAMES, st.none() | NAMES, NAMES, NAMES, INT32, INT32),
                st.binary(max_size=40),
                st.binary(max_size=40),
            ),
            max_size=3,
        ).map(tuple),
        STAMPS,
    ),
    st.builds(GroupForgotten, NAMES),
    st.builds(ConsumerGroupRecord, NAMES, INT32, STAMPS),
    st.builds(ConsumerGroupForgotten, NAMES),
    st.builds(
        ConsumerMemberRecord,
        *(NAMES, NAMES, st.none() | NAMES, st.none() | NAMES, NAMES, NAMES, INT32),
        st.frozensets(NAMES, max_size=3),
        *(st.none() | NAMES, st.none() | NAMES, INT32, INT32, PARTITIONS, PARTITIONS, PARTITIONS),
    ),
    st.builds(ConsumerMemberForgotten, NAMES, NAMES),
    st.builds(ShareGroupRecord, NAMES, INT32, STAMPS),
    st.builds(ShareGroupForgotten, NAMES),
    st.builds(
        ShareMemberRecord,
        *(NAMES, NAMES, st.none() | NAMES, NAMES, NAMES),
        st.frozensets(NAMES, max_size=3),
        *(INT32, INT32, PARTITIONS, PARTITIONS),
    ),
    st.builds(ShareMemberForgotten, NAMES, NAMES),
)


def test_a_committed_offset_is_written_as_kafka_writes_it() -> None:
    key, value = encode(OFFSET)
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x06orders" + b"\0\0\0\x07"
    assert value == b"\0\x03" + pack(">qi", 42, 5) + b"\0\x02hi" + pack(">q", 1_000)


def test_an_offset_with_its_own_expiry_is_written_in_version_1() -> None:
    _, value = encode(
        OffsetCommitted("g", AT, Offset(42), LeaderEpoch(5), "hi", TimestampMs(1_000), TimestampMs(9_000))
    )
    assert value == b"\0\x01" + pack(">q", 42) + b"\0\x02hi" + pack(">qq", 1_000, 9_000)


def test_a_classic_group_is_written_as_kafka_writes_it() -> None:
    key, value = encode(GROUP)
    assert key == b"\0\x02" + b"\0\x01g"
    member = b"\0\x03m-1" + b"\xff\xff" + b"\0\x02cl" + b"\0\x09/10.0.0.1" + pack(">ii", 30_000, 10_000)
    member += b"\0\0\0\x03sub" + b"\0\0\0\x03ass"
    head = b"\0\x03" + b"\0\x08consumer" + pack(">i", 3) + b"\0\x05range" + b"\0\x03m-1" + pack(">qi", 2_000, 1)
    assert value == head + member


def test_a_share_group_and_its_members_are_written_as_the_format_says() -> None:
    key, value = encode(ShareGroupRecord("g", 3, TimestampMs(2_000)))
    assert (key, value) == (pack(">h", 19794) + b"\0\x01g", b'\0\0{"epoch":3,"changed_at":2000}')
    read = frozenset({TopicIdPartition(bytes(range(16)), 7)})
    key, value = encode(ShareMemberRecord("g", "m", None, "cl", "h", frozenset({"orders"}), 3, 2, read, frozenset()))
    assert key == pack(">h", 19795) + b"\0\x01g\0\x01m"
    assert value == (
        b'\0\0{"rack_id":null,"client_id":"cl","client_host":"h","topics":["orders"],"epoch":3,"previous_epoch":2,'
        b'"assigned":{"000102030405060708090a0b0c0d0e0f":[7]},"target":{}}'
    )


@given(record=RECORDS)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert decode(*encode(record)) == record


def test_older_values_are_read_too() -> None:
    key, _ = encode(OFFSET)
    old = decode(key, b"\0\0" + pack(">q", 42) + b"\0\x02hi" + pack(">q", 1_000))
    assert old == OffsetCommitted("g", AT, Offset(42), LeaderEpoch(-1), "hi", TimestampMs(1_000))
    group_key, _ = encode(GROUP)
    member = b"\0\x03m-1" + b"\0\x02cl" + b"\0\x01h" + pack(">i", 10_000) + b"\0\0\0\0" * 2
    group = decode(
        group_key, b"\0\0" + b"\0\x08consumer" + pack(">i", 3) + b"\0\x05range" + b"\xff\xff" + pack(">i", 1) + member
    )
    assert isinstance(group, ClassicGroupRecord)
    assert group.members[0].rebalance_timeout_ms == 10_000
    assert group.changed_at == -1


def test_a_key_of_somebody_else_is_passed_over() -> None:
    assert decode(b"\0\x03" + b"\0\x01g", b"anything") is None


@given(record=RECORDS, data=st.data())
def test_bytes_that_are_no_record_are_refused(record: Record, data: st.DataObject) -> None:
    key, value = encode(record)
    if value is None:
        return
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(InvalidRecord):
        decode(key, value[:cut])
    with pytest.raises(InvalidRecord):
        decode(key, b"\x7f\xff" + value[2:])


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(key: bytes, value: bytes | None) -> None:
    with suppress(InvalidRecord):
        decode(key, value)
