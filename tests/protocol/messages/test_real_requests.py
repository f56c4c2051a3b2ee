"""Requests as clients sent them: captured from librdkafka 2.16, kafka-python 3.0 and aiokafka 0.14 over a socket."""

import pytest

from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.headers import RequestHeader, parse_request_header, request_frame
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.registry import APIS
from millpond.protocol.records.header import check_batch

CAPTURED = {
    "librdkafka ApiVersions v3": (
        "001200030000000100046d696c6c0017636f6e666c75656e742d6b61666b612d707974686f6e16322e31362e312d72646b61666b612d322e"
        "31362e3000"
    ),
    "librdkafka Metadata v13": "0003000d0000000200046d696c6c000200000000000000000000000000000000027400010000",
    "librdkafka Produce v10": (
        "0000000a0000000200046d696c6c0000ffff0000753002027402000000004700000000000000000000003a00000000022e84dd6a00000000"
        "0000000001a1e32368e4000001a1e32368e4ffffffffffffffffffffffffffff0000000110000000026b027600000000"
    ),
    "librdkafka FindCoordinator v2": "000a00020000000300046d696c6c00016700",
    "librdkafka Fetch v16": (
        "000100100000000200046d696c6c00000001f400000001032000000100000000ffffffff0230313233343536373839616263646566020000"
        "0000000000000000000000000000ffffffffffffffffffffffff001000000000010100"
    ),
    "kafka-python ApiVersions v4": ("001200040000000100046d696c6c000d6b61666b612d707974686f6e07332e302e313200"),
    "kafka-python InitProducerId v4": "001600040000000200046d696c6c000000000000ffffffffffffffffffff00",
    "kafka-python Produce v9": (
        "000000090000000300046d696c6c0000ffff000075300202740200000000460000000000000000000000390000000002a344edb100000000"
        "0000000001a1e323728a000001a1e323728a0000000000000007000000000000000000010e00000001027600000000"
    ),
    "kafka-python ListOffsets v10": (
        "0002000a0000000200046d696c6c00ffffffff000202740200000000fffffffffffffffffffffffe00000000000000"
    ),
    "kafka-python Fetch v12": (
        "0001000c0000000300046d696c6c00ffffffff000001f40000000103200000000000000000000000020274020000000000000000000000"
        "0000000000ffffffffffffffffffffffff001000000000010100"
    ),
    "aiokafka ApiVersions v0": "001200000000000100046d696c6c",
    "aiokafka Metadata v5": "000300050000000200046d696c6c0000000001",
    "aiokafka Produce v7": (
        "000000070000000200046d696c6cffff000100009c4000000001000174000000010000000000000045000000000000000000000039ffffff"
        "ff02568aa68e000000000000000001a1e3237655000001a1e3237655ffffffffffffffffffff00000000000000010e00000001027600"
    ),
}


def opened(name: str) -> tuple[RequestHeader, object, memoryview]:
    frame = memoryview(bytes.fromhex(CAPTURED[name]))
    header, position = parse_request_header(frame)
    message, end = decode(APIS[header.api_key].request_class, frame, header.api_version, position)
    assert end == len(frame)
    return header, message, frame


@pytest.mark.parametrize("name", CAPTURED)
def test_a_real_request_is_read_whole_and_written_as_it_came(name: str) -> None:
    header, message, frame = opened(name)
    assert name.split(" ")[1:] == [APIS[header.api_key].name, f"v{header.api_version}"]
    again = request_frame(
        message,  # type: ignore[arg-type]
        header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    assert b"".join(again) == len(frame).to_bytes(4, "big") + frame


def test_what_real_requests_say_is_understood() -> None:
    assert opened("librdkafka Metadata v13")[1] == MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    assert opened("kafka-python InitProducerId v4")[1] == InitProducerIdRequest()
    assert opened("kafka-python ListOffsets v10")[1] == ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])],
    )
    partition = FetchPartition(partition=0, current_leader_epoch=0, partition_max_bytes=1 << 20)
    assert opened("librdkafka Fetch v16")[1] == FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=1,
        topics=[FetchTopic(topic_id=b"0123456789abcdef", partitions=[partition])],
    )


@pytest.mark.parametrize("name", [name for name in CAPTURED if "Produce v" in name])
def test_a_real_producers_batch_is_a_view_of_its_frame(name: str) -> None:
    _, message, frame = opened(name)
    assert isinstance(message, ProduceRequest)
    batch = message.topic_data[0].partition_data[0].records
    assert isinstance(batch, memoryview)
    assert batch.obj is frame.obj
    assert check_batch(batch).record_count == 1
