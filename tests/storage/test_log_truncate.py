"""Cutting the end of a log off: whole batches go, durably, and everything the log knows follows."""

import asyncio
from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import LogCorrupted, OffsetOutOfRange, Truncated
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    EPOCH,
    NOW,
    append,
    batch_of,
    facts_of,
    files_of,
    new_disk,
    open_log,
    simulated,
    timed_batch,
    values_of,
)

SMALL = LogSettings(segment_bytes=1024, retention_ms=None)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


@simulated
async def test_a_batch_that_holds_the_cut_goes_as_a_whole(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b")
    append(log, b"c", b"d")
    append(log, b"e")
    await log.truncate(Offset(3))
    assert log.next_offset == 2
    assert values_of(log) == [b"a", b"b"]
    assert append(log, b"C").base_offset == 2
    assert values_of(log) == [b"a", b"b", b"C"]
    await log.close()


@simulated
async def test_a_cut_that_is_no_longer_wanted_when_its_turn_comes_cuts_nothing(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    is_wanted = True
    async with log.commit.turn:
        cut = asyncio.create_task(log.truncate(Offset(0), if_still=lambda: is_wanted))
        await asyncio.sleep(0)
        is_wanted = False
    await cut
    assert values_of(log) == [b"a"]
    await log.close()


@simulated
async def test_truncating_at_or_behind_the_end_changes_nothing(disk: SimDisk) -> None:
    log = open_log(disk)
    appended = append(log, b"a", b"b")
    files = files_of(disk)
    await log.truncate(Offset(2))
    await log.truncate(Offset(100))
    assert files_of(disk) == files
    await log.wait_kept(appended)
    await log.close()


@simulated
async def test_truncating_to_the_start_leaves_an_empty_log_that_takes_appends(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for number in range(6):
        append(log, b"%d" % number + b"x" * 500)
    await log.truncate(Offset(0))
    assert (log.start_offset, log.durable_offset, log.next_offset, log.size_bytes()) == (0, 0, 0, 0)
    assert len(files_of(disk, suffix=".log")) == 1
    assert append(log, b"new").base_offset == 0
    await log.close()
    log = open_log(disk, SMALL)
    assert values_of(log) == [b"new"]
    await log.close()


@simulated
async def test_truncating_before_the_start_is_out_of_range(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    append(log, b"b")
    await log.flush()
    await log.delete_before(Offset(1))
    with pytest.raises(OffsetOutOfRange, match="offset 0 is before the start of orders-0, 1"):
        await log.truncate(Offset(0))
    assert values_of(log) == [b"b"]
    await log.close()


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("end", [3, 4])
@pytest.mark.parametrize("is_mapped", [True, False])
@simulated
async def test_a_truncation_survives_a_power_cut(flush: Flush, end: int, is_mapped: bool) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=1024, flush=flush))
    for number in range(10):
        append(log, b"%d" % number + b"x" * 300)
    await log.flush()
    assert end == 4 or end not in [each.base_offset for each in facts_of(log)], "one cuts a file, one only removes some"
    if is_mapped:
        values_of(log)
    await log.truncate(Offset(end))
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, log.settings)
    assert [value[:1] for value in values_of(log) if value] == [b"0", b"1", b"2", b"3"][:end]
    assert log.report.damages == []
    log.abandon()


@simulated
async def test_where_a_reader_stopped_is_forgotten_with_what_was_there(disk: SimDisk) -> None:
    log = open_log(disk)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    _, stopped_at = log.read(Offset(1), bytes_max=1)
    assert stopped_at == 2
    await log.truncate(Offset(1))
    append(log, b"larger than what was there")
    append(log, b"new")
    assert log.read(Offset(2), bytes_max=1).next_offset == 3
    assert values_of(log) == [b"a", b"larger than what was there", b"new"]
    await log.close()


@simulated
async def test_what_comes_after_a_truncation_is_not_mixed_with_what_was_there(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for number in range(10):
        append(log, b"old %d" % number + b"x" * 300)
    await log.flush()
    await log.truncate(Offset(4))
    for number in range(4, 8):
        await log.append_and_wait(batch_of(b"new %d" % number), leader_epoch=LeaderEpoch(EPOCH + 1))
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, SMALL)
    assert [value[:5] for value in values_of(log) if value] == [
        *(b"old %d" % number for number in range(4)),
        *(b"new %d" % number for number in range(4, 8)),
    ]
    log.abandon()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=15), st.booleans(), st.booleans(), st.data())
@simulated
async def test_what_is_left_equals_the_plain_list_cut_at_the_same_place(
    counts: list[int], read_first: bool, restart: bool, data: st.DataObject
) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=1024, index_interval_bytes=150, retention_ms=None, flush=Flush.NONE))
    written: list[bytes | None] = []
    for count in counts:
        batch = [b"%d" % (len(written) + number) * 30 for number in range(count)]
        append(log, *batch)
        written += batch
    ends = [0, *accumulate(counts)]
    for _ in range(2):
        if read_first:
            values_of(log)  # maps some of the files
        end = data.draw(st.integers(0, log.next_offset), label="end")
        await log.truncate(Offset(end))
        left = max(each for each in ends if each <= end)
        assert log.next_offset == left
        assert values_of(log) == written[:left]
        if restart:
            log.abandon()
            log = open_log(disk, log.settings)
            assert values_of(log) == written[:left]
    appended = append(log, b"more")
    assert appended.base_offset == log.next_offset - 1
    assert values_of(log) == [*written[: appended.base_offset], b"more"]
    log.abandon()


@simulated
async def test_a_truncation_forgets_the_leaders_of_what_it_cuts(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", epoch=1)
    append(log, b"b", epoch=2)
    append(log, b"c", epoch=4)
    await log.truncate(Offset(2))
    assert log.epochs.pairs() == [(1, 0), (2, 1)]
    assert log.end_of_epoch(LeaderEpoch(2)) == (2, 2)
    append(log, b"C", epoch=3)
    log.abandon()
    log = open_log(disk)
    assert log.epochs.pairs() == [(1, 0), (2, 1), (3, 2)]
    assert values_of(log) == [b"a", b"b", b"C"]
    log.abandon()


@simulated
async def test_times_are_found_among_what_is_left(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(index_interval_bytes=100, retention_ms=None))
    for timestamp in (10, 50, 20, 90):
        log.append(timed_batch(timestamp), leader_epoch=EPOCH)
    await log.truncate(Offset(3))
    assert facts_of(log)[0].max_timestamp == 50
    assert log.first_since(TimestampMs(30)) == (1, 50)
    assert log.first_since(TimestampMs(51)) is None
    await log.close()


@simulated
async def test_an_append_from_before_a_truncation_is_not_acknowledged_by_what_took_its_place(disk: SimDisk) -> None:
    log = open_log(disk)
    cut = append(log, b"a")
    await log.truncate(Offset(0))
    await log.append_and_wait(batch_of(b"b"), leader_epoch=EPOCH)
    with pytest.raises(Truncated):
        await log.wait_kept(cut)
    await log.close()


@simulated
async def test_a_truncation_waits_for_the_sync_that_runs(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for number in range(6):
        append(log, b"%d" % number + b"x" * 500)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    await log.truncate(Offset(1))
    await flushing
    assert (log.durable_offset, log.next_offset) == (1, 1)
    append(log, b"more")
    await log.flush()
    assert log.durable_offset == 2
    await log.close()
    log = open_log(disk, SMALL)
    assert log.report.clean
    assert len(values_of(log)) == 2
    await log.close()


@simulated
async def test_a_log_truncated_below_an_orderly_close_is_not_taken_for_closed(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    append(log, b"b")
    await log.close()
    log = open_log(disk)
    await log.truncate(Offset(1))
    append(log, b"B")  # as long as what was cut: the file has the size of the marker again
    await log.flush()
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert not log.report.clean
    assert values_of(log) == [b"a", b"B"]
    log.abandon()


@simulated
async def test_the_age_of_a_segment_counts_from_the_oldest_batch_that_is_left(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_ms=1000, retention_ms=None))
    append(log, b"a")
    await log.upkeep(now_ms=NOW)
    await log.truncate(Offset(0))
    log.append(batch_of(b"b", timestamp=NOW + 1000), leader_epoch=EPOCH)
    await log.upkeep(now_ms=NOW + 1000)
    assert len(facts_of(log)) == 1
    await log.upkeep(now_ms=NOW + 2000)
    assert len(facts_of(log)) == 2
    await log.close()


# Together with a start that has moved


@simulated
async def test_cutting_the_batch_that_holds_the_start_leaves_a_log_whose_start_is_not_behind_its_end(
    disk: SimDisk,
) -> None:
    log = open_log(disk)
    append(log, *[b"x"] * 10)
    await log.flush()
    await log.delete_before(Offset(5))
    await log.truncate(Offset(7))
    assert log.start_offset <= log.next_offset
    start = log.start_offset
    for ending in ("kill", "power cut", "close"):
        if ending == "close":
            await log.close()
        log.abandon()
        if ending == "power cut":
            disk.crash("lose")
        log = open_log(disk)
        assert start <= log.start_offset <= log.durable_offset <= log.next_offset, ending
    appended = append(log, b"new")
    assert values_of(log)[-1] == b"new"
    assert log.read(appended.base_offset, bytes_max=1).next_offset == log.next_offset
    await log.close()


@pytest.mark.parametrize("power_cut", [True, False])
@simulated
async def test_what_is_kept_after_the_batch_that_held_the_start_was_cut_is_read_after_a_restart(
    power_cut: bool,
) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, *[b"x"] * 10)
    await log.flush()
    await log.delete_before(Offset(5))
    await log.truncate(Offset(7))
    await log.append_and_wait(batch_of(b"a", b"b"), leader_epoch=EPOCH)
    served = values_of(log)
    assert served[-2:] == [b"a", b"b"]
    log.abandon()
    if power_cut:
        disk.crash("lose")
    log = open_log(disk)
    assert values_of(log) == served
    log.abandon()


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_a_start_moved_into_what_was_not_synced_is_not_behind_the_end_after_a_power_cut(flush: Flush) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(flush=flush))
    append(log, *[b"x"] * 10)
    await log.delete_before(Offset(5))
    assert log.start_offset <= log.durable_offset <= log.next_offset
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, log.settings)
    assert log.start_offset == 5, "the deletion was durable when it returned"
    assert log.start_offset <= log.durable_offset <= log.next_offset
    append(log, b"new")
    assert values_of(log)[-1] == b"new"
    log.abandon()


SPARSE = LogSettings(segment_bytes=1024, index_interval_bytes=4096, retention_ms=None)
"""So that a cut has to find its way from a segment's start."""


@simulated
async def test_a_log_in_which_damage_hides_the_place_to_cut_stays_as_it_is(disk: SimDisk) -> None:
    log = open_log(disk, SPARSE)
    batches = [append(log, b"v" * 200) for _ in range(10)]
    await log.flush()
    assert len(facts_of(log)) > 2
    damaged_at = facts_of(log)[0].size // facts_of(log)[0].next_offset
    disk.rot(f"orders-0/{0:020d}.log", position=damaged_at + 7)
    before = files_of(disk)
    with pytest.raises(LogCorrupted):
        await log.truncate(Offset(3))
    assert files_of(disk) == before
    assert append(log, b"w").base_offset == len(batches)
    for offset in (0, 3, 9, 10):
        assert log.read(Offset(offset), bytes_max=1).next_offset == offset + 1
    await log.close()


@simulated
async def test_damage_before_a_cut_stays_what_it_is(disk: SimDisk) -> None:
    log = open_log(disk, SPARSE)
    for _ in range(10):
        append(log, b"v" * 200)
    await log.flush()
    damaged_at = facts_of(log)[0].size // facts_of(log)[0].next_offset
    disk.rot(f"orders-0/{0:020d}.log", position=damaged_at + 100)
    await log.truncate(Offset(3))
    assert append(log, b"w").base_offset == 3
    with pytest.raises(LogCorrupted):
        log.read(Offset(1), bytes_max=1)
    for offset in (0, 2, 3):
        assert log.read(Offset(offset), bytes_max=1).next_offset == offset + 1
    await log.close()
    log = open_log(disk, SPARSE)
    assert log.next_offset == 4
    log.abandon()
