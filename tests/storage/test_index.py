"""The sparse index: refused unless it belongs to its log, and right against a plain list."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from millpond.protocol.records import NewRecord, encode_batch
from millpond.storage.index import SparseIndex
from millpond.storage.scan import scan_segment
from millpond.testing.disk import SimDisk
from tests.storage.builders import new_disk

BASE = Offset(1000)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


class Batch(NamedTuple):
    """One line of the plain list."""

    offset: Offset
    position: int
    timestamp: TimestampMs


class Written(NamedTuple):
    """A segment's bytes, and the plain list of what is in them."""

    content: memoryview
    batches: list[Batch]


def written(shape: list[tuple[int, int]]) -> Written:
    """A segment of batches, each given by its number of records and its time."""
    content, batches, offset = b"", [], BASE
    for count, timestamp in shape:
        batches.append(Batch(offset, len(content), TimestampMs(timestamp)))
        records = [NewRecord(b"v", timestamp=TimestampMs(timestamp))] * count
        content += encode_batch(records, base_offset=offset)
        offset = Offset(offset + count)
    return Written(memoryview(content), batches)


def scanned(content: memoryview, interval: int) -> SparseIndex:
    index = SparseIndex(BASE)
    assert scan_segment(content, index, epochs=None, index_interval=interval) is None
    return index


def saved(disk: SimDisk, index: SparseIndex, path: str = "i") -> bytes:
    index.save(disk, path)
    file = disk.open(path)
    content = file.read(0, file.size())
    file.close()
    return content


def put(disk: SimDisk, content: bytes | bytearray) -> None:
    file = disk.open("i", create=True)
    file.truncate(0)
    file.write(0, [content])
    file.close()


def load(disk: SimDisk, *, base: int = BASE, log_bytes: int) -> SparseIndex | None:
    return SparseIndex.load(disk, "i", base_offset=Offset(base), log_bytes=log_bytes)


SAMPLE = written([(3, 50), (1, 20), (2, 90), (5, 10)])
shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 30)), max_size=12)
intervals = st.sampled_from([0, 1, 100, 150, 300, 10_000])


# On disk


def test_an_index_is_laid_out_as_its_module_says(disk: SimDisk) -> None:
    index = scanned(SAMPLE.content, 0)
    content = saved(disk, index)
    assert content[:8] == b"MPIX\x01\0\0\0"
    numbers = memoryview(content)[8:40].cast("q").tolist()
    assert numbers == [BASE, BASE + 11, len(SAMPLE.content), 90]
    assert int.from_bytes(content[40:44], "little") == 4
    places = memoryview(content)[48 : 48 + 32].cast("Q").tolist()
    assert places == [(batch.offset - BASE) << 32 | batch.position for batch in SAMPLE.batches]
    assert memoryview(content)[48 + 32 :].cast("q").tolist() == [50, 50, 90, 90]


def test_a_loaded_index_is_the_one_that_was_saved(disk: SimDisk) -> None:
    content = saved(disk, scanned(SAMPLE.content, 0))
    index = load(disk, log_bytes=len(SAMPLE.content))
    assert index is not None
    assert (index.next_offset, index.log_bytes, index.max_timestamp) == (BASE + 11, len(SAMPLE.content), 90)
    assert saved(disk, index, "again") == content


def test_an_index_of_nothing_can_be_saved_and_loaded(disk: SimDisk) -> None:
    saved(disk, SparseIndex(BASE))
    index = load(disk, log_bytes=0)
    assert index is not None
    assert (len(index), index.next_offset, index.max_timestamp) == (0, BASE, NO_TIMESTAMP)
    assert index.position_at_or_before(BASE) == (BASE, 0)


def test_a_missing_index_is_none(disk: SimDisk) -> None:
    assert load(disk, log_bytes=0) is None


def test_an_index_with_any_one_bit_flipped_is_refused(disk: SimDisk) -> None:
    content = saved(disk, scanned(SAMPLE.content, 0))
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        put(disk, flipped)
        assert load(disk, log_bytes=len(SAMPLE.content)) is None, f"byte {bit // 8}, bit {bit % 8}"


def test_an_index_cut_anywhere_or_with_a_tail_is_refused(disk: SimDisk) -> None:
    content = saved(disk, scanned(SAMPLE.content, 0))
    for damaged in (*(content[:size] for size in range(len(content))), content + b"\0", content + bytes(16)):
        put(disk, damaged)
        assert load(disk, log_bytes=len(SAMPLE.content)) is None, len(damaged)


def test_an_index_of_a_log_of_another_size_or_name_is_refused(disk: SimDisk) -> None:
    saved(disk, scanned(SAMPLE.content, 0))
    size = len(SAMPLE.content)
    assert load(disk, log_bytes=size) is not None
    assert load(disk, log_bytes=size + 1) is None
    assert load(disk, log_bytes=size - 1) is None
    assert load(disk, base=BASE + 1, log_bytes=size) is None


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_refused_without_an_exception(content: bytes) -> None:
    disk = new_disk()
    put(disk, content)
    assert load(disk, log_bytes=0) is None


# Looking up


@given(shapes, intervals)
def test_an_offset_is_found_at_the_last_known_place_not_behind_it(shape: list[tuple[int, int]], interval: int) -> None:
    content, batches = written(shape)
    index = scanned(content, interval)
    known = known_places(content, batches, interval)
    for offset in range(BASE, index.next_offset + 2):
        before = [batch for batch in known if batch.offset <= offset]
        expected = (before[-1].offset, before[-1].position) if before else (BASE, 0)
        assert index.position_at_or_before(Offset(offset)) == expected


@given(shapes, intervals)
def test_a_time_is_found_behind_the_last_known_place_up_to_which_all_is_older(
    shape: list[tuple[int, int]], interval: int
) -> None:
    content, batches = written(shape)
    index = scanned(content, interval)
    known = known_places(content, batches, interval)
    for timestamp in range(-2, 33):
        older = [
            place
            for place in known
            if max(batch.timestamp for batch in batches if batch.position <= place.position) < timestamp
        ]
        expected = (older[-1].offset, older[-1].position) if older else (BASE, 0)
        assert index.position_before_time(TimestampMs(timestamp)) == expected


def known_places(content: memoryview, batches: list[Batch], interval: int) -> list[Batch]:
    """The first batch, and each that begins at least an interval behind the one known before it."""
    known: list[Batch] = []
    for batch in batches:
        if not known or batch.position >= known[-1].position + interval:
            known.append(batch)
    return known


# Growing and going back


@given(shapes, intervals)
def test_an_index_that_was_loaded_can_grow_on(shape: list[tuple[int, int]], interval: int) -> None:
    disk = new_disk()
    content, _ = written(shape)
    saved(disk, scanned(content, interval))
    index = load(disk, log_bytes=len(content))
    assert index is not None
    index.make_writable()
    index.max_timestamp = TimestampMs(99)
    index.add(index.next_offset, index.log_bytes)
    assert index.last_position == len(content)
    assert index.position_at_or_before(Offset(2**31)) == (index.next_offset, len(content))


@given(shapes, intervals, st.data())
@example([(1, 10), (1, 50), (1, 20)], 100, None)
def test_rewinding_and_scanning_on_equals_an_index_built_from_scratch(
    shape: list[tuple[int, int]], interval: int, data: st.DataObject | None
) -> None:
    content, batches = written(shape)
    ends = [*(batch.position for batch in batches), len(content)]
    end = data.draw(st.sampled_from(ends)) if data else len(content)
    index = scanned(content, interval)
    index.rewind(end)
    assert index.log_bytes <= end
    rest = content[index.log_bytes : end]
    scan_segment(rest, index, origin=index.log_bytes, epochs=None, index_interval=interval)
    disk = new_disk()
    assert saved(disk, index, "rewound") == saved(disk, scanned(content[:end], interval), "anew")
