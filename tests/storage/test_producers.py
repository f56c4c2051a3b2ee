"""Idempotent producers: next, again, out of order, replaced, forgotten; alone and through a log."""

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import DuplicateSequence, OutOfOrderSequence, StaleProducerEpoch
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import BatchHeader, parse_header
from millpond.storage.log import Appended, Log
from millpond.storage.producers import ProducerStates
from millpond.storage.settings import DAY_MS, LogSettings
from millpond.testing.disk import SimDisk
from tests.storage.builders import (
    EPOCH,
    NOW,
    append,
    facts_of,
    new_disk,
    open_log,
    sequenced_batch,
    simulated,
    values_of,
)

SEQUENCE_MAX = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, timestamp: int = NOW) -> BatchHeader:
    values = [b"v"] * count
    return parse_header(
        sequenced_batch(*values, sequence=sequence, producer=producer, epoch=epoch, timestamp=timestamp)
    )


def states_after(*headers: BatchHeader) -> ProducerStates:
    """The states after these batches, from offset 100 on."""
    states, offset = ProducerStates(), 100
    for each in headers:
        assert states.find_duplicate(each) is None
        states.remember(each, base_offset=Offset(offset))
        offset += each.record_count
    return states


# Alone


def test_one_that_was_never_kept_is_no_duplicate_while_all_there_were_are_remembered() -> None:
    with pytest.raises(OutOfOrderSequence):
        states_after(header(4711), header(4712)).find_duplicate(header(4710))


def test_the_next_sequence_in_order_is_no_duplicate() -> None:
    assert states_after(header(0, 3)).find_duplicate(header(3)) is None


def test_a_producer_never_seen_may_begin_anywhere() -> None:
    assert ProducerStates().find_duplicate(header(4711)) is None
    assert states_after(header(0)).find_duplicate(header(4711, producer=8)) is None


def test_each_of_the_last_five_batches_is_known_again_with_its_first_offsets() -> None:
    batches = [header(sequence, 2) for sequence in range(0, 10, 2)]
    states = states_after(*batches)
    for number, batch in enumerate(batches):
        duplicate = states.find_duplicate(batch)
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (100 + 2 * number, 101 + 2 * number)


def test_the_batch_before_the_last_five_is_a_duplicate_without_an_offset() -> None:
    states = states_after(*(header(sequence) for sequence in range(6)))
    with pytest.raises(DuplicateSequence) as caught:
        states.find_duplicate(header(0))
    assert "producer 7 sent sequences 0 to 0 again" in str(caught.value)
    assert "at 6 now" in str(caught.value)
    assert states.find_duplicate(header(1)) is not None


def test_a_batch_that_only_overlaps_a_known_one_is_not_taken_for_it() -> None:
    states = states_after(header(0, 4))
    for overlapping in (header(0, 3), header(0, 5), header(1, 3)):
        with pytest.raises((DuplicateSequence, OutOfOrderSequence)):
            states.find_duplicate(overlapping)


@pytest.mark.parametrize("sequence", [2, 5, 2**30])
def test_a_sequence_ahead_of_the_next_is_out_of_order(sequence: int) -> None:
    with pytest.raises(OutOfOrderSequence) as caught:
        states_after(header(0)).find_duplicate(header(sequence))
    assert f"producer 7 epoch 0 sent sequence {sequence}; expected is 1" in str(caught.value)


def test_an_older_epoch_is_stale() -> None:
    with pytest.raises(StaleProducerEpoch) as caught:
        states_after(header(0, epoch=3)).find_duplicate(header(1, epoch=2))
    assert "producer 7 sent epoch 2; it was replaced by epoch 3" in str(caught.value)


def test_a_new_epoch_begins_with_sequence_0_and_forgets_the_old_one() -> None:
    states = states_after(header(0), header(1), header(0, epoch=1))
    assert states.find_duplicate(header(1, epoch=1)) is None
    duplicate = states.find_duplicate(header(0, epoch=1))
    assert duplicate is not None
    assert duplicate.first_offset == 102
    with pytest.raises(StaleProducerEpoch):
        states.find_duplicate(header(1))


def test_a_new_epoch_that_does_not_begin_with_0_is_out_of_order() -> None:
    with pytest.raises(OutOfOrderSequence, match=r"began epoch 1 with sequence 1; a new epoch begins with 0"):
        states_after(header(0)).find_duplicate(header(1, epoch=1))


def test_sequences_wrap_from_the_largest_to_0() -> None:
    states = states_after(header(SEQUENCE_MAX - 1, 2))
    assert states.find_duplicate(header(0)) is None
    with pytest.raises(OutOfOrderSequence):
        states.find_duplicate(header(1))


def test_a_batch_may_wrap_in_its_midst_and_is_known_again() -> None:
    wrapping = header(SEQUENCE_MAX, 3)
    states = states_after(wrapping)
    duplicate = states.find_duplicate(wrapping)
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.last_sequence) == (SEQUENCE_MAX, 1)
    assert states.find_duplicate(header(2)) is None


def test_an_old_batch_from_before_the_wrap_is_a_duplicate_not_out_of_order() -> None:
    first = SEQUENCE_MAX - 2
    states = states_after(*(header((first + number) & SEQUENCE_MAX) for number in range(7)))
    with pytest.raises(DuplicateSequence):
        states.find_duplicate(header(first))


def test_a_control_batch_takes_no_sequence() -> None:
    states = states_after(header(0))
    states.remember(parse_header(sequenced_batch(b"x", sequence=-1, control=True)), base_offset=Offset(101))
    assert states.find_duplicate(header(1)) is None


def test_a_producer_is_forgotten_once_its_last_batch_is_older_than_asked() -> None:
    states = states_after(header(0, timestamp=100), header(5, producer=8, timestamp=50), header(1, timestamp=200))
    states.expire(before=TimestampMs(51))
    assert len(states) == 1
    assert states.find_duplicate(header(99, producer=8)) is None
    states.expire(before=TimestampMs(200))
    assert len(states) == 1
    states.expire(before=TimestampMs(201))
    assert len(states) == 0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 4)), max_size=30))
def test_a_snapshot_restores_the_same_states(sent: list[tuple[int, int, int]]) -> None:
    states, following, offset = ProducerStates(), dict[tuple[int, int], int](), 0
    latest: dict[int, int] = {}
    for producer, epoch, count in sent:
        if epoch < latest.get(producer, 0):
            continue
        latest[producer] = epoch
        sequence = following.get((producer, epoch), 0)
        following[producer, epoch] = sequence + count
        states.remember(header(sequence, count, producer=producer, epoch=epoch), base_offset=Offset(offset))
        offset += count
    restored = ProducerStates.restore(json.loads(json.dumps(states.snapshot())))
    assert restored.snapshot() == states.snapshot()
    assert restored.last_offsets() == states.last_offsets()
    for producer, epoch in latest.items():
        again = header(following[producer, epoch], producer=producer, epoch=epoch)
        assert restored.find_duplicate(again) is None


def test_a_restored_producer_still_forgets_its_sixth_last_batch() -> None:
    restored = ProducerStates.restore(states_after(*(header(number) for number in range(5))).snapshot())
    restored.remember(header(5), base_offset=Offset(105))
    with pytest.raises(DuplicateSequence):
        restored.find_duplicate(header(0))


# Through a log

SMALL = LogSettings(segment_bytes=1024)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


def send(log: Log, sequence: int, *, producer: int = 7, epoch: int = 0, bytes_each: int = 1) -> Appended:
    """Two records that begin with this sequence."""
    values = [b"%d" % (sequence + number) + b"." * bytes_each for number in range(2)]
    return log.append(sequenced_batch(*values, sequence=sequence, producer=producer, epoch=epoch), leader_epoch=EPOCH)


def assert_known_again(log: Log, sequence: int, first: Appended) -> None:
    size = log.size_bytes()
    again = send(log, sequence)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.size_bytes() == size


@simulated
async def test_a_batch_sent_again_gets_its_first_offsets_and_is_not_written(disk: SimDisk) -> None:
    log = open_log(disk)
    first = send(log, 0)
    second = send(log, 2)
    assert not first.is_duplicate
    assert_known_again(log, 0, first)
    assert_known_again(log, 2, second)
    await log.wait_kept(send(log, 2))
    assert log.durable_offset == 4
    assert [value[:1] for value in values_of(log) if value] == [b"0", b"1", b"2", b"3"]
    await log.close()


@simulated
async def test_what_is_out_of_order_or_stale_changes_nothing(disk: SimDisk) -> None:
    log = open_log(disk)
    send(log, 0, epoch=1)
    size = log.size_bytes()
    with pytest.raises(OutOfOrderSequence):
        send(log, 3, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        send(log, 2, epoch=0)
    assert (log.size_bytes(), log.next_offset) == (size, 2)
    assert send(log, 2, epoch=1).base_offset == 2
    await log.close()


@simulated
async def test_duplicates_are_known_after_a_clean_restart(disk: SimDisk) -> None:
    log = open_log(disk)
    sent = [send(log, sequence) for sequence in range(0, 10, 2)]
    await log.close()
    log = open_log(disk)
    assert log.report.clean
    for number, each in enumerate(sent):
        assert_known_again(log, 2 * number, each)
    with pytest.raises(OutOfOrderSequence):
        send(log, 11)
    assert send(log, 10).base_offset == 10
    await log.close()


@simulated
async def test_duplicates_are_known_after_a_kill_however_many_segments_lie_between(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    sent = [send(log, sequence, bytes_each=150) for sequence in range(0, 20, 2)]
    assert len(facts_of(log)) > 2
    log.abandon()
    log = open_log(disk, SMALL)
    assert not log.report.clean
    for number in range(5, 10):
        assert send(log, 2 * number, bytes_each=150) == sent[number]._replace(is_duplicate=True)
    with pytest.raises(DuplicateSequence):
        send(log, 8, bytes_each=150)
    log.abandon()


@simulated
async def test_duplicates_are_known_after_a_kill_that_followed_a_clean_restart(disk: SimDisk) -> None:
    log = open_log(disk)
    first = send(log, 0)
    await log.close()
    log = open_log(disk)
    second = send(log, 2)
    log.abandon()
    log = open_log(disk)
    assert_known_again(log, 0, first)
    assert_known_again(log, 2, second)
    await log.close()


@simulated
async def test_duplicates_are_known_from_snapshots_once_the_front_of_the_log_is_gone(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    old = log.append(sequenced_batch(b"old", sequence=0, producer=9), leader_epoch=EPOCH)
    for sequence in range(0, 20, 2):
        send(log, sequence, bytes_each=150)
    await log.flush()
    await log.delete_before(facts_of(log)[-1].base_offset)
    log.abandon()
    log = open_log(disk, SMALL)
    again = log.append(sequenced_batch(b"old", sequence=0, producer=9), leader_epoch=EPOCH)
    assert again == old._replace(is_duplicate=True)
    log.abandon()


@simulated
async def test_a_truncated_batch_is_no_duplicate_when_it_comes_again(disk: SimDisk) -> None:
    log = open_log(disk)
    first = send(log, 0)
    send(log, 2)
    await log.truncate(Offset(2))
    assert_known_again(log, 0, first)
    again = send(log, 2)
    assert not again.is_duplicate
    assert again.base_offset == 2
    await log.close()
    log = open_log(disk)
    assert_known_again(log, 2, again)
    await log.close()


@simulated
async def test_truncating_below_all_snapshots_restores_the_producers_from_the_batches(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    sent = [send(log, sequence, bytes_each=150) for sequence in range(0, 20, 2)]
    await log.flush()
    bases = [each.base_offset for each in facts_of(log)]
    assert all(one < two for one, two in pairwise(bases))
    await log.truncate(Offset(4))
    assert send(log, 2, bytes_each=150).base_offset == sent[1].base_offset
    with pytest.raises(OutOfOrderSequence):
        send(log, 6, bytes_each=150)
    assert not send(log, 4, bytes_each=150).is_duplicate
    log.abandon()


@simulated
async def test_a_snapshot_of_what_was_truncated_is_never_believed_again(disk: SimDisk) -> None:
    log = open_log(disk)
    for sequence in range(0, 10, 2):
        send(log, sequence)
    await log.close()  # leaves a snapshot for offset 10
    log = open_log(disk)
    await log.truncate(Offset(0))
    for number in range(20):
        append(log, b"%d" % number)
    await log.truncate(Offset(15))
    again = send(log, 8)
    assert (again.is_duplicate, again.base_offset) == (False, 15)
    await log.close()


@simulated
async def test_the_producers_of_a_log_that_was_emptied_are_known_after_many_restarts(disk: SimDisk) -> None:
    settings = LogSettings(segment_ms=1000, retention_ms=None)
    log = open_log(disk, settings)
    first = send(log, 0)
    await log.upkeep(now_ms=NOW + 1000)
    await log.delete_before(log.next_offset)
    assert log.size_bytes() == 0
    for _ in range(3):
        log.abandon()
        log = open_log(disk, settings)
    assert send(log, 0)[:2] == first[:2]
    log.abandon()


@simulated
async def test_a_producer_that_sends_nothing_for_the_expiry_time_is_forgotten(disk: SimDisk) -> None:
    log = open_log(disk, LogSettings(producer_expiry_ms=DAY_MS, retention_ms=None))
    first = send(log, 0)
    await log.upkeep(now_ms=NOW + DAY_MS)
    assert_known_again(log, 0, first)
    await log.upkeep(now_ms=NOW + DAY_MS + 1)
    assert not send(log, 0).is_duplicate
    await log.close()


@simulated
async def test_producers_do_not_disturb_one_another(disk: SimDisk) -> None:
    log = open_log(disk)
    for sequence in range(0, 12, 2):
        for producer in (1, 2, 3):
            assert not send(log, sequence, producer=producer).is_duplicate
    for producer in (1, 2, 3):
        assert send(log, 2, producer=producer).base_offset == 4 + 2 * producer
    await log.close()
