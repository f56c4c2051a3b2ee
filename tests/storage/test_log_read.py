"""Reading by offset and by time: whole batches, against plain models; views outlive what becomes of the log."""

import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import OffsetOutOfRange
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import Codec, iter_batches, stamp_append_time
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    EPOCH,
    NOW,
    append,
    batch_of,
    facts_of,
    new_disk,
    open_log,
    read_all,
    simulated,
    timed_batch,
)

SMALL = LogSettings(segment_bytes=1024, index_interval_bytes=200)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


# By offset


@simulated
async def test_a_read_in_the_midst_of_a_batch_begins_with_that_batch(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e")
    found = log.read(Offset(4), bytes_max=1000)
    assert [(header.base_offset, header.last_offset) for _, header in iter_batches(found.data)] == [(3, 4)]
    assert found.next_offset == 5
    await log.close()


@simulated
async def test_a_read_takes_as_many_whole_batches_as_fit(disk: SimDisk) -> None:
    log = open_log(disk)
    for _ in range(5):
        append(log, b"x")
    size = len(batch_of(b"x"))
    for bytes_max, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size, 5), (10**6, 5)):
        found = log.read(Offset(0), bytes_max=bytes_max)
        assert (len(found.data), found.next_offset) == (count * size, count), bytes_max
    await log.close()


@simulated
async def test_a_batch_larger_than_asked_for_comes_whole_and_alone(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"small")
    append(log, b"x" * 100_000)
    append(log, b"small")
    found = log.read(Offset(1), bytes_max=10)
    assert len(found.data) == len(batch_of(b"x" * 100_000))
    assert found.next_offset == 2
    await log.close()


@simulated
async def test_no_batch_reaches_beyond_until(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b")
    append(log, b"c", b"d")
    append(log, b"e", b"f")
    ends = [log.read(Offset(0), bytes_max=10**6, until=Offset(until)).next_offset for until in range(8)]
    assert ends == [0, 0, 2, 2, 4, 4, 6, 6]
    assert len(log.read(Offset(2), bytes_max=10**6, until=Offset(1)).data) == 0
    await log.close()


@simulated
async def test_a_read_that_finds_nothing_below_until_leads_on_from_where_it_was(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, *[b"x"] * 10)
    await log.flush()
    await log.delete_before(Offset(5))
    found = log.read(Offset(6), bytes_max=100, until=Offset(8))
    assert (len(found.data), found.next_offset) == (0, 6)
    await log.close()


@simulated
async def test_a_read_at_the_end_is_empty_and_beyond_it_out_of_range(disk: SimDisk) -> None:
    log = open_log(disk)
    assert len(log.read(Offset(0), bytes_max=100).data) == 0
    append(log, b"a", b"b")
    found = log.read(Offset(2), bytes_max=100)
    assert (len(found.data), found.next_offset) == (0, 2)
    for offset in (-1, 3, 2**63 - 1):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in orders-0, which has 0 to 2"):
            log.read(Offset(offset), bytes_max=100)
    await log.close()


@simulated
async def test_a_read_before_the_start_is_out_of_range(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, *[b"x"] * 10)
    await log.flush()
    await log.delete_before(Offset(5))
    with pytest.raises(OffsetOutOfRange, match="offset 4 is not in orders-0, which has 5 to 10"):
        log.read(Offset(4), bytes_max=100)
    assert log.read(Offset(5), bytes_max=100).next_offset == 10
    await log.close()


counts = st.lists(st.integers(1, 6), min_size=1, max_size=25)


@given(counts, st.sampled_from([0, 1, 90, 200, 10_000]), st.booleans(), st.data())
@simulated
async def test_every_read_equals_a_plain_list_of_batches(
    counts: list[int], interval: int, verify: bool, data: st.DataObject
) -> None:
    settings = LogSettings(
        segment_bytes=1024, index_interval_bytes=interval, verify_reads=verify, flush=Flush.NONE, retention_ms=None
    )
    disk = new_disk()
    log = open_log(disk, settings)
    for count in counts:
        append(log, *[b"v"] * count)
    match data.draw(st.sampled_from(["go on", "close", "kill"]), label="then"):
        case "close":
            await log.close()
            log = open_log(disk, settings)
        case "kill":
            log.abandon()
            log = open_log(disk, settings)
    segments = [each.base_offset for each in facts_of(log)]
    batches = model_of(counts)
    for _ in range(5):
        start = data.draw(st.integers(0, log.next_offset), label="start")
        bytes_max = data.draw(st.sampled_from([0, 70, 150, 400, 5000]), label="bytes_max")
        until = data.draw(st.none() | st.integers(0, log.next_offset + 1), label="until")
        found = log.read(Offset(start), bytes_max=bytes_max, until=None if until is None else Offset(until))
        got = [(header.base_offset, header.next_offset) for _, header in iter_batches(found.data)]
        assert got == expected_batches(batches, segments, start=start, bytes_max=bytes_max, until=until)
        assert found.next_offset == (got[-1][1] if got else start)
    log.abandon()


def model_of(counts: list[int]) -> list[tuple[int, int, int]]:
    """First offset, next offset and size of each batch."""
    batches, offset = [], 0
    for count in counts:
        batches.append((offset, offset + count, len(batch_of(*[b"v"] * count))))
        offset += count
    return batches


def expected_batches(
    batches: list[tuple[int, int, int]], segments: list[Offset], *, start: int, bytes_max: int, until: int | None
) -> list[tuple[int, int]]:
    """Whole batches of one segment from the one with `start`: one, and then as many as fit, none beyond `until`."""
    chosen: list[tuple[int, int]] = []
    size = 0
    for first, following, batch_bytes in batches:
        if following <= start:
            continue
        is_beyond = until is not None and (following > until or start >= until)
        if is_beyond or (chosen and (size + batch_bytes > bytes_max or first in segments)):
            break
        chosen.append((first, following))
        size += batch_bytes
    return chosen


@simulated
async def test_ten_thousand_random_look_ups_in_a_large_log_find_their_batches(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=64 * 1024, index_interval_bytes=1000, flush=Flush.NONE)
    log = open_log(OsFilesystem(tmp_path), settings)
    rng = random.Random(4711)
    firsts: list[int] = []
    for _ in range(2000):
        count = rng.randrange(1, 8)
        firsts += [log.next_offset] * count
        append(log, *[b"v" * rng.randrange(0, 60)] * count)
    assert len(facts_of(log)) > 5
    for _ in range(10_000):
        wanted = rng.randrange(len(firsts))
        found = log.read(Offset(wanted), bytes_max=1)
        ((_, header),) = iter_batches(found.data)
        assert header.base_offset == firsts[wanted]
    log.abandon()


@simulated
async def test_what_was_just_appended_is_read_at_once_however_large_the_segment(tmp_path: Path) -> None:
    """The growing segment is read partly from a map and partly from memory; the seam must not show."""
    log = open_log(OsFilesystem(tmp_path), LogSettings(flush=Flush.NONE))
    for number in range(60):
        appended = append(log, b"%d" % number + b"x" * 100_000)
        found = log.read(appended.base_offset, bytes_max=1)
        assert found.next_offset == number + 1
        behind = log.read(Offset(max(0, number - 15)), bytes_max=10**7)
        assert behind.next_offset == number + 1
    assert [record.value[:2].strip(b"x") for record in read_all(log) if record.value] == [b"%d" % n for n in range(60)]
    log.abandon()


# Views


async def retention(log: Log) -> None:
    await log.upkeep(now_ms=NOW + 10**10)
    assert log.start_offset == 12


async def deletion(log: Log) -> None:
    await log.delete_before(log.next_offset)


async def truncation(log: Log) -> None:
    await log.truncate(Offset(0))
    append(log, b"something else")


async def closing(log: Log) -> None:
    await log.close()


async def abandoning(log: Log) -> None:
    log.abandon()


@pytest.mark.parametrize("change", [retention, deletion, truncation, closing, abandoning])
@pytest.mark.parametrize("size", [20, 300_000])
@simulated
async def test_a_view_stays_readable_whatever_becomes_of_the_log(
    change: Callable[[Log], Awaitable[None]], size: int, tmp_path: Path
) -> None:
    log = open_log(OsFilesystem(tmp_path), LogSettings(segment_bytes=2 << 20))
    for number in range(12):  # the larger ones fill a segment and more, so that some reads are maps
        append(log, bytes([number]) * size)
    await log.flush()
    views = [log.read(Offset(number), bytes_max=1).data for number in range(12)]
    copies = [bytes(view) for view in views]
    await change(log)
    log.abandon()
    assert [bytes(view) for view in views] == copies


@simulated
async def test_a_view_cannot_be_written_through(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(tmp_path))
    append(log, b"a" * 1_000_000)
    append(log, b"b" * 1_000_000)
    for offset in (0, 1):
        assert log.read(Offset(offset), bytes_max=10).data.readonly
    log.abandon()


# By time

times = st.integers(-1, 40)
timed_batches = st.lists(
    st.tuples(
        st.lists(times, min_size=1, max_size=4),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
        st.none() | st.integers(0, 40),
    ),
    max_size=20,
)


@given(timed_batches, st.sampled_from([0, 100, 250, 10_000]), st.data())
@simulated
async def test_the_first_record_since_a_time_equals_a_walk_over_all_records(
    batches: list[tuple[list[int], Codec, int | None]], interval: int, data: st.DataObject
) -> None:
    settings = LogSettings(segment_bytes=1024, index_interval_bytes=interval, flush=Flush.NONE, retention_ms=None)
    disk = new_disk()
    log = open_log(disk, settings)
    records: list[tuple[int, int]] = []
    for timestamps, codec, append_time in batches:
        batch = bytearray(timed_batch(*timestamps, codec=codec))
        if append_time is not None:
            stamp_append_time(batch, timestamp=TimestampMs(append_time))
            timestamps = [append_time] * len(timestamps)
        log.append(batch, leader_epoch=EPOCH)
        records += [(len(records) + number, timestamp) for number, timestamp in enumerate(timestamps)]
    log = await change_of_shape(log, disk, records, data)
    for timestamp in range(-2, 43):
        expected = next((each for each in records if each[1] >= timestamp), None)
        assert log.first_since(TimestampMs(timestamp)) == expected, timestamp
    log.abandon()


async def change_of_shape(log: Log, disk: SimDisk, records: list[tuple[int, int]], data: st.DataObject) -> Log:
    """What may become of a log before somebody asks; `records` follows suit."""
    match data.draw(st.sampled_from(["stay", "close", "kill", "truncate", "delete"]), label="then"):
        case "close":
            await log.close()
            return open_log(disk, log.settings)
        case "kill":
            log.abandon()
            return open_log(disk, log.settings)
        case "truncate":
            await log.truncate(Offset(data.draw(st.integers(0, log.next_offset), label="end")))
            del records[log.next_offset :]
        case "delete":
            await log.flush()
            start = data.draw(st.integers(0, log.next_offset), label="start")
            await log.delete_before(Offset(start))
            records[:] = [each for each in records if each[0] >= start]
    return log


@simulated
async def test_a_log_asked_for_a_time_it_has_not_reached_knows_no_record(disk: SimDisk) -> None:
    log = open_log(disk)
    assert log.first_since(TimestampMs(0)) is None
    append(log, b"a")
    assert log.first_since(NOW) == (0, NOW)
    assert log.first_since(TimestampMs(NOW + 1)) is None
    await log.close()
