"""Producer states on disk: a snapshot whenever a segment is sealed and when the log is closed.

Invariant: the states restored for an offset are those that reading the whole log up to it would give, as far as the
log still reaches back.
Blocks on the disk. Driven by log.py and recovery.py.
"""

from collections.abc import Iterable
from typing import Any

from millpond.model.errors import LogCorrupted
from millpond.model.ids import NO_PRODUCER, Offset
from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import read_document, write_document
from millpond.storage.names import PRODUCERS, offset_file, offsets_of
from millpond.storage.producers import ProducerStates
from millpond.storage.segment import Segment

_KEPT = 2
"""The newest that recovery can begin with, and the one before it in case that one is damaged."""


def write_snapshot(filesystem: Filesystem, directory: str, offset: Offset, states: list[Any]) -> None:
    """Durable when it returns."""
    write_document(filesystem, directory, offset_file(offset, PRODUCERS), states)


def remove_old_snapshots(filesystem: Filesystem, directory: str, *, recovery_point: Offset) -> None:
    """Recovery begins with one at or before the recovery point that is on disk; so only that one makes others old."""
    _remove(filesystem, directory, _snapshots(filesystem, directory, until=recovery_point)[:-_KEPT])


def remove_snapshots_beyond(filesystem: Filesystem, directory: str, end: Offset) -> None:
    _remove(filesystem, directory, [each for each in _snapshots(filesystem, directory) if each > end])


def restore_producers(
    filesystem: Filesystem, directory: str, segments: Iterable[Segment], *, first: Offset, before: Offset
) -> tuple[ProducerStates, Offset]:
    """The newest snapshot up to that offset, brought up to date with the segments; and the offset it was taken at.

    One from before the first offset there is says nothing of the batches between: who is forgotten is believed, but
    who is remembered wrongly is refused.
    """
    states, since = ProducerStates(), Offset(0)
    for offset in reversed(_snapshots(filesystem, directory, until=before)):
        if offset < first:
            break
        snapshot = read_document(filesystem, directory, offset_file(offset, PRODUCERS))
        if snapshot is not None:
            states, since = ProducerStates.restore(snapshot), offset
            break
    for segment in segments:
        if segment.next_offset > since:
            _replay(states, segment, since)
    return states, since


def _replay(states: ProducerStates, segment: Segment, since: Offset) -> None:
    try:
        for _, header in segment.headers(max(since, segment.base_offset)):
            if header.producer_id != NO_PRODUCER:
                states.remember(header, base_offset=header.base_offset)
    except LogCorrupted:
        return  # told to whoever reads there; the producers before it are still worth knowing


def _snapshots(filesystem: Filesystem, directory: str, *, until: Offset | None = None) -> list[Offset]:
    offsets = offsets_of(filesystem.list(directory), PRODUCERS)
    return offsets if until is None else [each for each in offsets if each <= until]


def _remove(filesystem: Filesystem, directory: str, offsets: list[Offset]) -> None:
    for offset in offsets:
        filesystem.remove(f"{directory}/{offset_file(offset, PRODUCERS)}")
