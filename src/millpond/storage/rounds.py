"""One round of a log's group commit: what had been written when it began, synced, and then noted as synced.

Order is the promise: segments sealed since the last round, oldest first, then the growing one, then the names of new
files. So what a round makes durable is a prefix of the log. The documents that follow save work at the next start; the
promise does not rest on them.
Driven by commit.py: made on the loop, `start` there or `run` in a thread, `finish` on the loop again.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from millpond.model.errors import StorageError
from millpond.model.ids import Offset
from millpond.model.ports import Filesystem
from millpond.storage.facts import StorageFacts
from millpond.storage.founding import Founding
from millpond.storage.index import SparseIndex
from millpond.storage.segment import Segment
from millpond.storage.snapshots import remove_old_snapshots, write_snapshot

Ended = Callable[[Exception | None], None]
"""Is told what went wrong in a round, if anything did."""


class Rolled(NamedTuple):
    """A sealed segment that is not known to be on disk yet, and the producers as they were at its end."""

    segment: Segment
    next_offset: Offset
    producers: list[Any]


class Growing(NamedTuple):
    """The last segment and the producers, as they were when the round began: for a checkpoint in its midst."""

    index_path: str
    index_so_far: SparseIndex
    producers: list[Any]


class Rounded(Protocol):
    """What a round needs of its log."""

    directory: str
    filesystem: Filesystem
    is_closed: bool
    facts_of_all: StorageFacts
    founding: Founding | None

    def refuse(self, error: Exception) -> StorageError: ...
    def write_checkpoint(self, **changes: Offset) -> None: ...


class SyncRound:
    def __init__(
        self,
        log: Rounded,
        rolled: list[Rolled],
        active: Segment,
        growing: Growing | None,
        *,
        end: Offset,
        size: int,
        on_synced: Callable[[Offset], None],
    ) -> None:
        """With `growing`, the round ends in a checkpoint also where no segment was sealed. `size` is in bytes."""
        self._log = log
        self._rolled = rolled
        self._growing = growing
        # Taken now: one that is closed meanwhile says so, and is not opened again behind anybody's back.
        self._files = [each.segment.file for each in rolled] + [active.file]
        self._founding = log.founding
        self._end = end
        self._size = size
        self._began_ns = self._took_ns = 0
        self._on_synced = on_synced

    def start(self, ended: Ended) -> bool:
        """As most are: one file that grows, which the system may sync without a thread."""
        if self._rolled or self._growing is not None or self._founding is not None:
            return False
        self._began_ns = time.perf_counter_ns()
        return self._files[0].sync_soon(partial(self._synced, ended))

    def _synced(self, ended: Ended, error: OSError | None) -> None:
        self._took_ns = time.perf_counter_ns() - self._began_ns
        ended(None if error is None else self._log.refuse(error))

    def run(self) -> None:
        log = self._log
        began_ns = time.perf_counter_ns()
        try:
            for file in self._files:
                file.sync()
            if self._rolled:
                log.filesystem.sync_directory(log.directory)
            self._took_ns = time.perf_counter_ns() - began_ns
            if self._founding is not None and not log.is_closed:
                self._founding.sync()
        except OSError as error:
            raise log.refuse(error) from error
        if (self._rolled or self._growing) and not log.is_closed:
            with suppress(OSError):
                self._write_documents(log)

    def _write_documents(self, log: Rounded) -> None:
        for rolled in self._rolled:
            rolled.segment.finish()
            write_snapshot(log.filesystem, log.directory, rolled.next_offset, rolled.producers)
        if self._growing is not None:
            self._growing.index_so_far.save(log.filesystem, self._growing.index_path, sync=True)
            write_snapshot(log.filesystem, log.directory, self._end, self._growing.producers)
        log.write_checkpoint(recovery_point=self._end)
        remove_old_snapshots(log.filesystem, log.directory, recovery_point=self._end)

    def finish(self) -> None:
        facts = self._log.facts_of_all
        facts.syncs.note(self._took_ns)
        facts.synced_bytes += self._size
        self._log.founding = None
        self._on_synced(self._end)
        for rolled in self._rolled:
            rolled.segment.close_file()
