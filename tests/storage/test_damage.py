"""Bytes that are not those that were written: flipped bits, torn tails, garbage, lost and rotten documents."""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.model.errors import DiskFull, LogCorrupted
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.protocol.records import Codec, NewRecord
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.models import (
    DIRECTORY,
    Process,
    WrittenBatch,
    batch_of,
    batch_with,
    contents_after,
    contents_of,
    disk_with,
    facts_of,
    flipped,
    headers_in,
    names_on,
    read_all,
)

SEGMENT = LogSettings(segment_bytes=2048, index_interval_bytes=0, retention_ms=None)
SPARSE = LogSettings(segment_bytes=2048, index_interval_bytes=300, retention_ms=None)
MARKER = f"{DIRECTORY}/clean-shutdown"
FIRST_INDEX = f"{DIRECTORY}/{0:020d}.index"
FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"
VICTIM = 2
"""Which batch of the small log is damaged."""

SMALL_LOG = [
    batch_with(b"before"),
    batch_of([NewRecord(b"just"), NewRecord(b"before")]),
    batch_of(
        [NewRecord(b"one"), NewRecord(b"two", key=b"k"), NewRecord(None)], producer=7, producer_epoch=0, sequence=0
    ),
    batch_with(b"behind"),
    batch_of([NewRecord(b"far"), NewRecord(b"behind")], codec=Codec.GZIP),
]


def placed(batches: list[bytes]) -> list[WrittenBatch]:
    """The batches as the log holds them."""
    written, offset = [], 0
    for batch in batches:
        written.append(WrittenBatch.at(batch, base_offset=offset, epoch=0))
        offset = written[-1].header.next_offset
    return written


def positions(batches: list[WrittenBatch]) -> list[int]:
    return [sum(len(each.data) for each in batches[:number]) for number in range(len(batches))]


def bits_of(batch: WrittenBatch) -> Iterator[tuple[int, int]]:
    return ((position, bit) for position in range(len(batch.data)) for bit in range(8))


def check_damaged(log: Log, written: list[WrittenBatch], victim: int, *, behind: str = "readable") -> None:
    """No wrong byte is served, from whichever offset and however far one reads."""
    position = positions(written)[victim]
    bad = written[victim].header
    for until in (None, bad.next_offset, Offset(bad.next_offset + 1)):
        with pytest.raises(LogCorrupted) as caught:
            log.read(bad.base_offset, bytes_max=5000, until=until)
        assert (caught.value.file, caught.value.position) == (FIRST_LOG, position)
    for batch in written[:victim]:
        assert log.read(batch.header.base_offset, bytes_max=1).data == batch.data
    if victim:
        assert log.read(Offset(0), bytes_max=5000).data == b"".join(batch.data for batch in written[:victim])
    for batch in written[victim + 1 :]:
        try:
            assert log.read(batch.header.base_offset, bytes_max=1).data == batch.data
        except LogCorrupted:
            assert behind != "readable"


# Flipped bits


@pytest.mark.parametrize("settings", [SEGMENT, SPARSE], ids=["every batch indexed", "sparse index"])
@pytest.mark.parametrize("sealed", [False, True], ids=["growing segment", "sealed segment"])
def test_no_flipped_bit_is_served_while_the_log_is_open(tmp_path: Path, *, settings: LogSettings, sealed: bool) -> None:
    written = placed(SMALL_LOG)
    at = positions(written)[VICTIM]
    with Process(OsFilesystem(tmp_path), settings) as process:
        process.keep(*SMALL_LOG)
        if sealed:
            process.keep(batch_with(b"large" * 400))
        assert read_all(process.log, bytes_max=1).startswith(b"".join(batch.data for batch in written))
        with (tmp_path / FIRST_LOG).open("r+b", buffering=0) as file:
            for position, bit in bits_of(written[VICTIM]):
                right = written[VICTIM].data[position]
                file.seek(at + position)
                file.write(bytes([right ^ 1 << bit]))
                check_damaged(process.log, written, VICTIM, behind="readable" if settings is SEGMENT else "perhaps")
                file.seek(at + position)
                file.write(bytes([right]))
        assert process.log.read(written[VICTIM].header.base_offset, bytes_max=1).data == written[VICTIM].data


@pytest.mark.parametrize("settings", [SEGMENT, SPARSE], ids=["every batch indexed", "sparse index"])
def test_no_flipped_bit_is_served_after_an_orderly_restart(settings: LogSettings) -> None:
    written = placed(SMALL_LOG)
    at = positions(written)[VICTIM]
    contents = contents_after(SMALL_LOG, settings, orderly=True)
    for position, bit in bits_of(written[VICTIM]):
        rotten = {**contents, FIRST_LOG: flipped(contents[FIRST_LOG], position=at + position, bit=bit)}
        with Process(disk_with(rotten), settings) as process:
            assert process.log.report.clean
            check_damaged(process.log, written, VICTIM, behind="readable" if settings is SEGMENT else "perhaps")


@pytest.mark.parametrize("victim", range(len(SMALL_LOG)))
def test_a_flipped_bit_below_the_recovery_point_is_reported_and_costs_only_its_batch(victim: int) -> None:
    written = placed(SMALL_LOG)
    at, bad, end = positions(written)[victim], written[victim].header, written[-1].header.next_offset
    contents = contents_after(SMALL_LOG, SEGMENT, orderly=True)
    del contents[MARKER]
    del contents[FIRST_INDEX]  # with it, recovery would begin behind the damage, and leave it to readers to find
    # Of the neighbours of the batch in the middle one bit a byte is enough; the test stays quick.
    bits = bits_of(written[victim]) if victim == VICTIM else ((p, p % 8) for p in range(len(written[victim].data)))
    for position, bit in bits:
        rotten = {**contents, FIRST_LOG: flipped(contents[FIRST_LOG], position=at + position, bit=bit)}
        with Process(disk_with(rotten), SPARSE) as process:
            log = process.log
            assert [damage[:3] for damage in log.report.damages] == [(FIRST_LOG, at, bad.base_offset)]
            assert not log.report.clean
            check_damaged(log, written, victim)
            assert log.next_offset == end
            [appended] = process.keep(batch_with(b"new"))
            assert appended.base_offset == end
            assert b"new" in bytes(log.read(Offset(end), bytes_max=1).data)


def test_damage_stays_known_through_further_restarts() -> None:
    written = placed(SMALL_LOG)
    contents = contents_after(SMALL_LOG, SEGMENT, orderly=True)
    del contents[MARKER]
    del contents[FIRST_INDEX]  # with it, recovery would begin behind the damage, and leave it to readers to find
    for victim in range(len(SMALL_LOG)):
        at = positions(written)[victim]
        disk = disk_with({**contents, FIRST_LOG: flipped(contents[FIRST_LOG], position=at + 30, bit=0)})
        for _ in range(3):
            process = Process(disk, SEGMENT)
            process.keep(batch_with(b"more"))
            check_damaged(process.log, written, victim)
            process.kill()
            process = Process(disk, SEGMENT)
            check_damaged(process.log, written, victim)
            process.close()


@pytest.mark.parametrize("orderly", [True, False])
def test_sampled_flips_in_a_large_batch_are_found(*, orderly: bool) -> None:
    rng = random.Random(20)
    batches = [batch_with(b"before"), batch_with(rng.randbytes(100_000)), batch_with(b"behind")]
    written = placed(batches)
    at = positions(written)[1]
    settings = LogSettings(index_interval_bytes=0)
    contents = contents_after(batches, settings, orderly=True)
    if not orderly:
        del contents[MARKER]
    del contents[FIRST_INDEX]  # with it, recovery would begin behind the damage, and leave it to readers to find
    for _ in range(150):
        position, bit = rng.randrange(len(written[1].data)), rng.randrange(8)
        rotten = {**contents, FIRST_LOG: flipped(contents[FIRST_LOG], position=at + position, bit=bit)}
        with Process(disk_with(rotten), settings) as process:
            assert [damage[:3] for damage in process.log.report.damages] == ([] if orderly else [(FIRST_LOG, at, 1)])
            check_damaged(process.log, written, 1)


def test_a_batch_within_a_damaged_record_is_not_taken_for_one_of_the_log() -> None:
    """A record may hold the bytes of a batch, as copies of a log do; when its own batch rots, they stay its bytes."""
    inner = WrittenBatch.at(batch_with(b"forged"), base_offset=2, epoch=0).data
    batches = [batch_with(b"before"), batch_with(b"copy:" + inner), *(batch_with(b"behind %d" % n) for n in range(3))]
    written = placed(batches)
    at = positions(written)[1]
    contents = contents_after(batches, SEGMENT, orderly=True)
    del contents[MARKER]
    del contents[FIRST_INDEX]  # with it, recovery would begin behind the damage, and leave it to readers to find
    for position, bit in ((10, 0), (21, 0), (40, 3), (len(written[1].data) - 1, 0)):
        rotten = {**contents, FIRST_LOG: flipped(contents[FIRST_LOG], position=at + position, bit=bit)}
        with Process(disk_with(rotten), SEGMENT) as process:
            check_damaged(process.log, written, 1)
            assert b"forged" not in read_all(process.log, start=2)


# Torn tails and garbage


def test_a_tail_torn_at_any_byte_is_cut_where_nobody_was_told_of_it() -> None:
    written = placed(SMALL_LOG)
    at, last = positions(written)[-1], written[-1]
    contents = contents_after(SMALL_LOG, SEGMENT, orderly=False)
    for size in range(len(last.data)):
        disk = disk_with({**contents, FIRST_LOG: contents[FIRST_LOG][: at + size]})
        with Process(disk, SEGMENT) as process:
            log = process.log
            # The first bytes of an offset are zeros, as what is blank ahead of a log that grows.
            assert (log.report.bytes_cut, log.report.damages) == (size if any(last.data[:size]) else 0, [])
            assert disk.size(FIRST_LOG) == at
            assert read_all(log) == b"".join(batch.data for batch in written[:-1])
            [appended] = process.keep(batch_with(b"instead"))
            assert appended.base_offset == last.header.base_offset
        with Process(disk, SEGMENT) as process:
            assert process.log.report.bytes_cut == 0
            assert read_all(process.log).startswith(b"".join(batch.data for batch in written[:-1]))


def test_a_tail_torn_below_the_recovery_point_is_damage_and_its_offsets_stay_taken() -> None:
    written = placed(SMALL_LOG)
    at, last = positions(written)[-1], written[-1]
    contents = contents_after(SMALL_LOG, SEGMENT, orderly=True)
    for size in range(len(last.data)):
        with Process(disk_with({**contents, FIRST_LOG: contents[FIRST_LOG][: at + size]}), SEGMENT) as process:
            log = process.log
            assert [damage[:3] for damage in log.report.damages] == [(FIRST_LOG, at, last.header.base_offset)]
            assert log.next_offset == last.header.next_offset
            with pytest.raises(LogCorrupted):
                log.read(last.header.base_offset, bytes_max=1)
            assert process.keep(batch_with(b"new"))[0].base_offset == last.header.next_offset


@pytest.mark.parametrize("orderly", [True, False], ids=["after an orderly close", "after a kill"])
def test_whatever_stands_behind_the_end_is_cut(*, orderly: bool) -> None:
    written = placed(SMALL_LOG)
    whole = b"".join(batch.data for batch in written)
    contents = contents_after(SMALL_LOG, SEGMENT, orderly=orderly)
    last, end = written[-1], written[-1].header.next_offset
    rng = random.Random(3)
    tails = [bytes(size) for size in (1, 12, 60, 61, 512, 4096)]
    tails += [rng.randbytes(size) for size in (1, 12, 60, 61, 512, 4096)]
    tails += [last.data, whole, WrittenBatch.at(SMALL_LOG[0], base_offset=end, epoch=9).data]
    tails += [WrittenBatch.at(SMALL_LOG[0], base_offset=end + gap, epoch=0).data for gap in (-1, 1, 2**40)]
    for tail in tails:
        with Process(disk_with({**contents, FIRST_LOG: whole + tail}), SEGMENT) as process:
            log = process.log
            assert (log.next_offset, log.report.damages) == (end, [])
            assert log.report.bytes_cut == (len(tail) if any(tail) else 0)
            assert read_all(log) == whole
            assert process.keep(batch_with(b"next"))[0].base_offset == end


def test_the_torn_tail_of_an_append_that_failed_does_not_come_back() -> None:
    """Neither where its segment is sealed next and the power goes at whichever operation of that."""
    batch = batch_with(b"kept", timestamp=1000)
    rolling = replace(SEGMENT, segment_ms=50)
    for room_bytes, seed in itertools.product((1, 70), range(10)):
        cut_at, was_cut = 1, True
        while was_cut:
            disk = SimDisk(random.Random(seed))
            process = Process(disk, rolling, seed=cut_at)
            process.keep(batch)
            disk.capacity_bytes = disk.used_bytes + room_bytes
            with pytest.raises(DiskFull):
                process.keep(batch_with(b"refused" * 20))
            disk.capacity_bytes = None
            disk.cut_power_at(cut_at)
            was_cut = False
            try:
                process.run(process.log.upkeep(now_ms=1060))
                process.run(process.log.flush())
            except PowerCut:
                was_cut = True
            process.kill()
            disk.crash()
            with Process(disk, rolling) as process:
                assert process.log.report.damages == []
                assert sum(each.size for each in facts_of(process.log)) == len(batch)
                assert process.log.first_since(TimestampMs(0)) == (0, 1000)
                assert process.log.first_since(TimestampMs(2000)) is None
            cut_at += 1
        assert cut_at > 10


# Lost and rotten documents


def rich_contents(*, orderly: bool) -> tuple[dict[str, bytes], bytes, list[bytes]]:
    """Several segments, epochs and snapshots; what a read gives; and the last batches of an idempotent producer."""
    disk = SimDisk(random.Random(0))
    process = Process(disk, SEGMENT)
    sent = []
    for number in range(40):
        sent.append(batch_of([NewRecord(b"v" * 150)], producer=5, producer_epoch=0, sequence=number))
        process.keep(sent[-1], epoch=number // 9)
    data = read_all(process.log)
    if orderly:
        process.close()
    else:
        process.kill()
    return contents_of(disk), data, sent[-5:]


def check_same(contents: Mapping[str, bytes], data: bytes, sent: list[bytes]) -> None:
    with Process(disk_with(contents), SEGMENT) as process:
        log = process.log
        assert (log.report.damages, log.report.bytes_cut) == ([], 0)
        assert read_all(log) == data
        for number, (batch, appended) in enumerate(zip(sent, process.keep(*sent, epoch=4), strict=True), start=35):
            assert (appended.is_duplicate, appended.base_offset) == (True, number), batch
        assert log.epochs.pairs() == [(epoch, epoch * 9) for epoch in range(5)]
        process.keep(batch_with(b"goes on"), epoch=5)
        assert read_all(log).startswith(data)


@pytest.mark.parametrize("orderly", [True, False], ids=["after an orderly close", "after a kill"])
def test_any_document_may_be_lost(*, orderly: bool) -> None:
    contents, data, sent = rich_contents(orderly=orderly)
    documents = [path for path in contents if not path.endswith(".log")]
    assert len(documents) > 5
    for lost in [*([path] for path in documents), documents]:
        check_same({path: content for path, content in contents.items() if path not in lost}, data, sent)


@pytest.mark.parametrize("orderly", [True, False], ids=["after an orderly close", "after a kill"])
def test_any_document_may_rot_be_empty_or_be_cut(*, orderly: bool) -> None:
    contents, data, sent = rich_contents(orderly=orderly)
    rng = random.Random(4)
    for path in [path for path in contents if not path.endswith(".log")]:
        size = len(contents[path])
        for position in range(size) if size < 60 else rng.sample(range(size), 60):
            rotten = flipped(contents[path], position=position, bit=rng.randrange(8))
            check_same({**contents, path: rotten}, data, sent)
        for length in (0, 1, size // 2, size - 1):
            check_same({**contents, path: contents[path][:length]}, data, sent)
        check_same({**contents, path: bytes(size)}, data, sent)


def test_indexes_of_another_log_are_refused() -> None:
    contents, data, sent = rich_contents(orderly=True)
    other = contents_after([batch_with(b"w" * 99)] * 60, SEGMENT, orderly=True)
    strange = [other[path] for path in other if path.endswith(".index")]
    own = [path for path in contents if path.endswith(".index")]
    assert len(own) > 2
    assert len(strange) > 2
    for path in own:
        for index in strange:
            check_same({**contents, path: index}, data, sent)


def test_an_index_from_before_a_truncation_does_not_mislead_when_the_segment_regrows_to_its_size() -> None:
    """Cuts the power at every operation of the truncation and of the growing after it."""
    first = [batch_with(b"a" * 100), batch_with(b"b" * 300), batch_with(b"c" * 100)]
    second = [batch_with(b"d" * 100), batch_with(b"e" * 100), batch_with(b"f" * 300)]
    cut_at, was_cut = 1, True
    while was_cut:
        disk = SimDisk(random.Random(cut_at))
        process = Process(disk, SEGMENT)
        process.keep(*first, batch_with(b"g" * 1500))
        size = disk.size(FIRST_LOG)
        was_cut = False
        try:
            disk.cut_power_at(cut_at)
            process.run(process.log.truncate(Offset(0)))
            process.keep(*second)
            assert disk.size(FIRST_LOG) == size
            process.keep(batch_with(b"h" * 1500))
        except PowerCut:
            was_cut = True
        process.kill()
        disk.crash()
        with Process(disk, SEGMENT) as process:
            for header in headers_in(read_all(process.log)):
                assert headers_in(bytes(process.log.read(header.base_offset, bytes_max=1).data)) == [header]
            assert process.log.report.damages == []
            assert len(names_on(disk, ".log")) == len(facts_of(process.log))
        cut_at += 1
    assert cut_at > 20


def test_what_was_never_synced_is_synced_once_it_is_served_though_the_checkpoint_was_lost() -> None:
    """Killed with three segments unsynced: recovery finds them, and nothing tells it that they are not on disk yet."""
    disk = SimDisk(random.Random(1))
    process = Process(disk, SEGMENT)
    process.keep(batch_with(b"v"))
    process.call(lambda: [process.log.append(batch_with(b"v" * 1000), leader_epoch=LeaderEpoch(0)) for _ in range(6)])
    process.kill()
    disk.end_process()
    disk.remove(f"{DIRECTORY}/checkpoint")
    with Process(disk, SEGMENT) as process:
        assert process.log.report.damages == []
        data = read_all(process.log)
    disk.crash("lose")
    with Process(disk, SEGMENT) as process:
        assert (process.log.report.damages, read_all(process.log)) == ([], data)
