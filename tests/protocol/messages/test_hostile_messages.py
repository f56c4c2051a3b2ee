"""Whatever bytes arrive, the codec gives a message or MalformedMessage, and allocates by what it got, not by claims."""

import random
import tracemalloc
from typing import Any

import pytest

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.compiler import decode, encode
from millpond.protocol.messages.decoders import ELEMENTS_MAX
from millpond.protocol.messages.encoders import uvarint
from millpond.protocol.messages.fetch import FetchRequest, FetchResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_request_header
from millpond.protocol.messages.heartbeat import HeartbeatRequest
from millpond.protocol.messages.metadata import MetadataRequest
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.protocol.messages.oracle import Maker, all_messages, name_of

every_message = pytest.mark.parametrize(("declared", "version"), all_messages(), ids=name_of)
TRIES = 40
HUGE = (0x7FFFFFFF, 0x7FFF, -2, 0x00FFFFFF)


def encoded(declared: type[Message], version: int, seed: int) -> bytes:
    return b"".join(encode(Maker(seed, length_max=3).message(declared, version), version))


def taken(declared: type[Message], content: bytes, version: int) -> Any:  # noqa: ANN401
    """The message, or None where the bytes were refused. Anything else that is raised fails the test."""
    try:
        message, end = decode(declared, memoryview(content), version)
    except MalformedMessage:
        return None
    assert end <= len(content)
    return message


@every_message
def test_a_message_cut_short_at_any_byte_is_refused(declared: type[Message], version: int) -> None:
    content = encoded(declared, version, seed=version)
    step = max(1, len(content) // 400)
    for size in range(0, len(content), step):
        assert taken(declared, content[:size], version) is None, f"{size} of {len(content)} bytes were taken"


def mutated(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(0, len(changed) + 1)
        match rng.randrange(0, 5):
            case 0:
                changed[at : at + 1] = bytes((rng.randrange(0, 256),))
            case 1:
                changed[at : at + 4] = rng.choice(HUGE).to_bytes(4, "big", signed=True)
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(1, 6))
            case 3:
                del changed[at : at + rng.randrange(1, 6)]
            case _:
                changed[at : at + 5] = b"\xff\xff\xff\xff\x0f"
    return bytes(changed)


def mutate_and_decode(declared: type[Message], version: int, *, seeds: range, tries: int) -> None:
    for seed in seeds:
        content = encoded(declared, version, seed)[:4000]
        rng = random.Random(seed)
        for number in range(tries):
            try:
                message = taken(declared, mutated(content, rng), version)
                if message is not None and number % 8 == 0:
                    encode(message, version)
            except Exception as error:
                error.add_note(f"seed {seed}, try {number}")
                raise


@every_message
def test_mutated_messages_and_noise_are_read_or_refused(declared: type[Message], version: int) -> None:
    mutate_and_decode(declared, version, seeds=range(2), tries=TRIES)
    rng = random.Random(version)
    for _ in range(20):
        taken(declared, rng.randbytes(rng.randrange(0, 80)), version)


@pytest.mark.slow
@every_message
def test_many_mutated_messages_are_read_or_refused(declared: type[Message], version: int) -> None:
    mutate_and_decode(declared, version, seeds=range(100, 110), tries=300)


@pytest.mark.parametrize(
    ("declared", "version", "content"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f"),
        (FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff" + bytes(64)),
        (FetchResponse, 12, bytes(10) + b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (SaslAuthenticateRequest, 0, b"\x7f\xff\xff\xff" + bytes(64)),
        (SaslAuthenticateRequest, 2, b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (ProduceRequest, 9, b"\0" + bytes(6) + b"\xff\xff\xff\xff\x0f" + bytes(64)),
    ],
)
def test_a_length_that_lies_is_refused_before_anything_is_allocated(
    declared: type[Message], version: int, content: bytes
) -> None:
    taken(declared, content, version)  # compiled by now
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="claims"):
            decode(declared, memoryview(content), version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_more_elements_than_any_message_needs_are_refused() -> None:
    """Two bytes a topic: the frame is small, the objects would not be."""
    count = ELEMENTS_MAX + 1
    content = uvarint(count + 1) + b"\x01\x00" * count + b"\0\0\0"
    assert taken(MetadataRequest, content, 9) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\x00\x00\x01\x02m\x00\x00", "group_id is null"),
        (b"\x40g\x00", "group_id claims 63 bytes"),
        (b"\x02\xff\x00\x00\x00\x01\x02m\x00\x00", "not UTF-8"),
        (b"\x02g\x00\x00\x00\x01\x02m\x00\x01\x00\x09ab", "tag 0 of HeartbeatRequest claims 9 bytes"),
        (b"\x02g\x00\x00", "cut short"),
        (b"\x80\x80\x80\x80\x80\x01", "more than 5 bytes"),
    ],
)
def test_the_refusal_says_what_is_wrong(content: bytes, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words) as caught:
        decode(HeartbeatRequest, memoryview(content), 4)
    assert caught.value.kafka_code == 42
    assert not caught.value.retriable


def test_mutated_request_headers_are_read_or_refused() -> None:
    rng = random.Random(11)
    header = bytes.fromhex("0003 000c 00000007 0006") + b"client" + b"\x01\x09\x02ab"
    for _ in range(20_000):
        frame = mutated(header, rng)
        try:
            _, end = parse_request_header(memoryview(frame))
        except MalformedMessage:
            continue
        assert end <= len(frame)
    for size in range(len(header)):
        with pytest.raises(MalformedMessage):
            parse_request_header(memoryview(header)[:size])
