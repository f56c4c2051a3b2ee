"""A log that comes to be: without files at first, made by its first batch, founded by its first round."""

import errno
import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from millpond.model.errors import DiskFailed, DiskFull
from millpond.model.ports import Filesystem
from millpond.storage import opening
from millpond.storage.checkpoints import read_document
from millpond.storage.facts import StorageFacts
from millpond.storage.founding import Founding
from millpond.storage.log import Appended, Log
from millpond.storage.names import CHECKPOINT, LEADER_EPOCHS, TOPIC_ID
from millpond.storage.opening import REMOVED, open_or_begin
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import CrashMode, PowerCut, SimDisk
from millpond.testing.hosts import HostDown
from millpond.testing.simulation import Simulation
from tests.storage.builders import append, simulated, until_a_sync_is_under_way, values_of

DIRECTORY = "data/orders-0"
OWNER, ANOTHER = "0a", "0b"
MODES: tuple[CrashMode, ...] = ("keep", "lose", "random")
FIRST, SECOND = b"first" * 120, b"second" * 120
"""Each fills more than half a segment."""
OPERATIONS = 60
"""More than it takes to make a log, found it, and append to it twice."""

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.make_directory("data")
    disk.sync_directory("")
    return disk


def opened(disk: SimDisk, flush: Flush = Flush.GROUP, *, owner: str = OWNER) -> Log:
    settings = LogSettings(flush=flush, segment_bytes=1024)
    return open_or_begin(disk, DIRECTORY, settings, owner=owner, facts=StorageFacts())


@simulated
async def test_a_log_that_nothing_was_appended_to_leaves_the_disk_alone(disk: SimDisk) -> None:
    before = disk.operations
    for _ in range(2):
        log = opened(disk)
        assert (log.start_offset, log.next_offset, log.report.clean) == (0, 0, True)
        await log.upkeep(now_ms=1)
        await log.close()
    assert disk.operations == before
    assert disk.open_files == 0


@simulated
async def test_the_first_append_waits_for_no_sync(disk: SimDisk) -> None:
    disk.fail("sync", times=None)
    disk.fail("sync_directory", times=None)
    log = opened(disk)
    sent = append(log, b"first")
    with pytest.raises(DiskFailed):
        await log.wait_kept(sent)
    log.abandon()


@simulated
async def test_a_full_disk_can_be_tried_again_when_there_is_room(disk: SimDisk) -> None:
    log = opened(disk)
    for operation in ("make_directory", "create", "write"):
        disk.fail(operation, error=errno.ENOSPC)
        with pytest.raises(DiskFull):
            append(log, b"refused")
    await log.wait_kept(append(log, b"first"))
    disk.crash("lose")
    assert values_of(opened(disk)) == [b"first"]


@simulated
async def test_a_flush_that_finds_the_disk_full_says_so_and_can_be_tried_again(disk: SimDisk) -> None:
    log = opened(disk)
    disk.fail("create", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        await log.flush()
    await log.flush()
    await log.wait_kept(append(log, b"first"))
    assert values_of(log) == [b"first"]


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_whoever_is_told_of_the_first_batch_finds_the_log_after_a_power_cut(disk: SimDisk, flush: Flush) -> None:
    """In modes that wait for no sync its end may be gone; but that there was one must be known."""
    log = opened(disk, flush)
    await log.wait_kept(append(log, b"first"))
    assert log.kept_end == 1
    disk.crash("lose")
    log = opened(disk, flush)
    assert not log.report.clean
    assert values_of(log) == [b"first"]


@pytest.mark.parametrize("flush", Flush)
@simulated
async def test_a_log_is_founded_though_nobody_waits_for_it(disk: SimDisk, flush: Flush) -> None:
    log = opened(disk, flush)
    append(log, b"first")
    assert (log.next_offset, log.kept_end) == (1, 0)
    await until_a_sync_is_under_way(log)
    async with log.commit.turn:
        assert log.founding is None
    assert log.kept_end == 1


@simulated
async def test_what_a_killed_process_told_nobody_of_is_put_aside(disk: SimDisk) -> None:
    append(opened(disk), b"unheard of")
    disk.end_process()
    log = opened(disk)
    assert log.next_offset == 0
    assert disk.list("data") == [f"orders-0.{OWNER}{REMOVED}"]
    await log.wait_kept(append(log, b"first"))
    assert values_of(log) == [b"first"]


@simulated
async def test_another_topic_of_the_same_name_begins_anew(disk: SimDisk) -> None:
    log = opened(disk)
    await log.wait_kept(append(log, b"the old one's"))
    await log.close()
    log = opened(disk, owner=ANOTHER)
    assert log.next_offset == 0
    await log.wait_kept(append(log, b"first"))
    disk.crash("lose")
    assert values_of(opened(disk, owner=ANOTHER)) == [b"first"]


@simulated
async def test_records_whose_owner_cannot_be_read_any_more_are_kept(disk: SimDisk) -> None:
    log = opened(disk)
    await log.wait_kept(append(log, b"first"))
    await log.close()
    disk.rot(f"{DIRECTORY}/{TOPIC_ID}")
    log = opened(disk)
    assert values_of(log) == [b"first"]
    await log.close()
    assert read_document(disk, DIRECTORY, TOPIC_ID) == OWNER


@simulated
async def test_another_leader_may_come_before_a_log_is_founded(disk: SimDisk) -> None:
    log = opened(disk)
    append(log, b"one", epoch=3)
    await log.wait_kept(append(log, b"two", epoch=4))
    disk.crash("lose")
    log = opened(disk)
    assert log.epochs.pairs() == [(3, 0), (4, 1)]
    assert values_of(log) == [b"one", b"two"]


@simulated
async def test_a_flush_founds_a_log_that_is_empty(disk: SimDisk) -> None:
    await opened(disk).flush()
    disk.crash("lose")
    log = opened(disk)
    assert (log.next_offset, log.is_planned) == (0, False)
    await log.wait_kept(append(log, b"first"))
    assert values_of(log) == [b"first"]


# A power cut at every operation


async def live(disk: SimDisk, flush: Flush, sent: list[bytes], acknowledged: list[bytes]) -> None:
    log = opened(disk, flush)
    for value in (FIRST, SECOND):
        sent.append(value)
        kept = append(log, value)
        if value is SECOND:
            await log.flush()  # the flush modes differ in the second, not in the first
        await log.wait_kept(kept)
        acknowledged.append(value)


def check(disk: SimDisk, flush: Flush, sent: list[bytes], acknowledged: list[bytes]) -> None:
    """The same topic finds what was acknowledged, and nothing that was not sent; and goes on."""
    log = opened(disk, flush)
    found = values_of(log)
    assert found[: len(acknowledged)] == acknowledged
    assert found == sent[: len(found)]
    assert log.report.damages == []
    append(log, b"third")
    assert values_of(log) == [*found, b"third"]


def check_documents(disk: SimDisk) -> None:
    assert read_document(disk, DIRECTORY, TOPIC_ID) == OWNER
    assert read_document(disk, DIRECTORY, LEADER_EPOCHS) is not None
    assert read_document(disk, DIRECTORY, CHECKPOINT) is not None


def cut_at(operation: int, mode: CrashMode, flush: Flush, *, by_another: bool) -> bool:
    """One life that ends at this operation, and what the next one finds. Whether the first came to its end."""
    sent: list[bytes] = []
    acknowledged: list[bytes] = []

    async def scenario(sim: Simulation) -> bool:
        disk = SimDisk(sim.loop.chance("disk"), spend=sim.loop.spend)
        disk.make_directory("data")
        disk.sync_directory("")
        host = sim.host("broker")
        disk.on_power_cut = host.cut_power
        disk.cut_power_at(operation)
        has_ended = False
        try:
            await host.run(live(disk, flush, sent, acknowledged))
            has_ended = True
        except (PowerCut, HostDown):
            pass
        host.kill()
        disk.crash(mode)
        if acknowledged:
            check_documents(disk)
        if by_another:
            assert values_of(opened(disk, flush, owner=ANOTHER)) == []
        else:
            check(disk, flush, sent, acknowledged)
        return has_ended

    with Simulation(operation) as simulation:
        return simulation.run(scenario)


@pytest.mark.parametrize("by_another", [False, True], ids=["the same topic", "another topic"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("flush", Flush)
def test_a_power_cut_at_any_operation_leaves_what_was_acknowledged(
    flush: Flush, mode: CrashMode, by_another: bool
) -> None:
    ended = [cut_at(operation, mode, flush, by_another=by_another) for operation in range(1, OPERATIONS)]
    assert not ended[0]
    assert ended[-1]


# Bugs planted on purpose


class Without:
    """A filesystem that leaves out some syncs."""

    def __init__(self, filesystem: Filesystem, skipped: Callable[[str], bool]) -> None:
        self._filesystem = filesystem
        self._skipped = skipped

    def __getattr__(self, called: str) -> Any:  # noqa: ANN401 - passes on whatever is asked for
        return getattr(self._filesystem, called)

    def open(self, path: str) -> Any:  # noqa: ANN401
        return Without(self._filesystem.open(path), self._skipped)  # type: ignore[arg-type]

    def sync(self) -> None:
        if not self._skipped("file"):
            self._filesystem.sync()  # type: ignore[attr-defined]

    def sync_directory(self, path: str) -> None:
        if not self._skipped(path):
            self._filesystem.sync_directory(path)


def without(skipped: str) -> Mutant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        def sync(self: Founding) -> None:
            filesystem = self._filesystem
            self._filesystem = Without(filesystem, lambda asked: asked == skipped)  # type: ignore[assignment]
            original(self)
            self._filesystem = filesystem

        original = Founding.sync
        patch.setattr(Founding, "sync", sync)

    return plant


def never_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Founding, "sync", lambda self: None)


def answer_before_it_is_founded(patch: pytest.MonkeyPatch) -> None:
    """As the flush mode alone would have it."""

    async def wait_kept(self: Log, appended: Appended) -> None:
        if self.settings.flush is Flush.GROUP:
            await original(self, appended)

    original = Log.wait_kept
    patch.setattr(Log, "wait_kept", wait_kept)


def take_what_was_not_founded_for_ones_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "is_unfounded", lambda filesystem, directory: False)


MUTANTS = {
    "documents without a sync": without("file"),
    "names without a sync": without(DIRECTORY),
    "its own name without a sync": without("data"),
    "never founded": never_found,
    "answered before it is founded": answer_before_it_is_founded,
    "what was not founded taken for one's own": take_what_was_not_founded_for_ones_own,
}


@pytest.mark.parametrize("planted", MUTANTS)
def test_a_planted_bug_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[planted](monkeypatch)
    with pytest.raises(AssertionError):
        cut_everywhere()


def cut_everywhere() -> None:
    for flush, mode, by_another, operation in product(Flush, MODES, (False, True), range(1, OPERATIONS)):
        cut_at(operation, mode, flush, by_another=by_another)
