"""How a log is cut back: every batch that holds an offset, or a later one, goes for good.

Invariant: each step leaves something that recovery cuts to the same place, or to where it was before. So the checkpoint
moves back first, then the history of epochs ends there, then files go, the newest first, and what is left is cut.
Blocks on the disk, and the loop with it: for readers it is one step. Driven by log.py, under the log's turn.
"""

from typing import Protocol

from millpond.model.ids import Offset
from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import write_document
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.names import LEADER_EPOCHS
from millpond.storage.producers import ProducerStates
from millpond.storage.recovery import Checkpoint
from millpond.storage.rounds import Rolled
from millpond.storage.segments import Segments
from millpond.storage.snapshots import remove_snapshots_beyond, restore_producers


class CutBack(Protocol):
    """A log, as far as this needs it."""

    directory: str
    filesystem: Filesystem
    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerStates
    checkpoint: Checkpoint
    start_offset: Offset
    next_offset: Offset
    durable_offset: Offset
    truncations: int
    rolled: list[Rolled]

    def write_checkpoint(self, **changes: Offset) -> None: ...


def cut_back(log: CutBack, end: Offset) -> None:
    """After an OSError half of it may be done; the next open finds out which half. After LogCorrupted nothing is."""
    dropped = log.segments.from_on(end)
    last = log.segments.holding(end if not dropped else Offset(dropped[0].base_offset - 1))
    place = last.place_to_cut(end)
    log.truncations += 1
    log.write_checkpoint(
        recovery_point=min(log.checkpoint.recovery_point, last.base_offset),
        cleaned_to=min(log.checkpoint.cleaned_to, last.base_offset),
    )
    log.epochs.adopt(log.epochs.truncate(end))
    write_document(log.filesystem, log.directory, LEADER_EPOCHS, log.epochs.pairs())
    for segment in reversed(dropped):
        segment.close()
        segment.remove_files()
    last.truncate(*place)
    last.unseal()
    log.segments.remove(dropped)
    log.rolled = [each for each in log.rolled if each.segment in log.segments and each.segment is not last]
    log.next_offset = last.next_offset
    log.durable_offset = min(log.durable_offset, log.next_offset)
    if log.next_offset < log.start_offset:  # the batch that held the start is gone
        log.write_checkpoint(start_offset=log.next_offset)
        log.start_offset = log.next_offset
    remove_snapshots_beyond(log.filesystem, log.directory, log.next_offset)
    log.producers, _ = restore_producers(
        log.filesystem, log.directory, log.segments, first=log.segments.first_offset, before=log.next_offset
    )
    log.filesystem.sync_directory(log.directory)
