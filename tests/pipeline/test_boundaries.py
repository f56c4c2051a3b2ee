"""Where records begin and end, guessed for many batches at once, is what a walk from one to the next finds."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.ids import TimestampMs
from millpond.pipeline import boundaries
from millpond.pipeline.boundaries import records
from millpond.pipeline.varints import Bytes, Unreadable
from millpond.protocol.records import HEADER_BYTES, NewRecord, encode_batch

Found = list[tuple[list[int], list[int]]]

LOOKALIKES = st.lists(st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12, 20, 60, 0x80, 0x81, 0xFF]), max_size=40).map(bytes)
"""Bytes that look like a 0, a length and another 0 more often than not."""
VALUES = st.none() | LOOKALIKES | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | LOOKALIKES), max_size=2).map(tuple)
TIMES = st.integers(0, 2**42).map(TimestampMs)
RECORDS = st.lists(st.builds(NewRecord, VALUES, VALUES, TIMES, st.just(()) | HEADERS), min_size=1, max_size=40)


class Batches:
    """Batches as they lie in a log, back to back."""

    def __init__(self, each: list[list[NewRecord]]) -> None:
        whole = [encode_batch(one) for one in each]
        self.ends = np.cumsum([len(one) for one in whole]).tolist()
        self.starts = [end - len(one) + HEADER_BYTES for one, end in zip(whole, self.ends, strict=True)]
        self.counts = list(map(len, each))
        self.data = bytearray(b"".join(whole))

    def found(self, *, is_walked: bool = False) -> Found | None:
        """None where it cannot be read."""
        data: Bytes = np.frombuffer(self.data, np.uint8)
        never = [None] * len(self.counts)
        try:
            if is_walked:
                with patch.object(boundaries, "_guessed", lambda *_: never):
                    return [each.tolist() for each in records(data, self.starts, self.ends, self.counts)]
            return [each.tolist() for each in records(data, self.starts, self.ends, self.counts)]
        except Unreadable:
            return None


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_guesses_are_what_a_walk_finds(each: list[list[NewRecord]]) -> None:
    log = Batches(each)
    found = log.found()
    assert found is not None
    assert found == log.found(is_walked=True)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_bytes_that_lie_are_read_or_refused_as_a_walk_does(each: list[list[NewRecord]], data: st.DataObject) -> None:
    log = Batches(each)
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(each) - 1))
        place = data.draw(st.integers(log.starts[number], log.ends[number] - 1))
        log.data[place] = data.draw(st.integers(0, 255))
    assert log.found() == log.found(is_walked=True)


def test_records_within_a_value_are_no_records() -> None:
    """A whole batch's records, in a value, with a 0 before them: they lead from one to the next, and to no end."""
    inner = encode_batch([NewRecord(b"coffee %d" % number) for number in range(20)])[HEADER_BYTES:]
    log = Batches([[NewRecord(b"tea"), NewRecord(b"\0" + inner), NewRecord(b"milk")]])
    found = log.found()
    assert found is not None
    assert found == log.found(is_walked=True)
    assert [len(each) for each in found] == [3, 3]


@pytest.mark.parametrize(
    "value", [b'{"number": %d}', b"%d" * 60, b"\0\x06\0 tea and more %d", b"\xff%d" * 5000, b"%d" * 300_000]
)
def test_nobody_walks_where_all_is_as_usual(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    each = [NewRecord(value % ((number,) * value.count(b"%d")), b"key-%d" % number) for number in range(3, 12)]
    log = Batches([each, each[:4]])
    walked = log.found(is_walked=True)
    monkeypatch.setattr(boundaries, "_walked", None)
    assert log.found() == walked


def test_a_count_that_the_bytes_have_no_room_for_is_refused_before_memory_is_set_aside_for_it() -> None:
    log = Batches([[NewRecord(b"coffee")]])
    log.counts = [2_000_000_000]
    assert log.found() is None
