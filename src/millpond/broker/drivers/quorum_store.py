"""What a broker's Raft node keeps on disk: its log, its term and vote, and the newest snapshot.

    __cluster_metadata-0/
        *.log, ...     the entries, as any log has its records (storage/log.py): offset = index - 1,
                       leader epoch = term, key = kind of the entry, value = its data
        hard-state     a document: {"term": 7, "voted_for": 2}, or null for nobody
        snapshot       one line `millpond-snapshot 1 <CRC-32C of the rest, eight hex digits>`, then core/raft's bytes

A directory without hard state is new, or of a Millpond before there was Raft: then its records, which have no key and
epoch 0, are the commands of a cluster of one. They become a snapshot, of term 1, in place of the first entries.

Invariant: writes happen one after another, in the order they were handed over; a crash between any two leaves a state
that Raft could have been in. Damage is refused, never guessed around: a node that forgets what it promised is worse
than one that is missing.
Driven by quorum.py; what blocks runs in a thread, except for truncations, which are rare and short.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from millpond.core.metadata.changes import encode_image
from millpond.core.metadata.encoding import decode
from millpond.core.metadata.image import EMPTY, apply_all
from millpond.core.raft.durable import DurableState, Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.encoding import decode_snapshot, encode_snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.output import Persist
from millpond.model.errors import DiskFailed, DiskFull, LogCorrupted, UnreadableCommand
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.model.limits import BATCH_BYTES_MAX, MIB
from millpond.model.ports import Clock, Filesystem
from millpond.protocol.records import NewRecord, Record, decode_batch, encode_batch, iter_batches
from millpond.storage.checkpoints import make_directory, read_document, replace_file, write_document
from millpond.storage.log import Log
from millpond.storage.recovery import begin_at
from millpond.storage.settings import LogSettings

DIRECTORY = "__cluster_metadata-0"
HARD_STATE = "hard-state"
SNAPSHOT = "snapshot"
SNAPSHOT_HEAD = b"millpond-snapshot 1 %08x"
_SETTINGS = LogSettings(delete=False, retention_ms=None, batch_bytes_max=BATCH_BYTES_MAX, segment_bytes=16 * MIB)
_KEYS = {EntryKind.DATA: b"data", EntryKind.NOOP: b"noop", EntryKind.MEMBERSHIP: b"membership"}
_KINDS = {key: kind for kind, key in _KEYS.items()}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def start_anew(broker: int) -> str:
    """What to do with a voter that lost some of what it promised; an old copy of its directory has lost it too."""
    return (
        f"run `millpond cluster demote {broker}`, start it with an empty directory and with peers that do not name it, "
        f"and let it vote again with `millpond cluster promote {broker}`"
    )


class QuorumStore:
    def __init__(self, node_id: int, filesystem: Filesystem, data_directory: str, clock: Clock) -> None:
        """Use `QuorumStore.open`."""
        self._node_id = node_id
        self._filesystem = filesystem
        self._directory = f"{data_directory}/{DIRECTORY}"
        self._clock = clock
        self._log: Log
        self._snapshot_index = 0
        self._remedy = (
            "a broker that is alone needs its data directory from a backup; one of a cluster must not have that, since "
            f"it would not know what it promised: {start_anew(node_id)}"
        )
        self.state: DurableState
        """As it was found; changes after that are Raft's to know."""

    @classmethod
    async def open(
        cls, node_id: int, filesystem: Filesystem, data_directory: str, clock: Clock, *, founders: Membership
    ) -> "QuorumStore":
        """Blocks: reads everything. `founders` count only where the directory is new."""
        store = cls(node_id, filesystem, data_directory, clock)
        try:
            make_directory(filesystem, store._directory)
        except OSError as error:
            raise store._explain(error) from error
        store._log = Log.open(filesystem, store._directory, _SETTINGS)
        try:
            hard_state = store._read_hard_state()
            if hard_state is None:
                await store._begin(founders)
            else:
                store._find(hard_state)
        except LogCorrupted as error:
            store._log.abandon()
            raise UnreadableCommand(
                f"{error.file} is damaged at byte {error.position}: {error.reason}; {store._remedy}"
            ) from error
        except BaseException:
            store._log.abandon()
            raise
        return store

    # Beginning

    async def _begin(self, founders: Membership) -> None:
        """Promises nothing yet, so there is no hard state yet: until one is written, a start begins again."""
        first = next(self._records(Offset(0)), None) if self._log.start_offset == 0 else None
        if first is not None and first[1].key is None:  # a snapshot there is one of a take-over that was cut short
            await self._take_over(founders)
            return
        if self._log.next_offset > 1 or self._filesystem.exists(f"{self._directory}/{SNAPSHOT}"):
            raise UnreadableCommand(
                f"{self._directory}/{HARD_STATE} is missing, though there are entries; {self._remedy}"
            )
        if self._log.next_offset:
            self._restart_log(0)
        state = DurableState.first(founders)
        await self._append(state.entries)  # durable before the first hard state is, like all that waits
        self.state = state

    async def _take_over(self, founders: Membership) -> None:
        [node, *others] = founders.voters
        if others:
            raise UnreadableCommand(
                f"{self._directory} holds the metadata of a cluster of one, and peers names {len(founders.voters)} "
                "brokers; start it without peers, or begin a new cluster with empty data directories"
            )
        self._require_whole(Offset(0))
        image = apply_all([decode(record.value or b"") for _, record in self._records(Offset(0))], EMPTY)
        index = self._log.next_offset
        taken = Snapshot(index, 1, Membership((node,)), encode_image(image, data_index=index))
        state = DurableState(HardState(term=1), taken)
        await self._off_loop(lambda: self._write_snapshot(taken))
        await self._off_loop(lambda: self._write_hard_state(state.hard_state))
        self.state = state

    # Finding

    def _find(self, hard_state: HardState) -> None:
        snapshot = self._read_snapshot()
        self._snapshot_index = snapshot.index
        is_older = self._log.next_offset < snapshot.index or self._log.epochs.latest > snapshot.term
        if self._log.next_offset <= snapshot.index and (is_older or self._log.report.damages):
            # All that counts is in the snapshot. Where one from the leader was being installed, the rest is wrong.
            self._restart_log(snapshot.index)
        if self._log.start_offset > snapshot.index:
            raise UnreadableCommand(
                f"{self._directory} lacks the entries from {snapshot.index + 1} to {self._log.start_offset}; "
                f"{self._remedy}"
            )
        self._require_whole(Offset(snapshot.index))
        entries = tuple(self._entry(term, record) for term, record in self._records(Offset(snapshot.index)))
        if not snapshot.membership.voters and not entries:
            raise UnreadableCommand(f"{self._directory} has a hard state and no entries; {self._remedy}")
        self.state = DurableState(hard_state, snapshot, entries)

    def _require_whole(self, since: Offset) -> None:
        for damage in self._log.report.damages:
            if damage.offset >= since:
                raise UnreadableCommand(
                    f"{damage.file} is damaged at byte {damage.position}, offset {damage.offset}: {damage.reason}; "
                    f"{self._remedy}"
                )

    def _records(self, start: Offset) -> Iterator[tuple[int, Record]]:
        """Each with the leader epoch it was written in."""
        at, end = start, self._log.next_offset
        while at < end:
            part = self._log.read(at, bytes_max=MIB)
            for position, header in iter_batches(part.data):
                for record in decode_batch(part.data, position):
                    if record.offset >= start:
                        yield header.leader_epoch, record
            at = part.next_offset

    def _entry(self, term: int, record: Record) -> Entry:
        kind = _KINDS.get(record.key or b"")
        if kind is None or record.value is None:
            raise UnreadableCommand(
                f"{self._directory} has an entry of kind {(record.key or b'')[:20]!r} at offset {record.offset}, which "
                "is not known here; a newer Millpond wrote it: start that one, or a later one"
            )
        return Entry(record.offset + 1, term, kind, record.value)

    def _read_hard_state(self) -> HardState | None:
        found = read_document(self._filesystem, self._directory, HARD_STATE)
        if found is not None:
            return HardState(found["term"], found["voted_for"])
        if self._filesystem.exists(f"{self._directory}/{HARD_STATE}"):
            raise UnreadableCommand(
                f"{self._directory}/{HARD_STATE} is not what was written, so it is not known for whom this broker "
                f"voted; {self._remedy}"
            )
        return None

    def _read_snapshot(self) -> Snapshot:
        path = f"{self._directory}/{SNAPSHOT}"
        if not self._filesystem.exists(path):
            return DurableState.joining().snapshot
        file = self._filesystem.open(path)
        try:
            head, _, content = file.read(0, file.size()).partition(b"\n")
        finally:
            file.close()
        if head != SNAPSHOT_HEAD % crc32c(content):
            raise UnreadableCommand(f"{path} is not what was written: its checksum is wrong; {self._remedy}")
        return decode_snapshot(content)

    # Keeping

    async def perform(self, persists: Sequence[Persist]) -> None:
        """In their order; durable when it returns. May be tried again after `DiskFull`."""
        for persist in persists:
            await self._perform(persist)
        await self._flush_what_waits()

    async def _perform(self, persist: Persist) -> None:
        hard_state, snapshot = persist.hard_state, persist.snapshot
        if hard_state is not None:
            await self._flush_what_waits()
            await self._keep_hard_state(hard_state)
        if persist.truncate_from is not None:
            await self._flush_what_waits()
            await self._log.truncate(Offset(persist.truncate_from - 1))
        if snapshot is not None:
            await self._flush_what_waits()
            await self._off_loop(lambda: self._write_snapshot(snapshot))
            if self._log.next_offset <= snapshot.index:
                await self._off_loop(lambda: self._restart_log(snapshot.index))
        await self._append(persist.entries)

    async def _keep_hard_state(self, state: HardState) -> None:
        writing = self._off_loop(lambda: self._write_hard_state(state))
        if state.voted_for == self._node_id and state.term > self._log.epochs.latest:
            # A candidate may lead soon. An epoch without entries leaves no trace, so it can begin beside the vote.
            await asyncio.gather(writing, self._log.begin_epoch(LeaderEpoch(state.term)))
        else:
            await writing

    async def _flush_what_waits(self) -> None:
        if self._log.durable_offset < self._log.next_offset:
            await self._log.flush()

    async def _append(self, entries: Sequence[Entry]) -> None:
        """Each is a batch of its own, because a log is cut between batches only."""
        stamp = TimestampMs(self._clock.wall_ms())
        for entry in entries:
            if entry.index <= self._log.next_offset:
                continue  # from a try that found the disk full
            assert entry.index == self._log.next_offset + 1, (entry.index, self._log.next_offset)
            term = LeaderEpoch(entry.term)
            if term != self._log.epochs.latest:
                await self._log.begin_epoch(term)
            batch = encode_batch([NewRecord(entry.data, _KEYS[entry.kind], stamp)])
            self._log.append(bytearray(batch), leader_epoch=term)

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        """One that this node made itself, of entries it has; they are forgotten, as far as whole files go."""
        if snapshot.index > self._snapshot_index:
            await self._off_loop(lambda: self._write_snapshot(snapshot))
            await self._log.delete_before(Offset(snapshot.index))

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        content = encode_snapshot(snapshot)
        head = SNAPSHOT_HEAD % crc32c(content)
        replace_file(self._filesystem, self._directory, SNAPSHOT, (head, b"\n", content))
        self._snapshot_index = snapshot.index

    def _write_hard_state(self, state: HardState) -> None:
        content = {"term": state.term, "voted_for": state.voted_for}
        write_document(self._filesystem, self._directory, HARD_STATE, content)

    def _restart_log(self, index: int) -> None:
        """Empty, the next entry being the one after `index`."""
        self._log.abandon()
        begin_at(self._filesystem, self._directory, Offset(index))
        self._log = Log.open(self._filesystem, self._directory, _SETTINGS)

    async def close(self) -> None:
        await self._log.close()

    async def _off_loop(self, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, work)
        except OSError as error:
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> DiskFull | DiskFailed:
        if error.errno in _FULL:
            return DiskFull(f"no space left for {DIRECTORY}; free some")
        return DiskFailed(f"{DIRECTORY} cannot be written: {error.strerror}; look after the disk and start again")
