"""Producer states on disk: a snapshot whenever a segment is sealed and when the log is closed.

Invariant: the states restored for an offset are those that reading the whole log up to it would give, as far as the
log still reaches back.
Blocks on the disk. Driven by log.py and recovery.py.
"""

from typing import Any

from millpond.model.errors import LogCorrupted
from millpond.model.ids import NO_PRODUCER, Offset
from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import read_document, write_document
from millpond.storage.names import PRODUCERS, offset_file, offsets_of
from millpond.storage.producers import ProducerStates
from millpond.storage.segment import Segment

_KEPT = 2
"""The newest, and the one before it for when the newest is behind a truncation or damaged."""


def write_snapshot(filesystem: Filesystem, directory: str, offset: Offset, states: list[Any]) -> None:
    """Durable when it returns."""
    write_document(filesystem, directory, offset_file(offset, PRODUCERS), states)
    for old in _snapshots(filesystem, directory)[:-_KEPT]:
        filesystem.remove(f"{directory}/{offset_file(old, PRODUCERS)}")


def remove_snapshots(filesystem: Filesystem, directory: str, *, beyond: Offset) -> None:
    for offset in _snapshots(filesystem, directory):
        if offset > beyond:
            filesystem.remove(f"{directory}/{offset_file(offset, PRODUCERS)}")


def restore_producers(
    filesystem: Filesystem, directory: str, segments: list[Segment], *, before: Offset
) -> ProducerStates:
    """The states before that offset: the newest snapshot that is not behind it, and the segments' batches since."""
    states, since = ProducerStates(), Offset(0)
    for offset in reversed([each for each in _snapshots(filesystem, directory) if each <= before]):
        snapshot = read_document(filesystem, directory, offset_file(offset, PRODUCERS))
        if snapshot is not None:
            states, since = ProducerStates.restore(snapshot), offset
            break
    for segment in segments:
        if segment.next_offset > since:
            _replay(states, segment, since)
    return states


def _replay(states: ProducerStates, segment: Segment, since: Offset) -> None:
    try:
        for _, header in segment.headers(max(since, segment.base_offset)):
            if header.producer_id != NO_PRODUCER:
                states.remember(header, base_offset=header.base_offset)
    except LogCorrupted:
        return  # told to whoever reads there; the producers before it are still worth knowing


def _snapshots(filesystem: Filesystem, directory: str) -> list[Offset]:
    return offsets_of(filesystem.list(directory), PRODUCERS)
