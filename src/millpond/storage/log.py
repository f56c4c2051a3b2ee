"""The log of one partition: append, wait until it is kept, read back by offset or by time.

Appends and reads run on the loop and never wait. What blocks for long (syncs, documents, removing files) runs in a
thread, one job at a time, under the commit's turn. Changes of shape (truncation, retention) take that turn too, and
change what readers see in one step without waiting in between.

Invariant: offsets in [start_offset, next_offset) are each in exactly one batch of exactly one segment;
start_offset <= durable_offset <= next_offset; neither start_offset nor what was acknowledged ever moves back,
except that a truncation may move next_offset and durable_offset.
Driven by the broker, one task at a time; by tests, directly.
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from millpond.model.errors import (
    BatchTooLarge,
    DiskFailed,
    DiskFull,
    InvalidRecord,
    LogClosed,
    LogCorrupted,
    OffsetOutOfRange,
    StorageError,
    TooManyOpenFiles,
    Truncated,
)
from millpond.model.ids import NO_PRODUCER, LeaderEpoch, Offset, TimestampMs
from millpond.model.ports import Buffer, Filesystem
from millpond.protocol.records import LENGTH_END, BatchHeader, check_batch, check_produced, iter_batches, stamp
from millpond.storage.checkpoints import make_directory, write_document
from millpond.storage.commit import Ended, GroupCommit
from millpond.storage.compacting import compact_once
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.facts import StorageFacts
from millpond.storage.forgetting import forget_before
from millpond.storage.founding import Founding
from millpond.storage.names import CLEAN_SHUTDOWN, LEADER_EPOCHS
from millpond.storage.producers import ProducerStates
from millpond.storage.recovery import Recovery, RecoveryReport, recover
from millpond.storage.retention import SegmentFacts, expired_segments
from millpond.storage.rounds import Growing, Rolled, SyncRound
from millpond.storage.segment import Slice
from millpond.storage.settings import Flush, LogSettings
from millpond.storage.snapshots import remove_old_snapshots, write_snapshot
from millpond.storage.truncating import cut_back

_OFFSETS_PER_SEGMENT_MAX = 2**31 - 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)


class Appended(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    truncations: int
    """How often the log had been truncated by then; see `Log.wait_kept`."""
    is_duplicate: bool = False
    """The offsets are those of the first time this batch was sent; nothing was written."""


class Log:
    def __init__(
        self, recovery: Recovery, settings: LogSettings, facts: StorageFacts, founding: Founding | None = None
    ) -> None:
        """Use `Log.open`, or opening.py."""
        self.filesystem, self.directory = recovery.segments.filesystem, recovery.segments.directory
        self.name = self.directory.rpartition("/")[2]
        """As clients may be told."""
        self.facts_of_all = facts
        self.appended_bytes = self.appended_batches = 0
        """Since it was opened."""
        self._synced_bytes = 0
        self._syncing_to = Offset(0)
        """What the commit round that began last covers."""
        self.use(settings)
        self.report: RecoveryReport = recovery.report
        self.epochs: LeaderEpochs = recovery.epochs
        self.producers: ProducerStates = recovery.producers
        self.start_offset = recovery.checkpoint.start_offset
        self.next_offset = recovery.segments.active.next_offset
        self.durable_offset = self.next_offset
        self.on_durable: Callable[[], None] | None = None
        """Called on the loop when `durable_offset` has moved, before those who waited for it go on."""
        self.founding = founding
        """None once it is certain that a power cut leaves the log and its owner's name."""
        self.checkpoint = recovery.checkpoint
        self.segments = recovery.segments
        self._checkpoint_at = self.segments.active.size + settings.checkpoint_bytes
        """Size of the growing segment at which a round ends in a checkpoint."""
        self._active_since_ms: int | None = None
        self.truncations = 0
        self._refusal: StorageError | None = None
        self.is_closed = False
        self._is_compacting = False
        self.commit = GroupCommit(self._begin_round)
        self._flush_timer: asyncio.TimerHandle | None = None
        self.rolled: list[Rolled] = []
        """Segments sealed since the last commit round began, oldest first."""

    @classmethod
    def open(
        cls,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings | None = None,
        *,
        facts: StorageFacts | None = None,
    ) -> "Log":
        """Recovers what is there, or begins a new log. Blocks; after a crash it reads the last segment.

        In a process that had the log open before, views it read then must be gone: recovery may cut their files.
        """
        try:
            make_directory(filesystem, directory)
            settings = settings or LogSettings()
            return cls(recover(filesystem, directory, settings), settings, facts or StorageFacts())
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(f"no space left to open {directory}; free some and start again") from error
            raise DiskFailed(f"{directory} cannot be opened: {error}") from error

    def use(self, settings: LogSettings) -> None:
        """From the next append, read and upkeep on. How densely segments are indexed stays as it was on opening."""
        self.settings = settings
        self._batch_bytes_max, self._segment_bytes = settings.batch_bytes_max, settings.segment_bytes
        self._flushes_by_interval = settings.flush is Flush.INTERVAL
        self.flushes_by_group = settings.flush is Flush.GROUP

    # Appending

    def append(
        self, batch: Buffer, header: BatchHeader | None = None, *, leader_epoch: LeaderEpoch, is_own: bool = False
    ) -> Appended:
        """One batch from a producer. Gives it offsets, and hands it to the operating system; `wait_kept` does the rest.

        A writable buffer is stamped in place, any other is copied once. One that the broker made itself may say what no
        producer may. Who has had `check_batch` look at these very bytes gives the header that it found.
        """
        if self._refusal is not None:
            raise self._refusal
        if header is None:
            header = check_batch(batch)
        if not is_own:
            check_produced(header)
            check_size(len(batch), self._batch_bytes_max)
        if header.length + LENGTH_END != len(batch):
            raise InvalidRecord(f"{len(batch)} bytes hold more than one batch; a producer sends one at a time")
        if header.producer_id != NO_PRODUCER:
            duplicate = self.producers.find_duplicate(header)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.last_offset, self.truncations, is_duplicate=True)
        base_offset = self.next_offset
        try:
            stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        except TypeError:  # it cannot be written to
            batch = bytearray(batch)
            stamp(batch, base_offset=base_offset, leader_epoch=leader_epoch)
        self._write(batch, header, base_offset, leader_epoch)
        return tuple.__new__(Appended, (base_offset, self.next_offset - 1, self.truncations, False))

    def append_replicated(self, batches: Buffer) -> Appended:
        """Batches from the leader, with the offsets and epochs it gave them; the first must be the next one here.

        When it raises StorageError, the first few may have been appended: `next_offset` says where to go on.
        """
        if self._refusal is not None:
            raise self._refusal
        base_offset = self.next_offset
        headers = list(iter_batches(batches))
        expected, epoch = base_offset, self.epochs.latest
        for _, header in headers:
            if header.base_offset != expected or header.leader_epoch < epoch:
                raise InvalidRecord(
                    f"the leader sent offset {header.base_offset} of epoch {header.leader_epoch}; "
                    f"here {expected} of epoch {epoch} or newer comes next"
                )
            expected, epoch = header.next_offset, header.leader_epoch
        for position, header in headers:
            batch = memoryview(batches)[position : position + header.size]
            self._write(batch, header, header.base_offset, header.leader_epoch)
        return Appended(base_offset, Offset(self.next_offset - 1), self.truncations)

    def _write(self, batch: Buffer, header: BatchHeader, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        try:
            if leader_epoch != self.epochs.latest:
                self._begin_epoch(leader_epoch, base_offset)
            active = self.segments.active
            if (active.size + len(batch) > self._segment_bytes and active.size) or (
                base_offset + header.last_offset_delta - active.base_offset > _OFFSETS_PER_SEGMENT_MAX
            ):
                self._roll()
                active = self.segments.active
            active.append(batch, header, base_offset=base_offset)
        except OSError as error:
            raise self._after_failed_write(error) from error
        self.next_offset = active.next_offset
        self.appended_bytes += len(batch)
        self.appended_batches += 1
        if self._flushes_by_interval and self._flush_timer is None:
            self._start_flush_timer()
        if header.producer_id != NO_PRODUCER:
            self.producers.remember(header, base_offset=base_offset)

    async def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Before the first append of a new leader, for whoever does not want that one to wait for the disk."""
        assert not self.is_planned, "a log is made on the loop"
        async with self.commit.turn:
            self._require_open()
            await self.off_loop(lambda: self._begin_epoch(epoch, self.next_offset))

    def _begin_epoch(self, epoch: LeaderEpoch, start: Offset) -> None:
        """The history is on disk before the first batch of the epoch is anywhere: recovery relies on it."""
        history = self.epochs.begin(epoch, start)
        if self.is_planned:
            self._make(history)
        else:
            write_document(self.filesystem, self.directory, LEADER_EPOCHS, history.pairs())
        self.epochs.adopt(history)

    @property
    def is_planned(self) -> bool:
        """It has no files, and nothing was ever written to it."""
        return self.founding is not None and not self.founding.is_made

    def _make(self, history: LeaderEpochs) -> None:
        assert self.founding is not None
        self.founding.make(self.segments.active, self.checkpoint, history)
        self.commit.request()  # in every flush mode: nobody is told of a log that is not founded

    def _after_failed_write(self, error: OSError) -> StorageError:
        """Puts the file back as it was."""
        try:
            self.segments.active.discard_torn_tail()
        except OSError as second:
            return self.refuse(second)
        return self.explain(error)

    def explain(self, error: OSError) -> StorageError:
        """What is full may have room again later; any other failure ends the log."""
        if error.errno in _NO_MORE_FILES:
            return TooManyOpenFiles(
                f"{self.name} needs a new file, and the broker has as many open as it may; send again, and raise its "
                "limit (ulimit -n) if this happens often"
            )
        if error.errno not in _FULL:
            return self.refuse(error)
        return DiskFull(f"no space left for {self.name}; free some, or let retention do it, and send again")

    def refuse(self, error: Exception) -> StorageError:
        if self.is_closed:
            return LogClosed(f"{self.name} is closed")
        self._refusal = DiskFailed(
            f"{self.name} takes no more appends, since the disk failed: {_why(error)}. What was acknowledged is safe "
            "as far as the disk is; look after the disk and start again"
        )
        return self._refusal

    def _roll(self) -> None:
        """Seals the last segment and begins the next. A commit round soon makes both durable."""
        sealed = self.segments.active
        sealed.give_back()
        self.segments.create(self.next_offset)
        sealed.seal()
        self._checkpoint_at, self._active_since_ms = self.settings.checkpoint_bytes, None
        self.rolled.append(Rolled(sealed, self.next_offset, self.producers.snapshot()))
        self.commit.request()

    # Keeping

    async def wait_kept(self, appended: Appended) -> None:
        """Returns when the flush mode's promise holds for an append."""
        if self.is_unsynced(appended):
            self._require_open()
            await self.commit.join(covered=appended.last_offset < self._syncing_to)
        if self.truncations != appended.truncations:
            raise Truncated(f"{self.name} was truncated before offset {appended.last_offset} was kept; send it again")

    def is_unsynced(self, appended: Appended) -> bool:
        """Whether the flush mode's promise needs another round."""
        return self.kept_end <= appended.last_offset

    def after_sync(self, appended: Appended, ended: Ended) -> None:
        """Calls `ended` once the round that is to sync an append is over, whether it could or not."""
        self.commit.after_round(ended, covered=appended.last_offset < self._syncing_to)

    @property
    def kept_end(self) -> Offset:
        """How far everything is as safe as the flush mode promises."""
        is_waited_for = self.flushes_by_group or self.founding is not None
        return self.durable_offset if is_waited_for else self.next_offset

    async def append_and_wait(self, batch: Buffer, *, leader_epoch: LeaderEpoch) -> Appended:
        appended = self.append(batch, leader_epoch=leader_epoch)
        await self.wait_kept(appended)
        return appended

    async def flush(self) -> None:
        """Returns when everything appended so far is durable, whatever the flush mode."""
        self._require_open()
        await self.commit.join()

    def flush_soon(self) -> "asyncio.Future[None]":
        """The same for who waits for several at once."""
        return self.commit.join()

    def _start_flush_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._flush_timer = loop.call_later(self.settings.flush_interval_ms / 1000, self._on_flush_timer)

    def _on_flush_timer(self) -> None:
        self._flush_timer = None
        self.commit.request()

    def _begin_round(self) -> SyncRound:
        # After a failed sync the next one succeeds without having written what the failed one dropped.
        self._require_open()
        if self.is_planned:
            try:
                self._make(self.epochs)
            except OSError as error:
                raise self.explain(error) from error
        self._syncing_to = self.next_offset
        rolled, self.rolled = self.rolled, []
        active = self.segments.active
        growing = None
        if active.size >= self._checkpoint_at:
            self._checkpoint_at = active.size + self.settings.checkpoint_bytes
            growing = Growing(active.index_path, active.index_so_far(), self.producers.snapshot())
        unsynced_bytes, self._synced_bytes = self.appended_bytes - self._synced_bytes, self.appended_bytes
        return SyncRound(
            self, rolled, active, growing, end=self.next_offset, size=unsynced_bytes, on_synced=self._on_synced
        )

    def _on_synced(self, end: Offset) -> None:
        self.durable_offset = max(self.durable_offset, end)
        if self.on_durable is not None:
            self.on_durable()

    # Reading

    def read(self, start: Offset, *, bytes_max: int, until: Offset | None = None) -> Slice:
        """Whole batches from the one that holds `start`: as many as fit, but one even where it is larger.

        None reaches beyond `until`, nor beyond a segment's end: `next_offset` says where to go on. The data is a view;
        it stays readable whatever becomes of the log.
        """
        if self.is_closed:
            raise LogClosed(f"{self.name} is closed")
        if start < self.start_offset or start > self.next_offset:
            raise OffsetOutOfRange(
                f"offset {start} is not in {self.name}, which has {self.start_offset} to {self.next_offset}"
            )
        if until is None or until > self.next_offset:
            until = self.next_offset
        if start >= until:
            return Slice(memoryview(b""), start)
        segment = self.segments.holding(start)
        try:
            found = segment.read(start, bytes_max=bytes_max, until=until, verify=self.settings.verify_reads)
        except OSError as error:
            raise self.unreadable(error) from error
        if found.next_offset > start:
            return found
        if segment.next_offset <= until:
            raise LogCorrupted(segment.path, segment.size, f"the batch with offset {start} is missing")
        return Slice(memoryview(b""), start)

    def first_since(self, timestamp: TimestampMs) -> tuple[Offset, TimestampMs] | None:
        """The first record whose time is `timestamp` or later: its offset and its time."""
        if self.is_closed:
            raise LogClosed(f"{self.name} is closed")
        try:
            for segment in self.segments:
                if segment.size and segment.next_offset > self.start_offset:
                    found = segment.first_since(timestamp, start=self.start_offset)
                    if found is not None:
                        return found
        except OSError as error:
            raise self.unreadable(error) from error
        return None

    def unreadable(self, error: OSError) -> DiskFailed:
        return DiskFailed(f"{self.name} cannot be read: {_why(error)}. Nothing was changed; look after the disk")

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch here that is not above `epoch`, and the offset at which it ended."""
        return self.epochs.end_of(epoch, log_end=self.next_offset)

    @property
    def failure(self) -> StorageError | None:
        """Why it takes no more appends, where that is the disk's fault."""
        return self._refusal if isinstance(self._refusal, DiskFailed) else None

    def facts(self) -> list[SegmentFacts]:
        return self.segments.facts()

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Changing shape

    async def truncate(self, end: Offset, *, if_still: Callable[[], bool] = lambda: True) -> None:
        """Removes every batch that holds `end` or a later offset; durable when it returns.

        Waits for its turn at the disk first; `if_still` is asked then, and may find that there is nothing to cut now.
        """
        async with self.commit.turn:
            self._require_open()
            if not if_still():
                return
            if end < self.start_offset:
                raise OffsetOutOfRange(f"offset {end} is before the start of {self.name}, {self.start_offset}")
            if end < self.next_offset:
                try:
                    cut_back(self, end)
                except OSError as error:
                    # Half of it may be done, so nobody may read on.
                    failure = self.refuse(error)
                    self.abandon()
                    self._refusal = failure  # health tells of it, and nobody goes on asking
                    raise failure from error
                self._active_since_ms = None
                self._checkpoint_at = self.segments.active.size + self.settings.checkpoint_bytes

    async def delete_before(self, offset: Offset) -> None:
        """Forgets every record before `offset`; durable when it returns. Files go when nothing in them is left."""
        self._require_open()
        if offset > self.next_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is behind the end of {self.name}, {self.next_offset}; nothing to delete there"
            )
        await forget_before(self, offset)

    async def upkeep(self, *, now_ms: int, until: Offset | None = None) -> None:
        """Rolls a segment that is old enough and removes those that have had their time. Called now and then.

        Nothing is removed that ends above `until`: what other replicas lack may yet be cut off again.
        """
        self._require_open()
        self.producers.expire(before=TimestampMs(now_ms - self.settings.producer_expiry_ms))
        if self.segments.active.size and self._age_ms(now_ms) >= self.settings.segment_ms:
            self._roll_now()
        facts = self.segments.facts()
        expired = self._expired(facts, now_ms)
        while until is not None and expired and facts[expired - 1].next_offset > until:
            expired -= 1
        if expired == len(self.segments):
            self._roll_now()
        if expired:
            await forget_before(self, self.segments.first(expired)[-1].next_offset)
        async with self.commit.turn:
            # The further the recovery point, the less a crash has to read and write again.
            point = self.synced_to()
            if point > self.checkpoint.recovery_point:
                await self.off_loop(lambda: self.write_checkpoint(recovery_point=point))

    def expires_before(self, now_ms: int) -> Offset:
        """What lies before this offset has had its time; `upkeep` would remove it."""
        facts = self.segments.facts()
        expired = self._expired(facts, now_ms)
        return facts[expired - 1].next_offset if expired else self.start_offset

    def _expired(self, facts: list[SegmentFacts], now_ms: int) -> int:
        return expired_segments(facts, self.settings, start_offset=self.start_offset, now_ms=now_ms)

    def _roll_now(self) -> None:
        try:
            self._roll()
        except OSError as error:
            raise self.explain(error) from error

    def _age_ms(self, now_ms: int) -> int:
        """How long the growing segment has been growing, as far as this process and its first batch can tell."""
        if self._active_since_ms is None:
            active = self.segments.active
            _, first = next(active.headers(active.base_offset))
            self._active_since_ms = now_ms if first.max_timestamp < 0 else min(now_ms, first.max_timestamp)
        return now_ms - self._active_since_ms

    def synced_to(self) -> Offset:
        """How far the recovery point may go. Not past a segment that no round has synced since it was sealed.

        Its batches may be durable all the same, but the removal of a torn tail behind them need not be.
        """
        return min(self.durable_offset, *(each.segment.base_offset for each in self.rolled), self.next_offset)

    def write_checkpoint(self, **changes: Offset) -> None:
        checkpoint = replace(self.checkpoint, **changes)
        checkpoint.write(self.filesystem, self.directory)
        self.checkpoint = checkpoint

    async def compact(self, *, now_ms: int, until: Offset | None = None) -> None:
        """One pass, where it is worth one. Reading and writing happen in a thread; appends and reads go on.

        Nothing goes because of a record at `until` or above, which may yet be cut off again.
        """
        self._require_open()
        if self.settings.compact and not self._is_compacting:
            self._is_compacting = True
            try:
                await compact_once(self, now_ms, until)
            finally:
                self._is_compacting = False

    # Ending

    async def close(self) -> None:
        """Syncs everything and leaves the marker that lets the next open skip the check."""
        if self.is_closed:
            return
        try:
            if self._refusal is None and not self.is_planned:
                await self.commit.join()
                async with self.commit.turn:
                    self._refusal = LogClosed(f"{self.name} is closed")
                    await self.off_loop(self._write_closing_documents)
        finally:
            self.abandon()

    def _write_closing_documents(self) -> None:
        active, directory = self.segments.active, self.directory
        for rolled in self.rolled:  # by an append that came while the last round ran
            rolled.segment.file.sync()
            rolled.segment.finish()
        active.give_back()
        active.file.sync()
        active.finish()
        write_snapshot(self.filesystem, directory, self.next_offset, self.producers.snapshot())
        self.write_checkpoint(recovery_point=self.next_offset)
        remove_old_snapshots(self.filesystem, directory, recovery_point=self.next_offset)
        marker = {"segment": active.base_offset, "bytes": active.size, "next_offset": self.next_offset}
        write_document(self.filesystem, directory, CLEAN_SHUTDOWN, marker)

    def abandon(self) -> None:
        """Lets go of the files and keeps no further promise: what a kill does, without one."""
        self.is_closed = True
        self._refusal = LogClosed(f"{self.name} is closed")
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self.segments.close()

    # The disk's answers

    def _require_open(self) -> None:
        """Neither closed nor given up after a disk failure."""
        if self._refusal is not None:
            raise self._refusal

    async def off_loop(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, work)
        except OSError as error:
            raise self.explain(error) from error


def _why(error: Exception) -> str:
    """Without the path that an OSError carries: clients are told of this."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_size(batch_bytes: int, batch_bytes_max: int) -> None:
    if batch_bytes > batch_bytes_max:
        raise BatchTooLarge(f"the batch has {batch_bytes} bytes; allowed are {batch_bytes_max} (max.message.bytes)")
