"""Appending: offsets, stamps, rolling; and input that is no batch changes not one byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    MalformedBatch,
    RequestError,
    UnsupportedCompression,
    UnsupportedMagic,
)
from millpond.model.ids import LeaderEpoch, Offset
from millpond.protocol.records import Codec, NewRecord, encode_batch, encode_values, iter_batches, parse_header
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    DIRECTORY,
    EPOCH,
    NOW,
    append,
    batch_of,
    facts_of,
    files_of,
    forged,
    new_disk,
    open_log,
    placed_batch,
    read_all,
    sequenced_batch,
    simulated,
    values_of,
)

SMALL = LogSettings(segment_bytes=1024)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


# Offsets and stamps


@simulated
async def test_offsets_count_records_from_0_without_gaps(disk: SimDisk) -> None:
    log = open_log(disk)
    assert append(log, b"a", b"b", b"c")[:2] == (0, 2)
    assert append(log, b"d")[:2] == (3, 3)
    assert append(log, b"e", b"f")[:2] == (4, 5)
    assert (log.start_offset, log.next_offset) == (0, 6)
    assert values_of(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    await log.close()


@simulated
async def test_what_lies_on_disk_is_what_was_sent_apart_from_offset_and_epoch(disk: SimDisk) -> None:
    log = open_log(disk)
    sent = [batch_of(b"a", b"b"), batch_of(b"c" * 500, codec=Codec.ZSTD), sequenced_batch(b"d", sequence=0)]
    for batch in sent:
        log.append(batch, leader_epoch=LeaderEpoch(9))
    await log.close()
    (content,) = files_of(disk, suffix=".log").values()
    placed = list(iter_batches(content))
    assert [header.base_offset for _, header in placed] == [0, 2, 3]
    assert {header.leader_epoch for _, header in placed} == {9}
    for (position, header), batch in zip(placed, sent, strict=True):
        assert content[position + 16 : position + header.size] == batch[16:]


@simulated
async def test_the_callers_bytes_are_copied_before_they_are_stamped(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"first")
    batch = batch_of(b"a")
    before = bytes(bytearray(batch))
    log.append(batch, leader_epoch=EPOCH)
    log.append(memoryview(batch), leader_epoch=EPOCH)
    log.append(memoryview(bytearray(batch)).toreadonly(), leader_epoch=EPOCH)
    assert batch == before
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]
    await log.close()


@simulated
async def test_a_writable_buffer_is_stamped_in_place(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"first")
    for buffer in (bytearray(batch_of(b"a")), memoryview(bytearray(batch_of(b"b")))):
        appended = log.append(buffer, leader_epoch=EPOCH)
        header = parse_header(buffer)
        assert (header.base_offset, header.leader_epoch) == (appended.base_offset, EPOCH)
    assert values_of(log) == [b"first", b"a", b"b"]
    await log.close()


@simulated
async def test_a_buffer_used_again_by_its_owner_does_not_change_the_log(disk: SimDisk) -> None:
    log = open_log(disk)
    buffer = bytearray(batch_of(b"kept"))
    log.append(buffer, leader_epoch=EPOCH)
    buffer[:] = bytes(len(buffer))
    assert values_of(log) == [b"kept"]
    await log.close()


# Rolling


@simulated
async def test_a_segment_that_would_outgrow_its_size_is_rolled(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    size = len(batch_of(b"x" * 239))
    for number in range(10):
        append(log, b"%d" % number + b"x" * 238)
    per_segment = 1024 // size
    assert [each.base_offset for each in facts_of(log)] == list(range(0, 10, per_segment))
    assert all(each.size <= 1024 for each in facts_of(log))
    assert [value[:1] for value in values_of(log) if value] == [b"%d" % number for number in range(10)]
    await log.close()


@simulated
async def test_a_segment_may_be_filled_to_its_very_last_byte(disk: SimDisk) -> None:
    half = batch_of(b"x" * (512 - len(batch_of(b"x" * 100)) + 100))
    assert len(half) == 512
    log = open_log(disk, SMALL)
    for _ in range(2):
        log.append(half, leader_epoch=EPOCH)
    assert [each.size for each in facts_of(log)] == [1024]
    append(log, b"one more")
    assert [each.size for each in facts_of(log)] == [1024, len(batch_of(b"one more"))]
    await log.close()


@simulated
async def test_a_batch_larger_than_a_segment_gets_one_of_its_own(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for value in (b"large" * 1000, b"small", b"large" * 1000, b"small"):
        append(log, value)
    assert [each.base_offset for each in facts_of(log)] == [0, 1, 2, 3]
    assert values_of(log) == [b"large" * 1000, b"small"] * 2
    await log.close()


@simulated
async def test_upkeep_rolls_a_segment_once_it_is_old_enough(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(segment_ms=1000, retention_ms=None))
    append(log, b"a")
    await log.upkeep(now_ms=NOW + 999)
    assert len(facts_of(log)) == 1
    await log.upkeep(now_ms=NOW + 1000)
    assert [each.base_offset for each in facts_of(log)] == [0, 1]
    await log.upkeep(now_ms=NOW + 99_999)
    assert len(facts_of(log)) == 2, "an empty segment does not age"
    log.append(batch_of(b"b", timestamp=NOW + 99_999), leader_epoch=EPOCH)
    await log.upkeep(now_ms=NOW + 100_998)
    assert len(facts_of(log)) == 2
    await log.upkeep(now_ms=NOW + 100_999)
    assert [each.base_offset for each in facts_of(log)] == [0, 1, 2]
    assert values_of(log) == [b"a", b"b"]
    await log.close()


@pytest.mark.parametrize("timestamp", [-1, NOW + 10**9])
@simulated
async def test_a_batch_without_a_time_or_from_the_future_ages_from_when_upkeep_met_it(timestamp: int) -> None:
    log = open_log(new_disk(), LogSettings(segment_ms=1000, retention_ms=None))
    log.append(batch_of(b"a", timestamp=timestamp), leader_epoch=EPOCH)
    await log.upkeep(now_ms=NOW)
    await log.upkeep(now_ms=NOW + 999)
    assert len(facts_of(log)) == 1
    await log.upkeep(now_ms=NOW + 1000)
    assert len(facts_of(log)) == 2
    await log.close()


@simulated
async def test_a_segment_does_not_grow_younger_by_a_restart(disk: SimDisk) -> None:
    settings = LogSettings(segment_ms=1000, retention_ms=None)
    log = open_log(disk, settings)
    append(log, b"a")
    await log.upkeep(now_ms=NOW)
    await log.close()
    log = open_log(disk, settings)
    await log.upkeep(now_ms=NOW + 1000)
    assert len(facts_of(log)) == 2
    await log.close()


# Input that is no batch

GOOD = batch_of(b"hello", b"world")
CASES: list[tuple[str, bytes, type[RequestError], str]] = [
    ("nothing at all", b"", MalformedBatch, "0 bytes"),
    ("a few bytes", b"hello", MalformedBatch, "5 bytes"),
    ("one byte short", GOOD[:-1], MalformedBatch, f"batchLength at byte 0 is {len(GOOD) - 12}"),
    ("half a header", GOOD[:40], MalformedBatch, "40 bytes"),
    ("zeros", bytes(100), UnsupportedMagic, "magic of the batch at byte 0 is 0"),
    ("the format before", forged(GOOD, magic=1), UnsupportedMagic, "is 1; only format v2"),
    ("a format to come", forged(GOOD, magic=3), UnsupportedMagic, "is 3; only format v2"),
    ("a length below the header's", forged(GOOD, length=48), MalformedBatch, "batchLength at byte 0 is 48"),
    ("a negative length", forged(GOOD, length=-1), MalformedBatch, "batchLength at byte 0 is -1"),
    ("a length beyond the bytes", forged(GOOD, length=10_000), MalformedBatch, "batchLength at byte 0 is 10000"),
    ("a length beyond all bounds", forged(GOOD, length=2**31 - 1), BatchTooLarge, "2147483647"),
    ("a flipped bit", GOOD[:-1] + bytes([GOOD[-1] ^ 1]), CorruptBatch, "checksum of the batch at byte 0 is 0x"),
    ("two batches", GOOD + GOOD, InvalidRecord, f"{2 * len(GOOD)} bytes hold more than one batch"),
    ("a tail", GOOD + b"\0", InvalidRecord, f"{len(GOOD) + 1} bytes"),
    ("a codec that does not exist", forged(GOOD, attributes=7), UnsupportedCompression, "codec is 7"),
    ("a control batch", forged(GOOD, attributes=32), InvalidRecord, "control batch"),
    ("a delete horizon", forged(GOOD, attributes=64), InvalidRecord, "delete horizon"),
    ("no records", forged(GOOD, record_count=0), InvalidRecord, "recordsCount is 0"),
    ("fewer records than none", forged(GOOD, record_count=-1), InvalidRecord, "recordsCount is -1"),
    ("more records than fit", forged(GOOD, record_count=900, last_offset_delta=899), InvalidRecord, "900"),
    ("more records than allowed", forged(GOOD, record_count=2**31 - 1), BatchTooLarge, "2147483647"),
    ("a gap in the offsets", forged(GOOD, last_offset_delta=9), InvalidRecord, "lastOffsetDelta is 9"),
    ("offsets that go back", forged(GOOD, last_offset_delta=-5), InvalidRecord, "lastOffsetDelta is -5"),
    ("a producer without a sequence", forged(GOOD, producer_id=5), InvalidRecord, "producerId is 5"),
    ("a transaction of nobody", forged(GOOD, attributes=16), InvalidRecord, "producerId -1"),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "error", "shown"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@simulated
async def test_bad_input_is_refused_with_the_value_and_changes_nothing(
    batch: bytes, error: type[RequestError], shown: str
) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"before")
    files, facts = files_of(disk), facts_of(log)
    buffer = bytearray(batch)
    with pytest.raises(error) as caught:
        log.append(buffer, leader_epoch=LeaderEpoch(EPOCH + 1))
    assert type(caught.value) is error
    assert shown in str(caught.value)
    assert buffer == batch
    assert (files_of(disk), facts_of(log), log.next_offset) == (files, facts, 1)
    assert append(log, b"after").base_offset == 1
    assert values_of(log) == [b"before", b"after"]
    await log.close()


@simulated
async def test_a_batch_is_too_large_by_one_byte_and_not_by_none(disk: SimDisk) -> None:
    size = len(GOOD)
    log = open_log(disk, LogSettings(batch_bytes_max=size))
    log.append(GOOD, leader_epoch=EPOCH)
    with pytest.raises(BatchTooLarge, match=rf"has {size + 1} bytes; allowed are {size} \(max.message.bytes\)"):
        append(log, b"hello", b"world!")
    assert values_of(log) == [b"hello", b"world"]
    await log.close()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Bytes that were a batch, or two, until something happened to them."""
    batch = bytearray(
        draw(st.sampled_from([GOOD, GOOD + GOOD, sequenced_batch(b"x", sequence=1), placed_batch(b"y", offset=5)]))
    )
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(batch) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "put", "remove"])):
            case "flip" if batch:
                batch[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del batch[at:]
            case "put":
                batch[at:at] = draw(st.binary(max_size=8))
            case _:
                del batch[at : at + 4]
    fits = len(batch) >= 61 and batch[16] == 2
    if fits and draw(st.booleans()):  # so that more than the checksum is put to the test
        length = int.from_bytes(batch[8:12], "big", signed=True)
        if 49 <= length == len(batch) - 12:
            return forged(batch)
    return bytes(batch)


@given(st.lists(st.one_of(mutated(), st.binary(max_size=150)), max_size=5))
@simulated
async def test_whatever_is_appended_is_taken_whole_or_refused_as_the_callers_mistake(inputs: list[bytes]) -> None:
    log = open_log(new_disk(), LogSettings(flush=Flush.NONE))
    taken = 0
    for data in inputs:
        try:
            appended = log.append(data, leader_epoch=EPOCH)
        except RequestError:
            pass
        else:
            taken += 0 if appended.is_duplicate else len(data)
        assert log.size_bytes() == taken
    at = log.start_offset
    while at < log.next_offset:
        at = log.read(at, bytes_max=1).next_offset
    log.abandon()


# In bulk


@pytest.mark.slow
@simulated
async def test_a_million_messages_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(tmp_path), LogSettings(segment_bytes=8 << 20))
    for thousand in range(1000):
        values = [b"%d" % number for number in range(thousand * 1000, thousand * 1000 + 1000)]
        log.append(encode_values(values, timestamp=NOW), leader_epoch=EPOCH)
    await log.flush()
    assert log.durable_offset == 1_000_000
    assert len(facts_of(log)) > 1
    assert_counts_to_a_million(log)
    await log.close()
    log = open_log(OsFilesystem(tmp_path))
    assert log.report.clean
    assert_counts_to_a_million(log)
    await log.close()


@simulated
async def test_a_log_that_is_rolled_or_closed_holds_no_more_of_the_disk_than_it_needs(tmp_path: Path) -> None:
    log = open_log(OsFilesystem(tmp_path), LogSettings(segment_bytes=5 << 20))
    for _ in range(7):
        append(log, bytes(1_000_000))
    await log.close()
    segments = list((tmp_path / DIRECTORY).glob("*.log"))
    assert len(segments) == 2
    for each in segments:
        found = each.stat()
        assert found.st_blocks * 512 <= found.st_size + 100_000


def assert_counts_to_a_million(log: Log) -> None:
    records = read_all(log, bytes_max=1 << 22)
    assert [record.value for record in records] == [b"%d" % number for number in range(1_000_000)]


@simulated
async def test_keys_headers_and_times_come_back_too(disk: SimDisk) -> None:
    sent = [
        NewRecord(b"v", key=b"k", timestamp=NOW, headers=(("h", b"1"), ("h", None))),
        NewRecord(None, key=b"k"),
        NewRecord(b"", key=b""),
    ]
    log = open_log(disk)
    log.append(encode_batch(sent, codec=Codec.LZ4), leader_epoch=EPOCH)
    assert [NewRecord(each.value, each.key, each.timestamp, each.headers) for each in read_all(log)] == sent
    assert log.next_offset == Offset(3)
    await log.close()
