"""What the codec promises beyond the bytes: views instead of copies, tagged fields, defaults, a compile per version."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millpond.protocol.messages.decoders import read_uvarint
from millpond.protocol.messages.encoders import VIEW_BYTES_MIN, uvarint
from millpond.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from millpond.protocol.messages.headers import response_encoder
from millpond.protocol.messages.heartbeat import HeartbeatRequest
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def fetched(*records: bytes | memoryview | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=part) for index, part in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_large_records_go_out_as_the_very_buffers_that_came_in(version: int) -> None:
    first, second = memoryview(bytes(VIEW_BYTES_MIN)), bytes(100_000)
    parts = encode(fetched(first, b"small", second, None), version)
    assert [part is first for part in parts].count(True) == 1
    assert [part is second for part in parts].count(True) == 1
    assert len(parts) == 5, "head, first, between, second, tail"


def test_a_response_with_large_records_copies_none_of_them() -> None:
    large = memoryview(bytes(100_000))
    parts = response_encoder(FetchResponse, 12)(fetched(large), 1)
    assert parts[1] is large
    assert len(parts) == 3, "header and head, records, tail"


def test_small_records_are_joined_into_one_buffer() -> None:
    assert len(encode(fetched(b"small", bytes(VIEW_BYTES_MIN - 1)), 12)) == 1


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_produced_records_are_a_view_of_the_frame(version: int) -> None:
    batches = b"\xa5" * 10_000
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batches)])
    frame = bytearray(b"".join(encode(ProduceRequest(topic_data=[topic]), version)))
    request, _ = decode(ProduceRequest, memoryview(frame), version)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    at = frame.index(batches)
    frame[at : at + 2] = b"xy"  # one memory: what is stamped into the frame is seen through the view
    assert bytes(records[:3]) == b"xy\xa5"


def test_unknown_tagged_fields_are_passed_over_at_every_depth() -> None:
    heartbeat = b"\x02g" + b"\0\0\0\5" + b"\x02m" + b"\0"
    unknown = b"\x02" + b"\x07\x03abc" + b"\xff\x01\x00"
    request, end = decode(HeartbeatRequest, memoryview(heartbeat + unknown + b"next"), 4)
    assert request == HeartbeatRequest(group_id="g", generation_id=5, member_id="m")
    assert end == len(heartbeat + unknown)
    plain = b"".join(encode(ApiVersionsResponse(), 3))
    tagged = plain[:-1] + b"\x02" + uvarint(1) + b"\x08" + (77).to_bytes(8, "big") + b"\x09\x01z"
    assert decode(ApiVersionsResponse, memoryview(tagged), 3)[0] == ApiVersionsResponse(finalized_features_epoch=77)


def test_more_tagged_fields_than_one_byte_counts_are_passed_over() -> None:
    tags = uvarint(300) + b"".join(uvarint(1000 + number) + b"\x01?" for number in range(300))
    request, end = decode(ApiVersionsRequest, memoryview(b"\x02a\x02b" + tags), 3)
    assert request == ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert end == 4 + len(tags)


def test_a_known_tagged_field_must_have_the_size_its_tag_says() -> None:
    plain = b"".join(encode(ApiVersionsResponse(), 3))
    with pytest.raises(MalformedMessage, match="another size"):
        decode(ApiVersionsResponse, memoryview(plain[:-1] + b"\x01\x01\x09" + bytes(9)), 3)


def test_a_tagged_field_that_is_default_is_not_written() -> None:
    plain = encode(fetched(None), 12)
    partition = PartitionData(partition_index=0, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))
    topic = FetchableTopicResponse(topic="t", partitions=[partition])
    with_leader = encode(FetchResponse(responses=[topic]), 12)
    assert len(with_leader[0]) - len(plain[0]) == 2 + 4 + 4 + 1
    assert decode(FetchResponse, memoryview(plain[0]), 12)[0].responses[0].partitions[0].current_leader is None


def test_lists_of_two_messages_are_not_one_list() -> None:
    content = memoryview(b"".join(encode(FetchResponse(), 4)))
    first, second = (decode(FetchResponse, content, 4)[0] for _ in range(2))
    first.node_endpoints.append(None)  # type: ignore[arg-type]
    assert second.node_endpoints == FetchResponse().node_endpoints == []


def test_a_version_that_is_not_there_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="HeartbeatRequest has no version 5"):
        encode(HeartbeatRequest(), 5)
    with pytest.raises(AssertionError, match="no version 2"):
        decode(ProduceRequest, memoryview(b""), 2)


def test_a_traceback_shows_the_field_that_was_none() -> None:
    with pytest.raises(AttributeError) as caught:
        encode(HeartbeatRequest(group_id="g", member_id=None), 4)  # type: ignore[arg-type]
    assert "m.member_id.encode()" in "".join(traceback.format_exception(caught.value))


def test_an_id_of_another_length_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        encode(FetchResponse(responses=[FetchableTopicResponse(topic_id=b"short")]), 13)


@given(st.integers(0, 2**35 - 1))
def test_a_varint_comes_back(value: int) -> None:
    content = uvarint(value)
    assert read_uvarint(memoryview(content + b"\xff"), 0) == (value, len(content))


@pytest.mark.parametrize("count", [0, 1, 125, 126, 127, 128, 20_000])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_arrays_of_any_length_come_back(count: int, version: int) -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartitions(topic="t", partitions=list(range(count)))], user_data=bytes(count)
    )
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


def test_a_subscription_newer_than_we_know_is_read_as_the_newest_we_know() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4, rack_id="r")
    content = encode_subscription(subscription, 3)
    assert content[:2] == b"\0\3"
    assert decode_subscription(b"\0\x63" + content[2:] + b"what comes after") == subscription


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\3"])
def test_a_subscription_of_bad_bytes_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(content)
