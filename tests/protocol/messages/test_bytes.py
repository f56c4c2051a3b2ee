"""Byte for byte what Kafka's own definitions give: every class, every version, both ways."""

from dataclasses import fields, replace
from typing import Any

import pytest

from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import response_encoder, response_header_version
from millpond.protocol.messages.registry import APIS
from millpond.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from tests.protocol.messages.oracle import Maker, all_messages, kio_bytes, kio_class, kio_read, name_of, to_kio

MESSAGES_PER_VERSION = 8
every_message = pytest.mark.parametrize(("declared", "version"), all_messages(), ids=name_of)


def joined(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


def answer_with(part: PartitionData) -> ShareFetchResponse:
    return ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[part])])


def joined_in_answer(part: PartitionData) -> bytes:
    return joined(answer_with(part), 2)


def kio_answer(part: PartitionData) -> Any:  # noqa: ANN401
    return to_kio(answer_with(part), kio_class(ShareFetchResponse, 2), 2)


@every_message
def test_kio_writes_the_same_bytes_and_each_reads_the_other(declared: type[Message], version: int) -> None:
    kio = kio_class(declared, version)
    for seed in range(MESSAGES_PER_VERSION):
        message = Maker(seed).message(declared, version)
        theirs = to_kio(message, kio, version)
        content = joined(message, version)
        assert content == kio_bytes(theirs), f"seed {seed}"
        assert decode(declared, memoryview(content), version) == (message, len(content)), f"seed {seed}"
        assert kio_read(kio, content) == (theirs, len(content)), f"seed {seed}"


@every_message
def test_a_message_of_nothing_but_defaults_comes_back(declared: type[Message], version: int) -> None:
    message: Any = declared()
    content = b"surrounded" + joined(message, version) + b"by others"
    decoded, end = decode(declared, memoryview(content), version, 10)
    assert content[end:] == b"by others"
    for field in fields(message):
        before, after = getattr(message, field.name), getattr(decoded, field.name)
        assert before == after, field.name


@pytest.mark.parametrize(
    ("declared", "version"),
    [pair for pair in all_messages() if pair[0].api_key in APIS and pair[0].__name__.endswith("Response")],
    ids=name_of,
)
def test_a_response_is_its_header_and_then_the_message(declared: type[Message], version: int) -> None:
    respond = response_encoder(declared, version)
    header = b"\x7f\0\0\1" + bytes(response_header_version(declared.api_key, version))
    for seed in range(MESSAGES_PER_VERSION):
        message = Maker(seed).message(declared, version)
        assert b"".join(respond(message, 0x7F000001)) == header + joined(message, version), f"seed {seed}"


def test_only_where_messages_do_not_come_by_offset_an_answer_has_a_field_that_is_not_kafkas() -> None:
    """Clients pass over it: tests/interop/test_shares.py."""
    plain = PartitionData(partition_index=1, acquired_records=[AcquiredRecords(first_offset=1), AcquiredRecords()])
    assert joined_in_answer(plain) == kio_bytes(kio_answer(plain))
    ordered = replace(plain, delivery_order=[1, 0])
    content = joined_in_answer(ordered)
    assert len(content) > len(joined_in_answer(plain))
    (decoded,) = decode(ShareFetchResponse, memoryview(content), 2)[0].responses[0].partitions
    assert decoded.delivery_order == [1, 0]


@pytest.mark.slow
@every_message
def test_more_messages_give_the_same_bytes_as_kio(declared: type[Message], version: int) -> None:
    kio = kio_class(declared, version)
    for seed in range(1000, 1040):
        message = Maker(seed, length_max=6).message(declared, version)
        assert joined(message, version) == kio_bytes(to_kio(message, kio, version)), f"seed {seed}"
