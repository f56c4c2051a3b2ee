"""Headers and frames: which version carries which, and that they come back."""

import io
import struct
from importlib import import_module

import pytest
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_frame,
    request_header_version,
    response_encoder,
    response_header_version,
)
from millpond.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millpond.protocol.messages.registry import APIS
from tests.protocol.messages.oracle import all_messages, kio_class, name_of


@pytest.mark.parametrize(
    ("declared", "version"), [pair for pair in all_messages() if pair[0].api_key >= 0], ids=name_of
)
def test_every_version_has_the_header_kafka_gives_it(declared: type, version: int) -> None:
    kio = kio_class(declared, version)
    ours = request_header_version if declared.__name__.endswith("Request") else response_header_version
    assert ours(kio.__api_key__, version) == kio.__header_schema__.__version__


@pytest.mark.parametrize("client_id", [None, "", "client-ß"])
@pytest.mark.parametrize("header_version", [1, 2])
def test_a_request_header_is_read_as_kio_writes_it(header_version: int, client_id: str | None) -> None:
    kio = import_module(f"kio.schema.request_header.v{header_version}.header").RequestHeader
    out = io.BytesIO()
    header = kio(request_api_key=i16(3), request_api_version=i16(12), correlation_id=i32(-7), client_id=client_id)
    entity_writer(kio)(out, header)
    frame = memoryview(out.getvalue() + b"rest")
    parsed, position = parse_request_header(frame, header_version=header_version)
    assert parsed == RequestHeader(3, 12, -7, client_id)
    assert bytes(frame[position:]) == b"rest"


def test_a_client_that_writes_its_name_in_another_code_is_let_in_as_by_kafka() -> None:
    frame = struct.pack("!hhih", 3, 1, 7, 4) + "café".encode("latin-1")
    assert parse_request_header(memoryview(frame)) == (
        RequestHeader(3, 1, 7, "caf\N{REPLACEMENT CHARACTER}"),
        len(frame),
    )


def test_the_oldest_request_header_has_no_client_id() -> None:
    frame = memoryview(bytes.fromhex("0007000000000005") + b"rest")
    assert parse_request_header(frame, header_version=0) == (RequestHeader(7, 0, 5, None), 8)


def test_an_unknown_key_or_version_still_has_a_readable_header() -> None:
    """A broker has to know whom it refuses; ApiVersions it even answers."""
    too_new = memoryview(bytes.fromhex("0012 0063 00000001 0001 61 00 ffff"))
    assert parse_request_header(too_new) == (RequestHeader(18, 99, 1, "a"), 12)
    unknown = memoryview(bytes.fromhex("7fff 0000 00000001 ffff"))
    assert parse_request_header(unknown) == (RequestHeader(32767, 0, 1, None), 10)


def test_unknown_tagged_fields_of_a_header_are_passed_over() -> None:
    frame = memoryview(bytes.fromhex("000c 0004 00000001 ffff 02 00 01 aa 8101 02 bbcc") + b"rest")
    header, position = parse_request_header(frame)
    assert header.api_key == 12
    assert bytes(frame[position:]) == b"rest"


def test_a_response_has_its_header_and_message() -> None:
    (response,) = response_encoder(HeartbeatResponse, 4)(HeartbeatResponse(error_code=27), 9)
    assert response == bytes.fromhex("00000009 00 00000000 001b 00")
    correlation_id, position = parse_response_header(memoryview(response), header_version=1)
    assert correlation_id == 9
    assert decode(HeartbeatResponse, memoryview(response), 4, position)[0].error_code == 27


def test_the_answer_to_api_versions_never_has_the_longer_header() -> None:
    answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=0, max_version=13)])
    (response,) = response_encoder(ApiVersionsResponse, 3)(answer, 1)
    assert response == bytes.fromhex("00000001 0000 02 0000 0000 000d 00 00000000 00")
    assert response_header_version(ApiVersionsRequest.api_key, 3) == 0


def test_a_request_frame_is_read_back() -> None:
    (frame,) = request_frame(HeartbeatRequest(group_id="g", member_id="m"), 4, correlation_id=3, client_id=None)
    header, position = parse_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(12, 4, 3, None)
    request, end = decode(APIS[12].request_class, memoryview(frame)[4:], 4, position)
    assert request == HeartbeatRequest(group_id="g", member_id="m")
    assert end == len(frame) - 4


def test_a_response_header_cut_short_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="cut short"):
        parse_response_header(memoryview(b"\0\0\0"), header_version=0)
    with pytest.raises(MalformedMessage, match="cut short"):
        parse_response_header(memoryview(b"\0\0\0\1"), header_version=1)
