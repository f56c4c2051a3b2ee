"""Batches from a leader: taken as they are, with their offsets and epochs, or not at all."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch, InvalidRecord, MalformedBatch, RequestError
from millpond.model.ids import Offset
from millpond.protocol.records import Codec
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    EPOCH,
    append,
    batch_of,
    files_of,
    forged,
    new_disk,
    open_log,
    placed_batch,
    sequenced_batch,
    simulated,
    values_of,
)

SMALL = LogSettings(segment_bytes=1024, retention_ms=None)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


def whole_log(log: Log) -> bytes:
    """Everything the log holds, as its followers fetch it."""
    content, at = b"", log.start_offset
    while at < log.next_offset:
        found = log.read(at, bytes_max=300)
        content, at = content + found.data, found.next_offset
    return content


@simulated
async def test_a_follower_holds_the_very_bytes_of_its_leader(disk: SimDisk) -> None:
    leader = open_log(disk, SMALL)
    append(leader, b"a", b"b", epoch=1)
    leader.append(batch_of(b"c" * 500, codec=Codec.GZIP), leader_epoch=EPOCH)
    for sequence in range(8):
        leader.append(sequenced_batch(b"d" * 150, sequence=sequence), leader_epoch=EPOCH)
    other = new_disk()
    follower = open_log(other, LogSettings(segment_bytes=2000))
    content = whole_log(leader)
    assert follower.append_replicated(content)[:2] == (0, leader.next_offset - 1)
    assert whole_log(follower) == content
    assert follower.epochs.pairs() == leader.epochs.pairs()
    assert values_of(follower) == values_of(leader)
    again = follower.append(sequenced_batch(b"d" * 150, sequence=7), leader_epoch=EPOCH)
    assert (again.is_duplicate, again.base_offset) == (True, leader.next_offset - 1)
    await leader.close()
    await follower.close()
    follower = open_log(other)
    assert whole_log(follower) == content
    follower.abandon()


@simulated
async def test_offsets_and_epochs_are_kept(disk: SimDisk) -> None:
    log = open_log(disk)
    batches = placed_batch(b"a", b"b", offset=0, epoch=2) + placed_batch(b"c", offset=2, epoch=5)
    appended = log.append_replicated(batches)
    assert appended[:2] == (0, 2)
    log.append_replicated(placed_batch(b"d", offset=3, epoch=5))
    assert log.epochs.pairs() == [(2, 0), (5, 2)]
    assert values_of(log) == [b"a", b"b", b"c", b"d"]
    await log.wait_kept(appended)
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert values_of(log)[:3] == [b"a", b"b", b"c"]
    assert log.epochs.pairs() == [(2, 0), (5, 2)]
    log.abandon()


@simulated
async def test_nothing_from_the_leader_changes_nothing(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    files = files_of(disk)
    log.append_replicated(b"")
    assert (files_of(disk), log.next_offset) == (files, 1)
    await log.close()


@simulated
async def test_the_callers_bytes_are_left_alone(disk: SimDisk) -> None:
    log = open_log(disk)
    buffer = bytearray(placed_batch(b"a", offset=0))
    before = bytes(buffer)
    log.append_replicated(buffer)
    assert buffer == before
    await log.close()


@pytest.mark.parametrize(
    ("batches", "shown"),
    [
        (placed_batch(b"x", offset=3), "offset 3 of epoch 3; here 2 of epoch 3 or newer comes next"),
        (placed_batch(b"x", offset=1), "offset 1 of epoch 3; here 2 of epoch 3"),
        (placed_batch(b"x", offset=0), "offset 0 of epoch 3; here 2"),
        (placed_batch(b"x", offset=2, epoch=2), "offset 2 of epoch 2; here 2 of epoch 3 or newer"),
        (placed_batch(b"x", offset=2, epoch=-1), "of epoch -1"),
        (placed_batch(b"x", offset=2) + placed_batch(b"y", offset=4), "offset 4 of epoch 3; here 3"),
        (placed_batch(b"x", offset=2) + placed_batch(b"y", offset=2), "offset 2 of epoch 3; here 3"),
        (placed_batch(b"x", offset=2, epoch=7) + placed_batch(b"y", offset=3, epoch=6), "epoch 6; here 3 of epoch 7"),
    ],
    ids=["gap", "overlap", "again", "older epoch", "no epoch", "gap inside", "again inside", "older epoch inside"],
)
@simulated
async def test_what_does_not_follow_is_refused_as_a_whole(batches: bytes, shown: str) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"a", b"b")
    files = files_of(disk)
    with pytest.raises(InvalidRecord) as caught:
        log.append_replicated(batches)
    assert shown in str(caught.value)
    assert (files_of(disk), log.next_offset, log.epochs.pairs()) == (files, 2, [(EPOCH, 0)])
    log.append_replicated(placed_batch(b"c", offset=2))
    assert values_of(log) == [b"a", b"b", b"c"]
    await log.close()


@pytest.mark.parametrize("at", range(0, 2 * len(placed_batch(b"x", offset=0)), 5))
@simulated
async def test_a_transfer_cut_short_or_damaged_is_refused_as_a_whole(at: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, b"a")
    files = files_of(disk)
    one = len(placed_batch(b"x", offset=1))
    batches = placed_batch(b"x", offset=1) + placed_batch(b"y", offset=2)
    if at not in (0, one):
        with pytest.raises((MalformedBatch, CorruptBatch)):
            log.append_replicated(batches[:at])
    flipped = bytearray(batches)
    flipped[at] ^= 0x40
    with pytest.raises(RequestError):
        log.append_replicated(flipped)
    assert (files_of(disk), log.next_offset) == (files, 1)
    log.append_replicated(batches)
    assert values_of(log) == [b"a", b"x", b"y"]
    await log.close()


@simulated
async def test_a_batch_that_compaction_has_thinned_out_is_taken_from_a_leader(disk: SimDisk) -> None:
    """Its offsets have holes, and it may hold no record at all: only producers may not send such."""
    thinned = forged(placed_batch(b"x", offset=0), last_offset_delta=9)
    log = open_log(disk)
    log.append_replicated(thinned)
    assert log.next_offset == 10
    log.append_replicated(placed_batch(b"y", offset=10))
    assert log.read(Offset(7), bytes_max=1).next_offset == 10
    log.abandon()
    log = open_log(disk)
    assert log.next_offset == 11
    log.abandon()


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12), st.data())
@simulated
async def test_however_the_transfer_is_cut_into_pieces_the_follower_ends_up_the_same(
    shape: list[tuple[int, int]], data: st.DataObject
) -> None:
    leader = open_log(new_disk(), LogSettings(segment_bytes=1024, flush=Flush.NONE))
    epoch = 0
    for count, step in shape:
        epoch += step
        append(leader, *[b"v"] * count, epoch=epoch)
    follower = open_log(new_disk(), LogSettings(segment_bytes=1500, flush=Flush.NONE))
    while follower.next_offset < leader.next_offset:
        bytes_max = data.draw(st.integers(0, 500), label="bytes_max")
        follower.append_replicated(leader.read(follower.next_offset, bytes_max=bytes_max).data)
    assert whole_log(follower) == whole_log(leader)
    assert follower.epochs.pairs() == leader.epochs.pairs()
    leader.abandon()
    follower.abandon()
