"""What a log forgets: by time, by size, by request; and that it forgets nothing else, whatever is cut short."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.model.errors import OffsetOutOfRange
from millpond.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from millpond.storage.log import Log
from millpond.storage.retention import SegmentFacts, expired_segments
from millpond.storage.settings import LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.models import Process, batch_with, expired_by_trying, facts_of, headers_in, names_on, read_all

KEEP_ALL = LogSettings(segment_bytes=1024, index_interval_bytes=100, retention_ms=None)
BATCHES = 30
BATCHES_PER_SEGMENT = 3
Work = Callable[[Log], Coroutine[Any, Any, None]]


@st.composite
def facts(draw: st.DrawFn) -> list[SegmentFacts]:
    """Neighbours without gaps; the last may be empty."""
    segments: list[SegmentFacts] = []
    offset = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(1, 7))):
        count = draw(st.integers(1, 10))
        size, timestamp = draw(st.integers(1, 20)), draw(st.one_of(st.integers(0, 60), st.just(NO_TIMESTAMP)))
        segments.append(SegmentFacts(Offset(offset), Offset(offset + count), size, TimestampMs(timestamp)))
        offset += count
    if draw(st.booleans()):
        segments[-1] = SegmentFacts(segments[-1].base_offset, segments[-1].base_offset, 0, NO_TIMESTAMP)
    return segments


@given(
    facts(),
    st.builds(
        LogSettings,
        delete=st.booleans(),
        retention_ms=st.one_of(st.none(), st.integers(0, 60)),
        retention_bytes=st.one_of(st.none(), st.integers(0, 100)),
    ),
    st.integers(0, 150),
    st.integers(0, 150),
)
@example(
    [SegmentFacts(Offset(0), Offset(5), 9, NO_TIMESTAMP), SegmentFacts(Offset(5), Offset(9), 9, TimestampMs(1))],
    LogSettings(retention_ms=0),
    0,
    2,
)
def test_segments_expire_as_trying_every_number_of_them_says(
    segments: list[SegmentFacts], settings: LogSettings, start: int, now_ms: int
) -> None:
    found = expired_segments(segments, settings, start_offset=Offset(start), now_ms=now_ms)
    assert found == expired_by_trying(segments, settings, start=start, now_ms=now_ms)


def test_a_segment_goes_as_soon_as_what_follows_fills_the_bound() -> None:
    segments = [SegmentFacts(Offset(n), Offset(n + 1), 10, TimestampMs(n)) for n in range(4)]
    for bound, expired in ((41, 0), (40, 0), (31, 0), (30, 1), (29, 1), (20, 2), (0, 3)):
        settings = LogSettings(retention_ms=None, retention_bytes=bound)
        assert expired_segments(segments, settings, start_offset=Offset(0), now_ms=0) == expired


def test_a_bound_of_no_bytes_still_leaves_the_growing_segment() -> None:
    segments = [SegmentFacts(Offset(n), Offset(n + 1), 10, TimestampMs(n)) for n in range(4)]
    settings = LogSettings(retention_ms=None, retention_bytes=0)
    assert expired_segments(segments, settings, start_offset=Offset(0), now_ms=10**9) == 3


def filled(settings: LogSettings, *, seed: int = 0) -> tuple[SimDisk, Process]:
    """A log of segments of three batches each, one record a batch, its offset its time; all of it kept."""
    disk = SimDisk(random.Random(seed))
    process = Process(disk, settings, seed=seed)
    for number in range(BATCHES):
        process.keep(batch_with((b"%d" % number).ljust(250), timestamp=number))
    assert len(facts_of(process.log)) == BATCHES / BATCHES_PER_SEGMENT
    return disk, process


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in headers_in(read_all(log))]


def check_files(disk: SimDisk, log: Log) -> None:
    """Exactly the segments that the log still has are on disk, and no index without its segment."""
    bases = [each.base_offset for each in facts_of(log)]
    assert names_on(disk, ".log") == [f"orders-0/{base:020d}.log" for base in bases]
    assert {name[:-6] for name in names_on(disk, ".index")} <= {name[:-4] for name in names_on(disk, ".log")}


def reopened(disk: SimDisk, process: Process, settings: LogSettings, *, how: str) -> Process:
    if how == "close":
        process.close()
    else:
        process.kill()
    if how == "power cut":
        disk.crash()
    return Process(disk, settings)


RESTARTS = pytest.mark.parametrize("how", ["close", "kill", "power cut"])


@RESTARTS
@pytest.mark.parametrize(
    ("settings", "first_left"),
    [
        (LogSettings(segment_bytes=1024, retention_ms=10), 18),
        (LogSettings(segment_bytes=1024, retention_ms=None, retention_bytes=2500), 21),
        (LogSettings(segment_bytes=1024, retention_ms=20, retention_bytes=2500), 21),
        (LogSettings(segment_bytes=1024, retention_ms=10, retention_bytes=8000), 18),
        (LogSettings(segment_bytes=1024, retention_ms=10, retention_bytes=0, delete=False), 0),
    ],
    ids=["by time", "by size", "by both, size first", "by both, time first", "not at all"],
)
def test_upkeep_removes_whole_segments_and_a_restart_changes_nothing(
    how: str, settings: LogSettings, first_left: int
) -> None:
    disk, process = filled(settings)
    size = {each.base_offset: each.size for each in facts_of(process.log)}
    process.run(process.log.upkeep(now_ms=BATCHES))
    for _ in range(2):
        assert process.log.start_offset == first_left
        assert offsets(process.log) == list(range(first_left, BATCHES))
        assert process.log.size_bytes() == sum(size[base] for base in size if base >= first_left)
        check_files(disk, process.log)
        with pytest.raises(OffsetOutOfRange):
            process.log.read(Offset(first_left - 1), bytes_max=1)
        process = reopened(disk, process, settings, how=how)
    process.kill()


@RESTARTS
def test_a_log_that_expired_wholly_is_empty_and_goes_on_at_its_next_offset(how: str) -> None:
    settings = LogSettings(segment_bytes=1024, retention_ms=10)
    disk, process = filled(settings)
    process.run(process.log.upkeep(now_ms=1000))
    for _ in range(2):
        log = process.log
        assert (log.start_offset, log.next_offset, log.size_bytes()) == (BATCHES, BATCHES, 0)
        check_files(disk, log)
        assert not log.read(Offset(BATCHES), bytes_max=1).data
        process = reopened(disk, process, settings, how=how)
    [appended] = process.keep(batch_with(b"next", timestamp=1000))
    assert appended.base_offset == BATCHES
    assert offsets(process.log) == [BATCHES]
    process.kill()


@RESTARTS
@pytest.mark.parametrize("offset", range(0, BATCHES + 1, 2))
def test_a_start_set_by_request_holds_wherever_it_falls_in_a_segment(how: str, offset: int) -> None:
    disk, process = filled(KEEP_ALL)
    process.run(process.log.delete_before(Offset(offset)))
    process.run(process.log.delete_before(Offset(offset // 2)))  # never back
    for _ in range(2):
        assert process.log.start_offset == offset
        assert offsets(process.log) == list(range(offset, BATCHES))
        assert facts_of(process.log)[0].base_offset == min(offset // BATCHES_PER_SEGMENT * 3, BATCHES - 3)
        check_files(disk, process.log)
        process = reopened(disk, process, KEEP_ALL, how=how)
    assert process.keep(batch_with(b"next"))[0].base_offset == BATCHES
    process.kill()


def test_nothing_behind_the_end_can_be_deleted() -> None:
    disk, process = filled(KEEP_ALL)
    with pytest.raises(OffsetOutOfRange):
        process.run(process.log.delete_before(Offset(BATCHES + 1)))
    assert offsets(process.log) == list(range(BATCHES))
    check_files(disk, process.log)
    process.kill()


def test_upkeep_removes_what_was_deleted_by_request_even_where_nothing_expires() -> None:
    settings = LogSettings(segment_bytes=1024, delete=False)
    disk, process = filled(settings)
    process.run(process.log.delete_before(Offset(8)))
    process.run(process.log.upkeep(now_ms=10**6))
    assert process.log.start_offset == 8
    assert facts_of(process.log)[0].base_offset == 6
    check_files(disk, process.log)
    process.kill()


REMOVALS: dict[str, tuple[LogSettings, Work, int]] = {
    "deleting": (KEEP_ALL, lambda log: log.delete_before(Offset(16)), 16),
    "expiring": (LogSettings(segment_bytes=1024, retention_ms=10), lambda log: log.upkeep(now_ms=BATCHES), 18),
    "expiring wholly": (LogSettings(segment_bytes=1024, retention_ms=10), lambda log: log.upkeep(now_ms=999), BATCHES),
}


@pytest.mark.parametrize(("settings", "work", "start"), REMOVALS.values(), ids=REMOVALS.keys())
def test_a_removal_cut_short_at_any_operation_is_finished_or_was_never_begun(
    settings: LogSettings, work: Work, start: int
) -> None:
    found = set()
    for seed in range(3):
        cut_at, was_cut = 1, True
        while was_cut:
            disk, process = filled(settings, seed=seed)
            disk.cut_power_at(cut_at)
            try:
                process.run(work(process.log))
                was_cut = False
            except PowerCut:
                pass
            process.kill()
            disk.crash()
            with Process(disk, settings) as process:
                log = process.log
                found.add(log.start_offset)
                assert log.start_offset in ((0, start) if was_cut else (start,))
                assert offsets(log) == list(range(log.start_offset, BATCHES))
                assert log.report.damages == []
                check_files(disk, log)
                assert process.keep(batch_with(b"next", timestamp=999))[0].base_offset == BATCHES
            cut_at += 1
        assert cut_at > 8
    assert found == {0, start}


@pytest.mark.parametrize(("settings", "work", "start"), REMOVALS.values(), ids=REMOVALS.keys())
def test_readers_keep_their_views_of_removed_segments(settings: LogSettings, work: Work, start: int) -> None:
    _, process = filled(settings)
    views = [process.log.read(Offset(n), bytes_max=1).data for n in range(BATCHES)]
    copies = [bytes(view) for view in views]
    process.run(work(process.log))
    assert process.log.start_offset == start
    process.close()
    assert all(view == copy for view, copy in zip(views, copies, strict=True))


def test_nothing_goes_that_ends_above_what_all_replicas_have() -> None:
    disk, process = filled(LogSettings(segment_bytes=1024, retention_ms=10))
    process.run(process.log.upkeep(now_ms=1000, until=Offset(8)))
    assert process.log.start_offset == 6
    process.run(process.log.upkeep(now_ms=1000, until=Offset(BATCHES)))
    assert process.log.start_offset == BATCHES
    check_files(disk, process.log)
    process.kill()
