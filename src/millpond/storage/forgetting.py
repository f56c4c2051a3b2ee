"""What a log no longer serves: first the start offset moves, for good; then the files before it go.

Invariant: a file goes only once the start offset on disk is behind all it holds, so a power cut at any moment leaves a
log that begins there. What lies before the start is durable too: else a power cut could end the log before it begins.
Driven by log.py, one step at a time under the log's turn.
"""

from collections.abc import Callable
from typing import Protocol

from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import write_document
from millpond.storage.commit import GroupCommit
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.names import LEADER_EPOCHS
from millpond.storage.rounds import Rolled
from millpond.storage.segment import Segment
from millpond.storage.segments import Segments
from millpond.storage.snapshots import write_snapshot


class Forgetful(Protocol):
    """A log, as far as this needs it."""

    directory: str
    filesystem: Filesystem
    segments: Segments
    epochs: LeaderEpochs
    commit: GroupCommit
    start_offset: Offset
    durable_offset: Offset
    rolled: list[Rolled]

    def synced_to(self) -> Offset: ...
    def write_checkpoint(self, **changes: Offset) -> None: ...
    async def flush(self) -> None: ...
    async def off_loop(self, work: Callable[[], None]) -> None: ...


async def forget_before(log: Forgetful, offset: Offset) -> None:
    """Durable when it returns."""
    await move_start(log, offset)
    await _remove_forgotten(log)


async def move_start(log: Forgetful, offset: Offset) -> None:
    if offset > log.durable_offset:
        await log.flush()
    async with log.commit.turn:
        if log.start_offset < offset <= log.durable_offset:
            point = log.synced_to()
            await log.off_loop(lambda: log.write_checkpoint(start_offset=offset, recovery_point=point))
            log.start_offset = offset


async def _remove_forgotten(log: Forgetful) -> None:
    async with log.commit.turn:
        removed = log.segments.wholly_before(log.start_offset)
        if not removed:
            return
        log.segments.remove(removed)
        dropped = [each for each in log.rolled if each.segment in removed]
        log.rolled = [each for each in log.rolled if each not in dropped]
        log.epochs.adopt(log.epochs.forget_before(log.segments.first_offset))
        for segment in removed:
            segment.close()
        await log.off_loop(lambda: _remove_files(log, removed, dropped[-1:], log.epochs.pairs()))


def _remove_files(
    log: Forgetful, segments: list[Segment], last_rolled: list[Rolled], epochs: list[tuple[LeaderEpoch, Offset]]
) -> None:
    for rolled in last_rolled:  # no round has written what its producers were, and no batch will tell any more
        write_snapshot(log.filesystem, log.directory, rolled.next_offset, rolled.producers)
    for segment in segments:
        segment.remove_files()
    # Only then: recovery must know the epochs of every file it may find.
    log.filesystem.sync_directory(log.directory)
    write_document(log.filesystem, log.directory, LEADER_EPOCHS, epochs)
