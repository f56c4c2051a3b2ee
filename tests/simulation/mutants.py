"""Bugs planted on purpose, one at a time, so that the tests prove that they would see them.

Each mutant replaces one function of the storage engine with one that leaves out a single step, of the kind that is
easily forgotten and that works on every day without a power cut.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from millpond.model.errors import DiskFailed
from millpond.model.ids import Offset
from millpond.model.ports import File, Filesystem
from millpond.storage import checkpoints, forgetting, index, log, recovery, rounds, scan, segment, truncating
from millpond.storage.commit import Ended, GroupCommit
from millpond.storage.index import SparseIndex
from millpond.storage.log import Appended, Log
from millpond.storage.names import UNFINISHED
from millpond.storage.segment import Segment
from millpond.testing.disk import SimFile

Mutant = Callable[[pytest.MonkeyPatch], None]


class _WithoutDirectorySync:
    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, called: str) -> Any:  # noqa: ANN401 - passes on whatever is asked for
        return getattr(self._filesystem, called)

    def sync_directory(self, path: str) -> None:
        pass


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    async def wait_kept(self: Log, appended: Appended) -> None:
        self.commit.request()

    patch.setattr(Log, "wait_kept", wait_kept)


def acknowledge_what_came_during_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits when a round ends is let go, also those who joined after it began."""

    def begin_round(self: Log) -> object:
        this_round = original(self)
        finish = this_round.finish

        def finish_for_all() -> None:
            finish()
            waiting, self.commit._waiting = self.commit._waiting, []
            for ended in waiting:
                ended(None)

        this_round.finish = finish_for_all  # type: ignore[method-assign]
        return this_round

    original = Log._begin_round
    patch.setattr(Log, "_begin_round", begin_round)


def take_any_running_sync_for_ones_own(patch: pytest.MonkeyPatch) -> None:
    """An append waits for the round that runs, though that began before it was written."""
    after_round = GroupCommit.after_round

    def after_what_runs(self: GroupCommit, ended: Ended, *, covered: bool = False) -> None:
        after_round(self, ended, covered=True)

    patch.setattr(GroupCommit, "after_round", after_what_runs)


def trust_the_index_blindly(patch: pytest.MonkeyPatch) -> None:
    def load(
        cls: type[SparseIndex],
        filesystem: Filesystem,
        path: str,
        *,
        base_offset: Offset,
        log_bytes: int,
        or_shorter: bool = False,
    ) -> SparseIndex | None:
        if not filesystem.exists(path):
            return None
        content = filesystem.open(path).map()
        if len(content) < index._ENTRIES_AT:
            return None
        _, _, _, next_offset, _, max_timestamp, count = index._HEAD.unpack_from(content)
        places = content[index._ENTRIES_AT : index._ENTRIES_AT + count * 8]
        loaded = cls(base_offset)
        loaded.next_offset, loaded.log_bytes, loaded.max_timestamp = next_offset, log_bytes, max_timestamp
        loaded._places = places[: len(places) // 8 * 8].cast("Q")
        loaded._timestamps = memoryview(bytes(len(places) // 8 * 8)).cast("q")
        return loaded

    patch.setattr(SparseIndex, "load", classmethod(load))


def rename_without_syncing_the_directory(patch: pytest.MonkeyPatch) -> None:
    def write_document(filesystem: Filesystem, directory: str, name: str, content: object) -> None:
        original(_WithoutDirectorySync(filesystem), directory, name, content)

    original = checkpoints.write_document
    for module in (log, recovery, truncating):
        patch.setattr(module, "write_document", write_document)


def rename_without_syncing_the_file(patch: pytest.MonkeyPatch) -> None:
    def write_document(filesystem: Filesystem, directory: str, name: str, content: object) -> None:
        unfinished = f"{directory}/{name}{UNFINISHED}"
        original(filesystem, directory, name, content)  # for its bytes only
        body = filesystem.open(f"{directory}/{name}")
        data = body.read(0, body.size())
        file = filesystem.open(unfinished, create=True)
        file.truncate(0)
        file.write(0, (data,))
        filesystem.rename(unfinished, f"{directory}/{name}")
        filesystem.sync_directory(directory)

    original = checkpoints.write_document
    for module in (log, recovery, truncating):
        patch.setattr(module, "write_document", write_document)


def roll_without_syncing_the_directory(patch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> None:  # noqa: ANN401 - a private class
        self._log.filesystem, filesystem = _WithoutDirectorySync(self._log.filesystem), self._log.filesystem
        try:
            original(self)
        finally:
            self._log.filesystem = filesystem

    original = rounds.SyncRound.run
    patch.setattr(rounds.SyncRound, "run", run)


def roll_without_syncing_the_sealed_segment(patch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> None:  # noqa: ANN401 - a private class
        rolled, self._files = self._rolled, self._files[-1:]
        original(self)
        assert self._rolled is rolled

    original = rounds.SyncRound.run
    patch.setattr(rounds.SyncRound, "run", run)


def go_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "refuse", lambda self, error: DiskFailed(str(error)))


def believe_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    """Recovery syncs what it reads, without writing it again."""

    def end_at(self: Segment, found: SparseIndex, *, doubtful_from: int) -> None:
        original(self, found, doubtful_from=found.log_bytes)

    original = Segment.end_at
    patch.setattr(Segment, "end_at", end_at)


def skip_the_checksum_in_recovery(patch: pytest.MonkeyPatch) -> None:
    """The scan takes the stored checksum as right, whatever the bytes are."""

    class Whatever(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    patch.setattr(scan, "crc32c", lambda data: Whatever())
    patch.setattr(segment, "crc32c", lambda data: Whatever())


def note_the_checkpoint_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def run(self: Any) -> None:  # noqa: ANN401 - a private class
        self._log.write_checkpoint(recovery_point=self._end)
        original(self)

    original = rounds.SyncRound.run
    patch.setattr(rounds.SyncRound, "run", run)


def remove_before_the_start_is_durable(patch: pytest.MonkeyPatch) -> None:
    async def move_start(log: Log, offset: Offset) -> None:
        log.start_offset = max(log.start_offset, offset)

    patch.setattr(forgetting, "move_start", move_start)


def take_every_zero_at_the_end_for_blank(patch: pytest.MonkeyPatch) -> None:
    """Recovery looks for what is blank from behind. But most batches end in a zero, too."""

    def content(self: Segment) -> memoryview:
        found = original(self)
        return found[: len(bytes(found).rstrip(b"\0"))]

    original = Segment.content
    patch.setattr(Segment, "content", content)


def seal_without_giving_back_what_is_blank(patch: pytest.MonkeyPatch) -> None:
    """It does so only where the log is closed."""

    def roll(self: Log) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Segment, "give_back", lambda self: None)
            original(self)

    original = Log._roll
    patch.setattr(Log, "_roll", roll)


def write_blank_ahead_in_the_thread(patch: pytest.MonkeyPatch) -> None:
    """So that no append pays for it: behind what had been written when the round began, whatever came since."""

    def init(self: Any, log: Any, rolled: Any, active: Segment, *others: Any, **named: Any) -> None:  # noqa: ANN401
        original_init(self, log, rolled, active, *others, **named)
        self.active, self.size_then = active, active.size

    def run(self: Any) -> None:  # noqa: ANN401 - a private class
        original_run(self)
        if self.size_then >= self.active._ahead and not self.active.is_sealed:
            self.active._ahead = 2 * self.size_then
            with suppress(OSError):
                self._files[-1].write(self.size_then, (bytes(self.size_then),))

    original_init, original_run = rounds.SyncRound.__init__, rounds.SyncRound.run
    patch.setattr(rounds.SyncRound, "__init__", init)
    patch.setattr(rounds.SyncRound, "run", run)
    patch.setattr(Segment, "_reach_ahead", lambda self, file, batch_bytes: None)


def sync_what_fills_a_blank_without_its_size(patch: pytest.MonkeyPatch) -> None:
    """Bytes that replace zeros need no other size on disk. But the last batch may reach beyond the zeros."""

    def reach_ahead(self: Segment, file: File, batch_bytes: int) -> None:
        original_reach(self, file, batch_bytes)
        blank_to[file] = self._ahead

    def sync(self: SimFile) -> None:
        original_sync(self)
        durable = self._contents.durable
        beyond = bytes(durable[blank_to.get(self, len(durable)) :])
        if beyond:
            del durable[-len(beyond) :]
            self._contents.pending.insert(0, (len(durable), beyond))

    blank_to: dict[File, int] = {}
    original_reach, original_sync = Segment._reach_ahead, SimFile.sync
    patch.setattr(Segment, "_reach_ahead", reach_ahead)
    patch.setattr(SimFile, "sync", sync)


MUTANTS: tuple[Mutant, ...] = (
    acknowledge_before_the_sync,
    acknowledge_what_came_during_the_sync,
    take_any_running_sync_for_ones_own,
    trust_the_index_blindly,
    rename_without_syncing_the_directory,
    rename_without_syncing_the_file,
    roll_without_syncing_the_directory,
    roll_without_syncing_the_sealed_segment,
    go_on_after_a_failed_sync,
    believe_the_page_cache,
    skip_the_checksum_in_recovery,
    note_the_checkpoint_before_the_sync,
    remove_before_the_start_is_durable,
    take_every_zero_at_the_end_for_blank,
    seal_without_giving_back_what_is_blank,
    write_blank_ahead_in_the_thread,
    sync_what_fills_a_blank_without_its_size,
)
