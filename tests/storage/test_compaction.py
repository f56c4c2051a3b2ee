"""Compaction against a dictionary: what stays, what goes, and that nothing cut short brings anything back."""

import asyncio
import random
import struct
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import LogCorrupted
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.protocol.records import HEADER_BYTES, Codec, NewRecord, Record, encode_batch
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.models import (
    Process,
    WrittenBatch,
    batch_of,
    contents_of,
    disk_with,
    facts_of,
    flipped,
    headers_in,
    names_on,
    read_all,
    records_in,
)

GRACE_MS = 100
FIRST_PASSES_MS_MAX = 50
COMPACT = LogSettings(
    segment_bytes=1024,
    segment_ms=1,
    index_interval_bytes=100,
    delete=False,
    compact=True,
    compaction_dirty_ratio_min=0,
    tombstone_grace_ms=GRACE_MS,
)


def new(value: bytes | None, key: bytes | None = None, *, timestamp: int = 1) -> NewRecord:
    return NewRecord(value, key, TimestampMs(timestamp))


@dataclass
class Script:
    """A log being written, and everything that was ever in it."""

    process: Process
    epoch: int = 0
    everything: list[Record] = field(default_factory=list)
    newest: dict[int, WrittenBatch] = field(default_factory=dict)
    """Of each idempotent producer."""

    def append(self, records: Sequence[NewRecord], *, codec: Codec = Codec.NONE, producer: int = -1) -> None:
        last = self.newest.get(producer)
        sequence = last.header.base_sequence + last.header.record_count if last else 0 if producer >= 0 else -1
        batch = batch_of(records, codec=codec, producer=producer, producer_epoch=min(producer, 0), sequence=sequence)
        written = WrittenBatch.at(batch, base_offset=self.process.log.next_offset, epoch=self.epoch)
        self.process.keep(batch, epoch=self.epoch)
        self.everything += written.records
        if producer >= 0:
            self.newest[producer] = written

    def seal(self) -> None:
        """Everything written so far becomes ready to be compacted."""
        self.process.run(self.process.log.upkeep(now_ms=10**6))
        self.process.run(self.process.log.flush())
        assert facts_of(self.process.log)[-1].size == 0

    def compact(self, now_ms: int) -> None:
        """As many passes as it takes."""
        log = self.process.log
        for _ in range(100):
            self.process.run(log.compact(now_ms=now_ms))
            if log.checkpoint.cleaned_to == log.next_offset:
                self.process.run(log.compact(now_ms=now_ms))
                return
        raise AssertionError("passes do not come to an end")

    def latest(self, *, tombstones: bool) -> list[Record]:
        """What a compacted log holds: the latest of each key, and all without one."""
        last = {record.key: record.offset for record in self.everything}
        return [
            record
            for record in self.everything
            if record.key is None or (record.offset == last[record.key] and (tombstones or record.value is not None))
        ]


def table(records: Sequence[Record]) -> dict[bytes, bytes]:
    """What a reader who starts at the beginning knows at the end."""
    found: dict[bytes, bytes] = {}
    for record in records:
        if record.key is not None:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
    return found


def records_of(log: Log) -> list[Record]:
    return list(records_in(read_all(log)))


def check_covered(log: Log) -> None:
    """Headers follow one another without gaps, and reading from any offset begins with the batch that covers it."""
    headers = headers_in(read_all(log))
    expected = headers[0].base_offset
    assert expected <= log.start_offset
    for header in headers:
        assert header.base_offset == expected
        expected = header.next_offset
    assert expected == log.next_offset
    for offset in range(log.start_offset, log.next_offset):
        header = headers_in(bytes(log.read(Offset(offset), bytes_max=1).data))[0]
        assert header.base_offset <= offset <= header.last_offset


def check_producers(process: Process, script: Script) -> None:
    for batch in script.newest.values():
        [appended] = process.keep(batch.data, epoch=script.epoch)
        assert appended.is_duplicate
        assert (appended.base_offset, appended.last_offset) == (batch.header.base_offset, batch.header.last_offset)


def check_files(disk: SimDisk, log: Log) -> None:
    assert names_on(disk, ".new") == []
    assert names_on(disk, ".log") == [f"orders-0/{each.base_offset:020d}.log" for each in facts_of(log)]


# What stays

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
VALUES = st.one_of(st.none(), st.integers(0, 200).map(lambda size: b"v" * size))
HEADERS = st.sampled_from([(), (("h", b"1"), ("h", None))])
RECORDS = st.lists(
    st.builds(NewRecord, VALUES, KEYS, st.integers(0, 99).map(TimestampMs), HEADERS), min_size=1, max_size=4
)
APPENDS = st.tuples(RECORDS, st.sampled_from(Codec), st.sampled_from([-1, -1, 0, 1]), st.booleans())
STEPS = st.lists(st.one_of(APPENDS, APPENDS, APPENDS, st.integers(0, FIRST_PASSES_MS_MAX)), min_size=3, max_size=30)


@settings(max_examples=150)
@given(STEPS, st.sampled_from([1, 2, 3, 1000]), st.integers(0, 2**16))
def test_the_latest_record_of_each_key_stays_and_nothing_else(
    steps: list[tuple[list[NewRecord], Codec, int, bool] | int], keys_max: int, seed: int
) -> None:
    disk = SimDisk(random.Random(seed))
    log_settings = replace(COMPACT, compaction_keys_max=keys_max)
    script = Script(Process(disk, log_settings, seed=seed))
    log = script.process.log
    now_ms = 0
    for step in steps:
        if isinstance(step, int):
            now_ms = max(now_ms, step)
            script.process.run(log.compact(now_ms=now_ms))
            found = records_of(log)
            assert set(script.latest(tombstones=True)) <= set(found) <= set(script.everything)
            assert table(found) == table(script.everything)
        else:
            records, codec, producer, new_epoch = step
            script.epoch += new_epoch
            script.append(records, codec=codec, producer=producer)
    if not script.everything:
        script.process.kill()
        return
    script.seal()
    for later_ms, tombstones in ((FIRST_PASSES_MS_MAX, True), (FIRST_PASSES_MS_MAX + GRACE_MS, False)):
        script.compact(later_ms)
        assert records_of(log) == script.latest(tombstones=tombstones)
        check_covered(log)
        check_producers(script.process, script)
        check_files(disk, log)
    script.process.kill()
    check_after_unclean_restart(disk, log_settings, script)


@settings(max_examples=150)
@given(
    st.lists(st.one_of(APPENDS, st.sampled_from([0, 10, GRACE_MS])), min_size=10, max_size=40),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 2**16),
)
def test_no_row_of_partial_passes_loses_a_value_or_brings_one_back(
    steps: list[tuple[list[NewRecord], Codec, int, bool] | int], keys_max: int, seed: int
) -> None:
    """A tombstone must not go before what it deletes, however little each pass reads and however late it comes."""
    script = Script(Process(SimDisk(random.Random(seed)), replace(COMPACT, compaction_keys_max=keys_max), seed=seed))
    log = script.process.log
    now_ms = 0
    for step in steps:
        if isinstance(step, int):
            now_ms += step
            script.process.run(log.upkeep(now_ms=10**6))
            script.process.run(log.flush())
            script.process.run(log.compact(now_ms=now_ms))
            found = records_of(log)
            assert set(script.latest(tombstones=False)) <= set(found) <= set(script.everything)
            assert table(found) == table(script.everything)
        else:
            records, codec, producer, _ = step
            script.append(records, codec=codec, producer=producer)
    script.process.kill()


def check_after_unclean_restart(disk: SimDisk, log_settings: LogSettings, script: Script) -> None:
    """Without any snapshot: the log alone has to know the producers."""
    for path in names_on(disk, ".producers"):
        disk.remove(path)
    disk.crash()
    with Process(disk, log_settings) as process:
        assert process.log.report.damages == []
        assert records_of(process.log) == script.latest(tombstones=False)
        check_covered(process.log)
        check_producers(process, script)


def test_a_tombstone_stays_until_the_end_of_its_grace_to_the_millisecond() -> None:
    script = Script(Process(SimDisk(random.Random(0)), COMPACT))
    script.append([new(b"1", key=b"k", timestamp=5), new(b"2", key=b"l")])
    script.append([new(None, key=b"k", timestamp=7)])
    script.seal()
    log = script.process.log
    for now_ms in (40, 40, 41, 40 + GRACE_MS - 1):
        script.compact(now_ms)
        assert records_of(log) == script.latest(tombstones=True)
    script.compact(40 + GRACE_MS)
    assert records_of(log) == script.latest(tombstones=False)
    script.process.kill()


def test_no_record_goes_because_of_one_that_may_yet_be_cut_off() -> None:
    script = Script(Process(SimDisk(random.Random(0)), COMPACT))
    script.append([new(b"old", b"k")])
    script.seal()
    script.append([new(b"new", b"k")])
    script.seal()
    log = script.process.log
    script.process.run(log.compact(now_ms=10, until=Offset(1)))
    assert [record.value for record in records_of(log)] == [b"old", b"new"]
    script.process.run(log.truncate(Offset(1)))
    assert table(records_of(log)) == {b"k": b"old"}
    script.process.kill()


def test_merged_neighbours_leave_one_file_that_fits_a_segment() -> None:
    disk = SimDisk(random.Random(0))
    script = Script(Process(disk, COMPACT))
    for number in range(60):
        script.append([new(b"%d" % number * 40, key=b"k%d" % (number % 3))])
    script.seal()
    before = len(facts_of(script.process.log))
    for _ in range(4):
        script.compact(10)
    facts = facts_of(script.process.log)
    assert len(facts) < before / 4
    assert all(each.size <= COMPACT.segment_bytes for each in facts)
    check_files(disk, script.process.log)
    check_covered(script.process.log)
    script.process.kill()


def test_a_pass_with_nothing_to_do_replaces_no_segment() -> None:
    disk, script = scripted(0)
    script.seal()
    for _ in range(5):  # a merge may leave neighbours that are small enough for another
        script.compact(10)
    fault = disk.fail("rename", path_pattern="*.log.new", times=None)
    script.process.run(script.process.log.compact(now_ms=10))
    assert fault.hits == 0
    script.process.kill()


def garbage_batch() -> bytes:
    """Whole by its checksum, but what it holds are no records."""
    batch = bytearray(batch_of([new(b"x" * 40, key=b"a")]))
    batch[HEADER_BYTES:] = b"\xff" * (len(batch) - HEADER_BYTES)
    struct.pack_into("!I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_what_a_producer_wrote_unreadably_and_control_batches_stay_as_they_are() -> None:
    script = Script(Process(SimDisk(random.Random(0)), COMPACT))
    log = script.process.log
    script.append([new(b"old", key=b"a")])
    strange = [WrittenBatch.at(garbage_batch(), base_offset=1, epoch=0).data]
    marker = encode_batch([new(b"\0" * 6, key=b"\0\0\0\1")], base_offset=Offset(2), control=True)
    strange.append(WrittenBatch.at(marker, base_offset=2, epoch=0).data)
    script.process.call(lambda: log.append_replicated(b"".join(strange)))
    script.append([new(b"new", key=b"a")])
    script.seal()
    for now_ms in (10, 1000):
        script.compact(now_ms)
        for number, batch in enumerate(strange, start=1):
            assert log.read(Offset(number), bytes_max=1).data == batch
        assert [r.value for r in records_in(read_all(log, start=3))] == [b"new"]
        assert headers_in(bytes(log.read(Offset(0), bytes_max=1).data))[0].record_count == 0
    script.process.kill()


# What happens meanwhile


def scripted(seed: int, *, batches: int = 40, deleted: bool = False) -> tuple[SimDisk, Script]:
    """A log of three keys in several segments and epochs; with `deleted`, one key's tombstone is out of its grace."""
    rng = random.Random(seed)
    disk = SimDisk(rng)
    script = Script(Process(disk, COMPACT, seed=seed))
    if deleted:
        script.append([new(b"gone", key=b"x"), new(b"kept", key=b"y")])
        script.append([new(None, key=b"x")])
        script.append([new(b"filler" * 150)])
        script.seal()
        script.compact(0)
    for number in range(batches):
        script.epoch = number // 15
        value = None if number % 7 == 3 else b"%d" % number * 25
        without_key = [new(b"n")] * (number % 5 == 0)
        script.append([new(value, key=b"k%d" % rng.randrange(3)), *without_key], producer=number % 3 - 1)
    return disk, script


@pytest.mark.parametrize("seed", range(10))
def test_readers_and_writers_go_on_during_a_pass(seed: int) -> None:
    disk, script = scripted(seed)
    log = script.process.log
    views = [log.read(Offset(n), bytes_max=3000).data for n in range(log.next_offset)]
    copies = [bytes(view) for view in views]
    seen: list[int] = []

    async def write_and_read() -> None:
        for number in range(25):
            batch = batch_of([new(b"during %d" % number * 9, key=b"k%d" % (number % 4))])
            written = WrittenBatch.at(batch, base_offset=log.next_offset, epoch=script.epoch)
            await log.append_and_wait(batch, leader_epoch=LeaderEpoch(script.epoch))
            script.everything += written.records
            assert table(records_of(log)) == table(script.everything)
            check_covered(log)
            seen.append(facts_of(log)[0].size)

    async def work() -> None:
        await asyncio.gather(write_and_read(), log.compact(now_ms=10))

    script.process.run(work())
    assert len(set(seen)) > 1, "the pass did not run beside the writing"
    assert all(view == copy for view, copy in zip(views, copies, strict=True))
    script.seal()
    script.compact(20)
    assert records_of(log) == script.latest(tombstones=True)
    check_files(disk, log)
    script.process.kill()


async def beside_a_pass(log: Log, change: Coroutine[Any, Any, None], *, rounds: int) -> None:
    """Lets the pass come some way first: each round of syncs takes its virtual time."""

    async def later() -> None:
        for _ in range(rounds):
            await log.flush()
        await change

    await asyncio.gather(later(), log.compact(now_ms=10))


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("into", ["growing", "sealed"])
def test_a_truncation_during_a_pass_leaves_a_log_without_gaps(rounds: int, into: str) -> None:
    for seed in range(4):
        disk, script = scripted(seed)
        log = script.process.log
        headers = headers_in(read_all(log))
        end = headers[-1].base_offset
        if into == "sealed":
            end = next(each.next_offset for each in headers if each.base_offset == facts_of(log)[-3].base_offset)
        script.everything = [record for record in script.everything if record.offset < end]
        values = {record.offset: record for record in script.everything}
        script.process.run(beside_a_pass(log, log.truncate(Offset(end)), rounds=rounds))
        # What the pass had merged into one gap goes as a whole.
        assert log.next_offset == end or (into == "sealed" and log.next_offset < end)
        for restart in range(2):
            found = records_of(log)
            assert all(values[record.offset] == record for record in found)
            if into == "growing":
                assert table(found) == table(script.everything)
            check_covered(log)
            if not restart:
                script.process.kill()
                disk.crash()
                script.process = Process(disk, COMPACT)
                log = script.process.log
                assert log.report.damages == []
                check_files(disk, log)
        script.process.kill()


@pytest.mark.parametrize("rounds", range(8))
def test_deleting_during_a_pass_takes_no_more_than_asked_for(rounds: int) -> None:
    for seed in range(4):
        disk, script = scripted(seed)
        log = script.process.log
        start = facts_of(log)[2].base_offset + 1
        script.process.run(beside_a_pass(log, log.delete_before(Offset(start)), rounds=rounds))
        assert log.start_offset == start
        later = {record.offset: record for record in script.everything if record.offset >= start}
        for _ in range(2):
            found = [record for record in records_of(log) if record.offset >= start]
            assert all(later[record.offset] == record for record in found)
            assert table(found) == table(list(later.values()))
            check_covered(log)
            script.process.kill()
            disk.crash()
            script.process = Process(disk, COMPACT)
            log = script.process.log
            assert (log.start_offset, log.report.damages) == (start, [])
            check_files(disk, log)
        script.process.kill()


@pytest.mark.parametrize("seed", range(3))
def test_a_pass_cut_short_at_any_operation_loses_nothing_and_brings_nothing_back(seed: int) -> None:
    now_ms = GRACE_MS
    cut_at, was_cut = 1, True
    while was_cut:
        disk, script = scripted(seed, batches=24, deleted=True)
        segments = len(facts_of(script.process.log))
        disk.cut_power_at(cut_at)
        was_cut = False
        try:
            script.process.run(script.process.log.compact(now_ms=now_ms))
        except PowerCut:
            was_cut = True
        script.process.kill()
        disk.crash()
        script.process = Process(disk, COMPACT, seed=cut_at)
        log = script.process.log
        assert log.report.damages == []
        found = records_of(log)
        assert set(found) <= set(script.everything)
        assert table(found) == table(script.everything)
        assert b"x" not in table(found)
        check_covered(log)
        check_files(disk, log)
        check_producers(script.process, script)
        script.seal()
        script.compact(now_ms)
        script.compact(now_ms + GRACE_MS)
        assert records_of(log) == script.latest(tombstones=False)
        assert len(facts_of(log)) < segments, "no merge was cut short"
        check_files(disk, log)
        script.process.kill()
        cut_at += 1
    assert cut_at > 20


# Rot


def test_a_flipped_bit_stops_the_pass_and_the_log_stays_as_it_was() -> None:
    disk, script = scripted(0, batches=12)
    log = script.process.log
    victim = headers_in(read_all(log))[1]
    front = headers_in(read_all(log))[0].size
    script.process.close()
    contents = contents_of(disk)
    path = names_on(disk, ".log")[0]
    logs = {name for name in contents if name.endswith(".log")}
    for position in range(victim.size):
        for bit in range(8) if position < HEADER_BYTES else (position % 8,):
            rotten = {**contents, path: flipped(contents[path], position=front + position, bit=bit)}
            disk = disk_with(rotten)
            with Process(disk, COMPACT) as process:
                with pytest.raises(LogCorrupted) as caught:
                    process.run(process.log.compact(now_ms=10))
                assert (caught.value.file, caught.value.position) == (path, front)
                after = contents_of(disk)
                assert {name: after[name] for name in logs} == {name: rotten[name] for name in logs}
                assert headers_in(bytes(process.log.read(Offset(0), bytes_max=1).data))[0].base_offset == 0
                process.keep(batch_of([new(b"goes on")]), epoch=script.epoch)
