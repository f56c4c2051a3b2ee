"""Leaders in a log: their history is on disk before their first batch, and follows the log through everything."""

from collections.abc import Iterator

import pytest

from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset
from millpond.protocol.records import iter_batches
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from tests.storage.builders import DIRECTORY, append, new_disk, open_log, simulated, values_of

SMALL = LogSettings(segment_bytes=1024, retention_ms=None)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = new_disk()
    yield disk
    assert disk.open_files == 0


@simulated
async def test_each_batch_bears_the_epoch_it_was_appended_in(disk: SimDisk) -> None:
    log = open_log(disk)
    for epoch in (0, 0, 3, 7, 7):
        append(log, b"v", epoch=epoch)
    batches = [header.leader_epoch for _, header in iter_batches(log.read(Offset(0), bytes_max=10**6).data)]
    assert batches == [0, 0, 3, 7, 7]
    assert log.epochs.pairs() == [(0, 0), (3, 2), (7, 3)]
    await log.close()


@simulated
async def test_the_end_of_an_epoch_is_where_the_next_leader_began(disk: SimDisk) -> None:
    log = open_log(disk)
    for epoch, count in ((2, 3), (5, 4), (6, 1)):
        append(log, *[b"v"] * count, epoch=epoch)
    ends = {epoch: log.end_of_epoch(LeaderEpoch(epoch)) for epoch in range(8)}
    assert ends == {
        0: (0, 0),
        1: (1, 0),
        2: (2, 3),
        3: (2, 3),
        4: (2, 3),
        5: (5, 7),
        6: (6, 8),
        7: (-1, -1),
    }
    await log.close()


@simulated
async def test_a_log_without_epochs_is_written_and_read_like_any_other(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", epoch=NO_EPOCH)
    assert log.epochs.pairs() == []
    append(log, b"b", epoch=0)
    assert log.epochs.pairs() == [(0, 1)]
    log.abandon()
    log = open_log(disk)
    assert (log.report.bytes_cut, values_of(log)) == (0, [b"a", b"b"])
    log.abandon()


@pytest.mark.parametrize("orderly", [True, False])
@simulated
async def test_the_history_is_there_after_a_restart(orderly: bool) -> None:
    disk = new_disk()
    log = open_log(disk)
    for epoch in (1, 4, 9):
        append(log, b"v", epoch=epoch)
    if orderly:
        await log.close()
    log.abandon()
    log = open_log(disk)
    assert log.epochs.pairs() == [(1, 0), (4, 1), (9, 2)]
    assert values_of(log) == [b"v"] * 3
    log.abandon()


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_the_history_is_durable_before_the_first_batch_of_an_epoch_is_anywhere(flush: Flush) -> None:
    """Wherever the power goes, no batch is ever found whose epoch the history does not know."""
    for step in range(1, 40):
        disk = new_disk(step)
        log = open_log(disk, LogSettings(flush=flush))
        append(log, b"old", epoch=1)
        await log.flush()
        disk.cut_power_at(step)
        try:
            append(log, b"new", epoch=2)
        except PowerCut:
            appended = False
        else:
            appended = True
        log.abandon()
        disk.crash("keep")
        log = open_log(disk, log.settings)
        assert log.report.damages == []
        assert values_of(log)[:1] == [b"old"]
        assert (values_of(log) == [b"old", b"new"]) >= appended, "all that was written was kept"
        assert log.epochs.pairs() == [(1, 0), (2, 1)][: log.next_offset]
        log.abandon()
        if appended:
            return
    raise AssertionError("an append takes fewer operations than that")


@simulated
async def test_a_leader_that_wrote_nothing_before_the_crash_leaves_no_trace(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a", epoch=1)
    await log.flush()
    append(log, b"b", epoch=2)
    log.abandon()
    disk.crash("lose")
    log = open_log(disk)
    assert (values_of(log), log.epochs.pairs()) == ([b"a"], [(1, 0)])
    append(log, b"c", epoch=3)
    assert log.epochs.pairs() == [(1, 0), (3, 1)]
    log.abandon()


@simulated
async def test_a_lost_history_is_read_from_the_batches(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for epoch in (1, 1, 4, 4, 9):
        append(log, b"x" * 400, epoch=epoch)
    await log.close()
    disk.remove(f"{DIRECTORY}/leader-epochs")
    log = open_log(disk, SMALL)
    assert log.epochs.pairs() == [(1, 0), (4, 2), (9, 4)]
    assert len(values_of(log)) == 5
    await log.close()


@simulated
async def test_deleting_the_front_of_a_log_forgets_leaders_of_which_nothing_is_left(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for epoch in (1, 2, 2, 3, 5):
        append(log, b"x" * 800, epoch=epoch)
    await log.flush()
    await log.delete_before(Offset(2))
    assert log.epochs.pairs() == [(2, 2), (3, 3), (5, 4)]
    assert log.end_of_epoch(LeaderEpoch(1)) == (1, 2)
    log.abandon()
    disk.crash("lose")
    log = open_log(disk, SMALL)
    assert log.epochs.pairs() == [(2, 2), (3, 3), (5, 4)]
    assert len(values_of(log)) == 3
    log.abandon()
