"""What headers ask of queues: priorities and times to live, also where they make no sense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.delivery.headers import NEITHER, PRIORITY, TTL_MS, Mentioned, is_expired, lane_of, mentioned, ttl_ms
from millpond.core.delivery.states import Lane
from millpond.model.ids import TimestampMs
from millpond.protocol.compression import Codec
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, parse_header

SENT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("value", "lane"),
    [
        *(
            (b"%d" % number, Lane.LOW if number < 4 else Lane.NORMAL if number < 7 else Lane.HIGH)
            for number in range(10)
        ),
        (b"high", Lane.HIGH),
        (b"Low", Lane.LOW),
        (b"NORMAL", Lane.NORMAL),
        (b"10", Lane.NORMAL),
        (b"-1", Lane.NORMAL),
        (b"", Lane.NORMAL),
        (b"urgent", Lane.NORMAL),
        (None, Lane.NORMAL),
    ],
)
def test_priorities_by_name_and_by_number(value: bytes | None, lane: Lane) -> None:
    assert lane_of(((PRIORITY, value),)) is lane


def test_the_last_header_of_a_name_counts() -> None:
    assert lane_of(((PRIORITY, b"high"), ("other", b"x"), (PRIORITY, b"low"))) is Lane.LOW
    assert lane_of(()) is Lane.NORMAL


@pytest.mark.parametrize(
    ("value", "span_ms"),
    [
        (b"0", 0),
        (b"1500", 1500),
        (b"999999999999999", 999_999_999_999_999),
        (b"1000000000000000", None),
        (b"-1", None),
        (b"1.5", None),
        (b" 1", None),
        (b"", None),
        (b"soon", None),
        (None, None),
    ],
)
def test_a_time_to_live_is_a_whole_number_or_nothing(value: bytes | None, span_ms: int | None) -> None:
    assert ttl_ms(((TTL_MS, value),)) == span_ms


@given(st.binary(max_size=20))
def test_no_header_ends_a_broker(value: bytes) -> None:
    assert lane_of(((PRIORITY, value),)) in Lane
    span_ms = ttl_ms(((TTL_MS, value),))
    assert span_ms is None or span_ms >= 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_message_has_outlived_its_time_from_that_millisecond_on(codec: Codec) -> None:
    lives = (b"10", None, b"500", b"never")
    records = [
        NewRecord(b"x", timestamp=TimestampMs(SENT_MS), headers=() if each is None else ((TTL_MS, each),))
        for each in lives
    ]
    batch = encode_batch(records, codec=codec)
    assert mentioned(batch, parse_header(batch)) == Mentioned(priority=False, ttl=True)

    def gone(after_ms: int, *, ttl_ms_max: int = 10**9) -> list[int]:
        now_ms = SENT_MS + after_ms
        return [each.offset for each in decode_batch(batch) if is_expired(each, wall_ms=now_ms, ttl_ms_max=ttl_ms_max)]

    assert (gone(9), gone(10), gone(499), gone(500)) == ([], [0], [0], [0, 2])
    assert gone(100, ttl_ms_max=100) == [0, 2], "no life is longer than the cap"


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("names", [(), (PRIORITY,), (TTL_MS,), (PRIORITY, TTL_MS)])
def test_a_batch_tells_what_it_mentions_without_being_decoded(codec: Codec, names: tuple[str, ...]) -> None:
    batch = encode_batch([NewRecord(b"x" * 100, headers=tuple((name, b"1") for name in names))] * 10, codec=codec)
    found = mentioned(batch, parse_header(batch))
    assert found == Mentioned(priority=PRIORITY in names, ttl=TTL_MS in names)


def test_a_batch_that_nobody_can_read_mentions_nothing() -> None:
    batch = bytearray(encode_batch([NewRecord(b"x", headers=((TTL_MS, b"1"),))], codec=Codec.GZIP))
    batch[61:] = bytes(len(batch) - 61)
    assert mentioned(batch, parse_header(batch)) == NEITHER
