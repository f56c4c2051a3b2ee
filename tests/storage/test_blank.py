"""What is blank ahead of a log: there while it grows, gone when it is sealed or closed, never taken for anything."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from millpond.model.errors import DiskFull, LogCorrupted
from millpond.model.ids import Offset, TimestampMs
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.models import (
    DIRECTORY,
    Process,
    batch_with,
    contents_after,
    disk_with,
    facts_of,
    headers_in,
    read_all,
)

CHECKPOINT = f"{DIRECTORY}/checkpoint"
FIRST_INDEX = f"{DIRECTORY}/{0:020d}.index"
FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"
LARGE = LogSettings(segment_bytes=1 << 20, retention_ms=None)
SMALL = LogSettings(segment_bytes=2048, retention_ms=None)
BATCH = batch_with(b"v" * 100)


def test_small_batches_do_not_change_the_size_of_the_file_but_now_and_then(tmp_path: Path) -> None:
    with Process(OsFilesystem(tmp_path), LARGE) as process:
        sizes = []
        for _ in range(1000):
            process.keep(BATCH)
            sizes.append((tmp_path / FIRST_LOG).stat().st_size)
        assert len(set(sizes)) < 15
        assert read_all(process.log) == (tmp_path / FIRST_LOG).read_bytes()[: facts_of(process.log)[0].size]
        process.close()
    assert (tmp_path / FIRST_LOG).stat().st_size == 1000 * len(BATCH)


def test_large_batches_are_written_once() -> None:
    disk = SimDisk(random.Random(1))
    with Process(disk, LARGE) as process:
        for _ in range(3):
            process.keep(batch_with(b"v" * 100_000))
            assert disk.size(FIRST_LOG) == process.log.size_bytes()


def test_after_a_kill_the_log_ends_where_the_blank_begins_and_nothing_was_cut() -> None:
    disk = SimDisk(random.Random(1))
    process = Process(disk, LARGE)
    process.keep(*[BATCH] * 9)
    data = read_all(process.log)
    process.kill()
    assert disk.size(FIRST_LOG) > len(data)
    with Process(disk, LARGE) as process:
        report = process.log.report
        assert (report.bytes_cut, report.cut_reason, report.damages) == (0, None, [])
        assert report.bytes_scanned == len(data)
        assert disk.size(FIRST_LOG) == len(data)
        assert read_all(process.log) == data
        assert process.keep(BATCH)[0].base_offset == 9


def test_a_batch_behind_a_blank_place_was_never_kept() -> None:
    """Pages reach the disk in any order before a sync."""
    contents = contents_after([BATCH] * 9, LARGE, orderly=False)
    at = 7 * len(BATCH)
    log = contents[FIRST_LOG]
    contents[FIRST_LOG] = log[:at] + bytes(len(BATCH)) + log[at + len(BATCH) :]
    with Process(disk_with(contents), LARGE) as process:
        assert process.log.next_offset == 7
        assert process.log.report.bytes_cut == len(log) - at
        assert process.keep(BATCH)[0].base_offset == 7


def test_what_was_known_to_be_kept_and_is_blank_now_is_reported_and_its_offsets_stay_taken() -> None:
    contents = contents_after([BATCH] * 9, LARGE, orderly=True)
    del contents[FIRST_INDEX]  # without which all is scanned
    at = 7 * len(BATCH)
    contents[FIRST_LOG] = contents[FIRST_LOG][:at] + bytes(5000)
    with Process(disk_with(contents), LARGE) as process:
        assert [damage[:3] for damage in process.log.report.damages] == [(FIRST_LOG, at, 7)]
        assert process.keep(BATCH)[0].base_offset == 9


def test_behind_damage_the_next_batch_is_found_though_the_end_is_blank() -> None:
    contents = contents_after([BATCH] * 9, LARGE, orderly=True)
    del contents[FIRST_INDEX]
    at = 3 * len(BATCH)
    log = contents[FIRST_LOG]
    contents[FIRST_LOG] = log[:at] + b"\xff" * len(BATCH) + log[at + len(BATCH) :] + bytes(3000)
    with Process(disk_with(contents), LARGE) as process:
        assert [damage[:3] for damage in process.log.report.damages] == [(FIRST_LOG, at, 3)]
        assert process.log.next_offset == 9
        assert process.log.read(Offset(4), bytes_max=1).data == log[4 * len(BATCH) : 5 * len(BATCH)]


def test_a_disk_with_room_for_the_batch_and_not_for_the_blank_takes_the_batch() -> None:
    disk = SimDisk(random.Random(1))
    with Process(disk, LARGE) as process:
        process.keep(*[BATCH] * 20)
        disk.capacity_bytes = disk.used_bytes + 3 * len(BATCH)
        with pytest.raises(DiskFull):
            process.keep(*[BATCH] * 100)
        assert disk.capacity_bytes - disk.used_bytes < len(BATCH), "it was filled with batches to the last"
        disk.capacity_bytes = None
        assert len(read_all(process.log)) == process.log.next_offset * len(BATCH)
        process.keep(BATCH)
        process.close()
    with Process(disk, LARGE) as process:
        assert (process.log.report.clean, process.log.report.damages) == (True, [])


def test_a_log_cut_back_grows_on_and_is_read_as_it_is() -> None:
    disk = SimDisk(random.Random(1))
    with Process(disk, LARGE) as process:
        process.keep(*[BATCH] * 9)
        process.run(process.log.truncate(Offset(5)))
        assert disk.size(FIRST_LOG) == 5 * len(BATCH)
        process.keep(*[batch_with(b"w" * 100)] * 9)
        data = read_all(process.log)
        process.kill()
        with Process(disk, LARGE) as again:
            assert read_all(again.log) == data


@pytest.mark.parametrize("seed", range(8))
def test_whenever_the_power_goes_while_a_log_grows_and_rolls_what_was_kept_is_there(seed: int) -> None:
    cut_at, was_cut = 1, True
    while was_cut:
        disk = SimDisk(random.Random(f"{seed} {cut_at}"))
        process = Process(disk, SMALL, seed=cut_at)
        disk.cut_power_at(cut_at)
        kept, was_cut = 0, False
        try:
            for _ in range(24):
                kept = process.keep(BATCH)[0].last_offset + 1
        except PowerCut:
            was_cut = True
        process.kill()
        disk.crash()
        with Process(disk, SMALL) as process:
            log = process.log
            assert log.report.damages == []
            assert log.next_offset >= kept
            assert len(read_all(log)) == log.next_offset * len(BATCH)
            assert process.keep(BATCH)[0].base_offset == log.next_offset - 1
        cut_at += 1
    assert cut_at > 50


def test_a_sealed_segment_that_was_not_cut_yet_ends_where_its_blank_begins() -> None:
    """As a power cut leaves one in which a log rolled twice between two syncs, where its checkpoint is lost as well."""
    contents = contents_after([BATCH] * 40, SMALL, orderly=False)
    del contents[CHECKPOINT], contents[FIRST_INDEX]
    size = len(contents[FIRST_LOG])
    contents[FIRST_LOG] += bytes(500)
    disk = disk_with(contents)
    with Process(disk, SMALL) as process:
        log = process.log
        assert log.report.damages == []
        assert (facts_of(log)[0].size, disk.size(FIRST_LOG)) == (size, size)
        assert log.first_since(TimestampMs(1)) == (0, 1)
        assert log.first_since(TimestampMs(2)) is None
        assert len(read_all(log)) == 40 * len(BATCH)
        process.run(log.truncate(facts_of(log)[0].next_offset))
        assert len(read_all(log)) == size
    disk.crash("lose")
    with Process(disk, SMALL) as process:
        assert (process.log.report.damages, len(read_all(process.log))) == ([], size)


@pytest.mark.parametrize("number", range(4))
def test_a_sealed_segment_that_is_blank_where_batches_were_is_reported(number: int) -> None:
    contents = contents_after([BATCH] * 50, SMALL, orderly=False)
    del contents[CHECKPOINT]
    first = 12 * number
    path = f"{DIRECTORY}/{first:020d}.log"
    del contents[path.replace(".log", ".index")]
    at = 9 * len(BATCH)
    contents[path] = contents[path][:at] + bytes(len(contents[path]) - at + 500)
    with Process(disk_with(contents), SMALL) as process:
        log = process.log
        assert [damage[:3] for damage in log.report.damages] == [(path, at, first + 9)]
        assert len(read_all(log, start=first + 12)) == (50 - first - 12) * len(BATCH)
        for offset in range(first + 9, first + 12):
            with pytest.raises(LogCorrupted):
                log.read(Offset(offset), bytes_max=1)
        assert process.keep(BATCH)[0].base_offset == 50


@pytest.mark.parametrize("seed", range(8))
def test_whenever_the_power_goes_and_the_checkpoint_with_it_what_was_kept_is_found(seed: int) -> None:
    """Behind that a sealed segment may lack something: it says so. Where it lacks nothing, it is like any other."""
    for cut_at in range(1, 90):
        disk = SimDisk(random.Random(f"{seed} {cut_at}"))
        process = Process(disk, SMALL, seed=cut_at)
        kept = process.keep(*[BATCH] * 30)[-1].last_offset + 1
        disk.cut_power_at(cut_at)
        with suppress(PowerCut):
            while True:
                kept = process.keep(*[BATCH] * 30)[-1].last_offset + 1
        process.kill()
        disk.crash()
        disk.remove(CHECKPOINT)
        with Process(disk, SMALL) as process:
            readable = readable_offsets(process.log)
            assert readable[:kept] == list(range(kept))
        disk.crash("lose")
        with Process(disk, SMALL) as process:
            assert readable_offsets(process.log) == readable
            for end in sorted((each.base_offset for each in facts_of(process.log)), reverse=True):
                if readable[:end] == list(range(end)):
                    process.run(process.log.truncate(end))
                    assert readable_offsets(process.log) == readable[:end]


def readable_offsets(log: Log) -> list[Offset]:
    """One batch for each."""
    found = []
    for offset in range(log.next_offset):
        with suppress(LogCorrupted):
            found += [header.base_offset for header in headers_in(bytes(log.read(Offset(offset), bytes_max=1).data))]
    return found
