"""One pass of compaction over a log: what `compaction.py` decides, done beside appends and reads.

Invariant: at any moment, and after a power cut at any moment, each record that survives the pass is found once: in the
old segments, or in the one that took their place. Rewriting happens in a thread; the change of segments is one step for
readers, under the log's turn.
Driven by log.py.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from millpond.model.errors import DiskFailed, StorageError
from millpond.model.ids import Offset
from millpond.model.ports import Filesystem
from millpond.storage.commit import GroupCommit
from millpond.storage.compaction import LatestKeys, Pass, Source, cleanable_segments, groups_to_merge, rewrite_group
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.index import SparseIndex
from millpond.storage.names import UNFINISHED
from millpond.storage.producers import ProducerStates
from millpond.storage.recovery import Checkpoint
from millpond.storage.retention import SegmentFacts
from millpond.storage.segment import Segment
from millpond.storage.segments import Segments
from millpond.storage.settings import LogSettings


class Compacted(Protocol):
    """A log, as far as this needs it."""

    directory: str
    filesystem: Filesystem
    settings: LogSettings
    segments: Segments
    checkpoint: Checkpoint
    epochs: LeaderEpochs
    producers: ProducerStates
    commit: GroupCommit
    truncations: int

    def refuse(self, error: Exception) -> StorageError: ...
    def explain(self, error: OSError) -> StorageError: ...
    def unreadable(self, error: OSError) -> DiskFailed: ...
    def write_checkpoint(self, **changes: Offset) -> None: ...
    async def off_loop(self, work: Callable[[], None]) -> None: ...


async def compact_once(log: Compacted, now_ms: int, until: Offset | None = None) -> None:
    facts, cleaned_to = log.segments.facts(), log.checkpoint.cleaned_to
    synced_to = log.checkpoint.recovery_point if until is None else min(until, log.checkpoint.recovery_point)
    count = cleanable_segments(facts, log.settings, cleaned_to=cleaned_to, synced_to=synced_to, now_ms=now_ms)
    if count:
        await _compact(log, log.segments.first(count), facts[:count], now_ms)


async def _compact(log: Compacted, segments: list[Segment], facts: list[SegmentFacts], now_ms: int) -> None:
    epochs = LeaderEpochs(log.epochs.pairs())
    try:
        sources = [Source(each.path, each.base_offset, each.content(), epochs) for each in segments]
    except OSError as error:
        raise log.unreadable(error) from error
    since, keys_max = log.checkpoint.cleaned_to, log.settings.compaction_keys_max
    loop, truncations = asyncio.get_running_loop(), log.truncations
    latest = await loop.run_in_executor(None, lambda: LatestKeys.read(sources, since=since, keys_max=keys_max))
    by = Pass(latest, log.producers.last_offsets(), now_ms, log.settings.tombstone_grace_ms)
    for group in groups_to_merge(facts, log.settings):
        index = await loop.run_in_executor(None, _rewrite, log, sources[group], by)
        if index is None:
            continue
        async with log.commit.turn:
            if truncations != log.truncations or any(each not in log.segments for each in segments[group]):
                return  # the log has changed underneath; the unfinished file goes with the next pass or start
            await _replace(log, segments[group], index)
    async with log.commit.turn:
        if truncations == log.truncations:
            await log.off_loop(lambda: log.write_checkpoint(cleaned_to=latest.end))


def _rewrite(log: Compacted, sources: list[Source], by: Pass) -> SparseIndex | None:
    try:
        return rewrite_group(log.filesystem, sources, by, index_interval=log.settings.index_interval_bytes)
    except OSError as error:
        raise log.explain(error) from error


async def _replace(log: Compacted, old: list[Segment], index: SparseIndex) -> None:
    """Puts the rewritten file in the place of some segments, for readers in one step."""
    await log.off_loop(lambda: _remove_index_files(log, old))
    try:
        log.filesystem.rename(old[0].path + UNFINISHED, old[0].path)
        new = log.segments.existing(old[0].base_offset, next_offset=old[-1].next_offset)
    except OSError as error:
        raise log.refuse(error) from error
    new.adopt_index(index)
    log.segments.replace(old, new)
    for segment in old:
        segment.close()
    await log.off_loop(lambda: _finish_replacing(log, old, new))


def _remove_index_files(log: Compacted, segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove_index_file()
    log.filesystem.sync_directory(log.directory)


def _finish_replacing(log: Compacted, old: list[Segment], new: Segment) -> None:
    # The new name is durable before any of the others goes: until then, both ways lead to the same records.
    log.filesystem.sync_directory(log.directory)
    for segment in old[1:]:
        segment.remove_files()
    log.filesystem.sync_directory(log.directory)
    new.finish()
