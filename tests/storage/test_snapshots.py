"""Producers' states after a restart or a truncation: those that reading the log from its first batch would give."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import BatchHeader, NewRecord
from millpond.storage.log import Log
from millpond.storage.producers import ProducerStates
from millpond.storage.settings import LogSettings
from millpond.storage.snapshots import restore_producers, write_snapshot
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.models import (
    DIRECTORY,
    Process,
    batch_of,
    contents_of,
    disk_with,
    flipped,
    headers_in,
    names_on,
    read_all,
)

SMALL = LogSettings(segment_bytes=1024, index_interval_bytes=100, retention_ms=None)
REMEMBERED = 5

States = dict[int, tuple[int, list[tuple[int, int, int, int, int]]]]


class Send(NamedTuple):
    producer: int
    records: int
    bytes_each: int
    new_epoch: bool


SENDS = st.lists(
    st.builds(
        Send, st.integers(-1, 2), st.integers(1, 3), st.integers(0, 250), st.integers(0, 9).map(lambda n: n == 9)
    ),
    min_size=1,
    max_size=40,
)


def replayed(headers: Iterable[BatchHeader]) -> States:
    """What reading these batches tells of their producers."""
    states: States = {}
    for header in headers:
        if header.producer_id < 0:
            continue
        epoch, batches = states.get(header.producer_id, (-1, []))
        if epoch != header.producer_epoch:
            batches = []
        last_sequence = (header.base_sequence + header.last_offset_delta) % 2**31
        batch = (header.base_sequence, last_sequence, header.base_offset, header.last_offset, header.max_timestamp)
        states[header.producer_id] = (header.producer_epoch, [*batches, batch][-REMEMBERED:])
    return states


def states_of(log: Log) -> States:
    known: list[Any] = log.producers.snapshot()
    return {producer: (epoch, [tuple(batch) for batch in batches]) for producer, epoch, batches in known}


def send_all(process: Process, sends: list[Send]) -> None:
    """One batch a send, sequences in order and close to where they wrap, each kept."""
    numbers: dict[int, tuple[int, int]] = {}
    for now_ms, send in enumerate(sends):
        records = [NewRecord(b"v" * send.bytes_each, timestamp=TimestampMs(now_ms))] * send.records
        if send.producer < 0:
            process.keep(batch_of(records))
            continue
        epoch, sequence = numbers.get(send.producer, (0, 2**31 - 4))
        if send.new_epoch:
            epoch, sequence = epoch + 1, 0
        process.keep(batch_of(records, producer=send.producer, producer_epoch=epoch, sequence=sequence))
        numbers[send.producer] = (epoch, (sequence + send.records) % 2**31)


def written(sends: list[Send], *, seed: int = 0) -> tuple[SimDisk, Process]:
    disk = SimDisk(random.Random(seed))
    process = Process(disk, SMALL, seed=seed)
    send_all(process, sends)
    return disk, process


@settings(max_examples=60)
@given(SENDS, st.sampled_from(["close", "kill", "power cut"]), st.integers(0, 2**16))
def test_the_states_after_a_restart_are_those_of_a_full_reading(sends: list[Send], end: str, seed: int) -> None:
    disk, process = written(sends, seed=seed)
    expected = replayed(headers_in(read_all(process.log)))
    assert states_of(process.log) == expected
    if end == "close":
        process.close()
    else:
        process.kill()
    if end == "power cut":
        disk.crash()
    with Process(disk, SMALL) as process:
        assert states_of(process.log) == expected


@settings(max_examples=60)
@given(SENDS, st.booleans(), st.data())
def test_snapshots_may_be_missing_or_rotten(sends: list[Send], orderly: bool, data: st.DataObject) -> None:
    disk, process = written(sends)
    expected = replayed(headers_in(read_all(process.log)))
    if orderly:
        process.close()
    else:
        process.kill()
    contents = contents_of(disk)
    for path in names_on(disk, ".producers"):
        match data.draw(st.sampled_from(["as it is", "missing", "rotten", "empty"]), label=path):
            case "missing":
                del contents[path]
            case "rotten":
                position = data.draw(st.integers(0, len(contents[path]) - 1))
                contents[path] = flipped(contents[path], position=position, bit=data.draw(st.integers(0, 7)))
            case "empty":
                contents[path] = b""
    with Process(disk_with(contents), SMALL) as process:
        assert process.log.report.damages == []
        assert states_of(process.log) == expected


@settings(max_examples=60)
@given(SENDS, st.lists(st.integers(0, 100), min_size=1, max_size=3), st.booleans())
def test_a_truncation_takes_the_states_back(sends: list[Send], percents: list[int], restart_between: bool) -> None:
    disk, process = written(sends)
    for percent in percents:
        process.run(process.log.truncate(Offset(process.log.next_offset * percent // 100)))
        expected = replayed(headers_in(read_all(process.log)))
        assert states_of(process.log) == expected
        if restart_between:
            process.kill()
            disk.crash()
            process = Process(disk, SMALL)
            assert states_of(process.log) == expected
    process.kill()


@settings(max_examples=60)
@given(SENDS, st.integers(0, 100), st.booleans())
def test_what_is_left_of_a_log_is_known_after_its_front_was_deleted(
    sends: list[Send], percent: int, keep_snapshots: bool
) -> None:
    disk, process = written(sends)
    before = states_of(process.log)
    process.run(process.log.delete_before(Offset(process.log.next_offset * percent // 100)))
    assert states_of(process.log) == before
    left = replayed(headers_in(read_all(process.log)))
    process.kill()
    if not keep_snapshots:
        for path in names_on(disk, ".producers"):
            disk.remove(path)
    with Process(disk, SMALL) as process:
        found = states_of(process.log)
    for producer, (epoch, batches) in left.items():
        assert found[producer][0] == epoch
        assert found[producer][1][-len(batches) :] == batches
    for producer, (epoch, batches) in found.items():
        # What a file still holds in front of the start may be known as well, but nothing else.
        assert epoch == before[producer][0]
        assert set(batches) <= set(before[producer][1])


@pytest.mark.parametrize("orderly", [True, False])
def test_no_more_than_two_snapshots_are_kept(*, orderly: bool) -> None:
    sends = [Send(number % 3, 1, 200, new_epoch=False) for number in range(60)]
    disk, process = written(sends)
    assert len(names_on(disk, ".log")) > 10
    assert len(names_on(disk, ".producers")) == 2
    newest = names_on(disk, ".log")[-1].removesuffix(".log")
    assert f"{newest}.producers" in names_on(disk, ".producers")
    if orderly:
        process.close()
        newest = f"{DIRECTORY}/{60:020d}"
    else:
        process.kill()
    assert len(names_on(disk, ".producers")) == 2
    assert f"{newest}.producers" in names_on(disk, ".producers")


def test_with_two_snapshots_one_may_rot_even_where_the_front_of_the_log_is_gone() -> None:
    """Then reading the log cannot tell of a producer whose batches are deleted; the older snapshot does."""
    disk = SimDisk(random.Random(0))
    process = Process(disk, SMALL)
    first = batch_of([NewRecord(b"once")], producer=9, producer_epoch=0, sequence=0)
    process.keep(first)
    for _ in range(40):
        process.keep(batch_of([NewRecord(b"v" * 200)]))
    process.run(process.log.delete_before(Offset(30)))
    process.kill()
    contents = contents_of(disk)
    for path in names_on(disk, ".producers"):
        with Process(disk_with({**contents, path: b"rotten"}), SMALL) as process:
            [appended] = process.keep(first)
            assert (appended.is_duplicate, appended.base_offset) == (True, 0)


def test_a_snapshot_from_beyond_the_end_is_never_believed() -> None:
    """As one is found where a power cut took the end of the log, or a truncation was cut short."""
    sends = [Send(number % 2, 1, 200, new_epoch=False) for number in range(20)]
    disk, process = written(sends)
    process.close()
    newer = {path: content for path, content in contents_of(disk).items() if path.endswith(".producers")}
    disk, process = written(sends[:7])
    expected = states_of(process.log)
    process.kill()
    contents = {**contents_of(disk), **newer}
    assert len(newer) == 2
    with Process(disk_with(contents), SMALL) as process:
        assert states_of(process.log) == expected
        process.keep(batch_of([NewRecord(b"v" * 200)] * 20))
        assert states_of(process.log) == expected


@pytest.mark.parametrize("batches", [3, 4, 5])
def test_a_removal_cut_short_never_takes_a_producer_back(batches: int) -> None:
    """Through several restarts: the files that told of its newest batch are gone by then."""
    retaining = replace(SMALL, retention_ms=10)
    cut_at, was_cut = 1, True
    while was_cut:
        disk = SimDisk(random.Random(cut_at))
        process = Process(disk, retaining, seed=cut_at)
        send_all(process, [Send(1, 1, 300, new_epoch=False)] * batches)
        newest = states_of(process.log)[1][1][-1]
        disk.cut_power_at(cut_at)
        was_cut = False
        try:
            process.run(process.log.upkeep(now_ms=1000))
        except PowerCut:
            was_cut = True
        process.kill()
        disk.crash()
        for _ in range(3):
            with Process(disk, retaining) as process:
                assert states_of(process.log)[1][1][-1] == newest
        cut_at += 1
    assert cut_at > 15


def test_a_snapshot_that_lacks_batches_before_the_first_segment_is_not_believed() -> None:
    """A producer that is forgotten may go on; one that is remembered wrongly would be refused."""
    disk = SimDisk(random.Random(1))
    disk.make_directory(DIRECTORY)
    states = ProducerStates.restore([[7, 0, [[0, 0, 2, 2, 1]]]])
    write_snapshot(disk, DIRECTORY, Offset(3), states.snapshot())
    believed, since = restore_producers(disk, DIRECTORY, [], first=Offset(3), before=Offset(9))
    assert (believed.snapshot(), since) == (states.snapshot(), 3)
    forgotten, since = restore_producers(disk, DIRECTORY, [], first=Offset(4), before=Offset(9))
    assert (len(forgotten), since) == (0, 0)
