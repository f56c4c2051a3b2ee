"""Frames out of bytes, whatever pieces they come in."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.net.frames import FIRST_STEP_BYTES, GROWTH, BadFrameLength, FrameReader
from tests.net.peers import framed

SCRATCH_BYTES = 64
FRAME_BYTES_MAX = 1 << 20


def reader(scratch_bytes: int = SCRATCH_BYTES) -> FrameReader:
    return FrameReader(bytearray(scratch_bytes), frame_bytes_max=FRAME_BYTES_MAX)


def feed(frames: FrameReader, data: bytes, *, frames_per_turn: int = 1_000) -> list[memoryview]:
    """As a transport does: as much as there is room for, then what is whole, up to a turn's worth."""
    found: list[memoryview] = []
    while data:
        room = frames.room()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        frames.arrived(size)
        data = data[size:]
        found += take(frames, frames_per_turn)
    return found


def take(frames: FrameReader, frames_max: int) -> list[memoryview]:
    found: list[memoryview] = []
    while len(found) < frames_max and (frame := frames.next_frame()) is not None:
        found.append(frame)
    frames.settle()
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in itertools.pairwise(marks)]


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=12), st.lists(st.integers(0, 10_000)), st.integers(0, 3))
def test_frames_come_out_as_they_went_in_however_the_bytes_arrive(
    bodies: list[bytes], places: list[int], frames_per_turn: int
) -> None:
    frames, found = reader(), list[memoryview]()
    for piece in cut(framed(*bodies), places):
        found += feed(frames, piece, frames_per_turn=frames_per_turn)
    found += take(frames, 1_000)
    assert [bytes(frame) for frame in found] == bodies
    assert frames.held_bytes == 0
    assert not frames.mid_frame


def test_every_single_cut_gives_the_same_frames() -> None:
    bodies = [b"a", b"bc" * 40, b"d" * 60, b"e" * 64, b"f"]
    data = framed(*bodies)
    for place in range(len(data) + 1):
        frames = reader()
        found = feed(frames, data[:place]) + feed(frames, data[place:])
        assert [bytes(frame) for frame in found] == bodies


def test_a_frame_is_writable_and_nobody_elses() -> None:
    frames = reader()
    one, two = feed(frames, framed(b"one", b"two"))
    one[:] = b"ONE"
    (three,) = feed(frames, framed(b"three" * 30))
    three[:5] = b"THREE"
    feed(frames, framed(b"x" * 200))
    assert (bytes(one), bytes(two), bytes(three[:10])) == (b"ONE", b"two", b"THREEthree")


@pytest.mark.parametrize("length", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_an_impossible_length_takes_no_memory(length: int) -> None:
    frames = reader()
    room = frames.room()
    room[:4] = struct.pack(">i", length)
    frames.arrived(4)
    with pytest.raises(BadFrameLength):
        frames.next_frame()
    assert frames.held_bytes == 0


def test_a_frame_takes_memory_as_it_arrives() -> None:
    frames = reader()
    sent = struct.pack(">i", FRAME_BYTES_MAX)
    feed(frames, sent + b"x" * 10)
    assert frames.held_bytes == 10
    held = []
    for total in range(1_010, FRAME_BYTES_MAX, 1_000):
        feed(frames, b"x" * 1_000)
        assert frames.held_bytes <= max(FIRST_STEP_BYTES, GROWTH * total)
        held.append(frames.held_bytes)
    assert len(set(held)) > 2
    assert held[-1] == FRAME_BYTES_MAX


def test_a_length_that_is_not_whole_is_a_frame_begun() -> None:
    frames = reader()
    feed(frames, b"\0\0")
    assert frames.mid_frame
    assert [bytes(frame) for frame in feed(frames, b"\0\1x")] == [b"x"]
    assert not frames.mid_frame


def test_bytes_that_are_not_looked_at_survive_the_scratch_being_used_by_others() -> None:
    scratch = bytearray(SCRATCH_BYTES)
    mine = FrameReader(scratch, frame_bytes_max=100)
    assert [bytes(frame) for frame in feed(mine, framed(b"one", b"two", b"three"), frames_per_turn=1)] == [b"one"]
    scratch[:] = b"!" * SCRATCH_BYTES
    assert mine.holds_more
    assert [bytes(frame) for frame in take(mine, 10)] == [b"two", b"three"]
    assert mine.held_bytes == 0


def test_what_was_forgotten_is_no_more() -> None:
    frames = reader()
    feed(frames, framed(b"x" * 100)[:50])
    frames.forget()
    assert frames.held_bytes == 0
    assert [bytes(frame) for frame in feed(frames, framed(b"y"))] == [b"y"]
