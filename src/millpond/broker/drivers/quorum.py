"""Runs this broker's Raft node: its timer, its disk, its messages; and applies what is committed to the image.

Invariants: the image shows exactly the changes that a majority has kept, in order, each decided on the image before it;
none is shown before it is on this broker's own disk. A step of Raft waits for nothing: the disk is written by one task,
in order, and snapshots are made in a thread.
Driven by metadata.py (changes), by links.py and the cluster's front door (messages), and by its own timer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from millpond.broker.drivers.quorum_store import DIRECTORY, QuorumStore, start_anew
from millpond.core.metadata.changes import Change, decode_change, decode_image, encode_change, encode_image
from millpond.core.metadata.commands import Command
from millpond.core.metadata.image import EMPTY, Image, apply_all
from millpond.core.raft.durable import FIRST_TERM, Entry, EntryKind, Snapshot
from millpond.core.raft.membership import AddLearner, PromoteLearner, RemoveNode
from millpond.core.raft.membership import Change as MembershipChange
from millpond.core.raft.messages import Heartbeat, Message
from millpond.core.raft.output import Persist, Reason, Refused, Role, RoleChanged
from millpond.core.raft.raft import Raft
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import ControllerUnavailable, DiskFull, PolicyViolation, PromisesForgotten, StorageError
from millpond.model.limits import MIB
from millpond.model.ports import Rng
from millpond.model.values import dataclass

DISK_FULL_RETRY_SECONDS = 1.0

Listener = Callable[[Image, Image], None]
"""Called with the image before and after, at once, whenever it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    raft: RaftSettings
    snapshot_entries: int = 10_000
    snapshot_bytes: int = 16 * MIB
    """A snapshot is made after so many entries, or so many bytes of them."""
    entries_kept: int = 1_000
    """Behind a snapshot, in memory, for brokers that lack only a few."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """In the controller's log at this index: kept for good if the entry that is applied there is of this term."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Decided on an old image: the newest change has this index, in a log of this term."""

    newest: int
    term: int


@dataclass(frozen=True, slots=True)
class NotController:
    """Or not yet, or not surely any more."""

    leader: int | None
    """Whom to ask instead, as far as is known."""


@dataclass(frozen=True, slots=True)
class Unheard:
    """No answer came: it may be in the controller's log, or not."""


Outcome = Accepted | Conflict | NotController | Unheard


class Quorum:
    def __init__(
        self,
        node_id: int,
        store: QuorumStore,
        settings: QuorumSettings,
        rng: Rng,
        *,
        send: Callable[[Sequence[Message]], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Blocks: reads the snapshot. Must be made on the loop it will run on; `start` sets it going."""
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._settings = settings
        self._send = send
        self._on_error = on_error
        self.image, self.data_index = EMPTY, 0
        """What everybody sees, and the index of the last change in it."""
        snapshot = store.state.snapshot
        self.applied_index, self.applied_term = snapshot.index, snapshot.term
        self.restores = 0
        """How often the image jumped to a snapshot, so that what was in between is not known one by one."""
        if snapshot.data:
            self.image, self.data_index = decode_image(snapshot.data)
        self._newest = 0
        """As leader: the index of the newest change in the log, committed or not."""
        self._own: dict[bytes, bool] = {}
        """Changes of this broker that somebody waits for, and whether they have been applied."""
        self._listeners: list[Listener] = []
        self._role_listeners: list[Callable[[], None]] = []
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._to_write: deque[Persist | Snapshot] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._bytes_since_snapshot = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_started = False
        self._is_closed = False
        self._is_retired = False
        self.trouble: StorageError | None = None
        """Why nothing can be kept at the moment, or ever again."""
        self.raft = Raft(node_id, settings.raft, rng, store.state, now=self._loop.time())

    def start(self) -> None:
        self._is_started = True
        self._drain()

    # What others ask

    @property
    def is_controller(self) -> bool:
        """Leads, and has applied everything that was committed before it did."""
        return self.raft.role is Role.LEADER and self.applied_term == self.raft.term

    @property
    def leader(self) -> int | None:
        return self.raft.leader

    @property
    def is_new(self) -> bool:
        """Whether nobody has led yet, as far as this broker knows: it has promised nothing, and the cluster may not be
        founded."""
        return self.raft.term <= FIRST_TERM

    def has_forgotten(self, broker: int, directory_id: bytes) -> bool:
        """Whether it votes, and promised what it promised from another data directory. What it says now would be taken
        for the word of one who remembers: it could vote twice, or for one who lacks what it had."""
        known = self.image.brokers.get(broker)
        return (
            broker in self.raft.membership.voters
            and known is not None
            and known.directory_id not in (b"", directory_id)
        )

    @property
    def is_caught_up(self) -> bool:
        """Whether something of the present term has been applied: everything of earlier ones has been, then."""
        return self.raft.term > 0 and self.applied_term == self.raft.term

    def lease_until(self) -> float | None:
        """By this loop's clock, until when nobody else can be the controller; None where this broker is not."""
        if not self.is_controller or self._is_retired:
            return None
        return self.raft.lease_until(self._loop.time())

    def holds_lease(self) -> bool:
        until = self.lease_until()
        return until is not None and self._loop.time() < until

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def listen_to_roles(self, listener: Callable[[], None]) -> None:
        """Called when leadership may have come or gone, and when this broker has become the controller."""
        self._role_listeners.append(listener)

    async def wait_change(self, until: float) -> None:
        """Returns at the next change of the image or of roles, or when the loop's clock says `until`."""
        waiter = self._loop.create_future()
        self._waiting[waiter] = None
        timer = self._loop.call_at(until, _settle, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.pop(waiter, None)

    def receive(self, message: Message) -> None:
        """Before the start it is lost: a broker that waits for founders must not vote for any."""
        if not self._is_started or self._is_closed or self._is_broken():
            return
        self.raft.receive(message, self._loop.time())
        self._drain()
        if isinstance(message, Heartbeat):
            self._require_memory(message.commit)

    def _require_memory(self, index: int) -> None:
        """A leader tells a voter of no more than that voter said it has. One that has less is sent nothing, since its
        word was counted: it would wait for ever, and vote as if it remembered. One that does not even know itself has
        an empty disk, and is told so by the others, who know it by its directory."""
        node, last = self.raft.node_id, self.raft.log.last_index
        if index > last and node in self.raft.membership.voters and node in self.image.brokers:
            self._break(
                PromisesForgotten(
                    f"{DIRECTORY} ends at entry {last}, and broker {node} said that it has {index}: the data directory "
                    f"is an older copy, or its disk did not keep what it had synced; {start_anew(node)}"
                )
            )

    def leader_gone(self, leader: int, term: int) -> None:
        """The process that led this term has ended: the next is elected without waiting for its lease to be over."""
        if self._is_started and not self._is_closed and not self._is_broken():
            self.raft.leader_gone(leader, term, self._loop.time())
            self._drain()

    def retire(self) -> None:
        """Others may take this broker for gone from now on: it trusts its lease no more, whoever leads."""
        self._is_retired = True

    # Changes

    def propose(self, change: Change) -> Outcome:
        """Takes the change into the log, if it was decided on the newest image. No commands ask only whether it was."""
        if self.trouble is not None:
            raise self.trouble
        if self._is_closed or not self.is_controller:
            return NotController(self.leader if self.leader != self.raft.node_id else None)
        assert self._newest >= self.data_index, "another leads in this term, or did"
        if change.base != self._newest:
            return Conflict(self._newest, self.raft.term)
        if not change.commands:
            return Accepted(self._newest, self.raft.term) if self.holds_lease() else NotController(None)
        proposed = self.raft.propose(encode_change(change), self._loop.time())
        if isinstance(proposed, Refused):
            if proposed.reason is Reason.TOO_LARGE:
                raise PolicyViolation(
                    f"{len(change.commands)} changes at once are more than one entry of the log takes; ask for fewer"
                )
            return NotController(None)
        self._newest = proposed.index
        self._drain()
        return Accepted(proposed.index, proposed.term)

    def change_membership(self, change: MembershipChange) -> Reason | None:
        """As the leader: begins it, or says why not. Whoever asked looks at `raft.membership` for the outcome."""
        refused = self.raft.change_membership(change, self._loop.time())
        self._drain()
        return refused.reason if isinstance(refused, Refused) else None

    def has_changed(self, change: MembershipChange) -> bool:
        """Whether it is so, for good, as far as this broker knows."""
        log, members = self.raft.log, self.raft.membership
        is_so = {
            AddLearner: change.node in members.nodes,
            PromoteLearner: change.node in members.voters,
            RemoveNode: change.node not in members.voters,
        }
        return log.membership_index <= log.commit and is_so[type(change)]

    def transfer(self) -> bool:
        """Hands the leadership to another voter; whether there is one to try it with."""
        refused = self.raft.transfer(None, self._loop.time())
        self._drain()
        return refused is None

    def watch(self, change_id: bytes) -> None:
        self._own[change_id] = False

    def is_applied(self, change_id: bytes) -> bool:
        return self._own[change_id]

    def unwatch(self, change_id: bytes) -> None:
        del self._own[change_id]

    # Raft's side

    def _drain(self) -> None:
        output = self.raft.take_output()
        if output.persist is not None:
            self._write_soon(output.persist)
        if output.messages:
            self._send(output.messages)
        was_controller = self.is_controller
        if output.restore is not None:
            self._restore(output.restore)
        if output.committed:
            self._apply(output.committed)
        is_new = self.is_controller and not was_controller
        if is_new:
            self._newest = self.data_index
        if is_new or any(isinstance(fact, RoleChanged) for fact in output.facts):
            for listener in self._role_listeners:
                listener()
        if output.restore is not None or output.committed or output.facts:
            self._wake()
        self._set_timer()

    def _restore(self, snapshot: Snapshot) -> None:
        before = self.image
        self.image, self.data_index = decode_image(snapshot.data)
        self.applied_index, self.applied_term = snapshot.index, snapshot.term
        self.restores += 1
        self._bytes_since_snapshot = 0
        self._tell(before)

    def _apply(self, entries: Sequence[Entry]) -> None:
        before = self.image
        commands: list[Command] = []
        for entry in entries:
            self._bytes_since_snapshot += len(entry.data)
            if entry.kind is not EntryKind.DATA:
                continue
            change = decode_change(entry.data)
            assert change.base == self.data_index, (entry.index, change.base, self.data_index)
            commands += change.commands
            self.data_index = entry.index
            if change.change_id in self._own:
                self._own[change.change_id] = True
        self.applied_index, self.applied_term = entries[-1].index, entries[-1].term
        if commands:
            self.image = apply_all(commands, before)
            self._tell(before)
        self._snapshot_if_due()

    def _tell(self, before: Image) -> None:
        for listener in self._listeners:
            listener(before, self.image)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            _settle(waiter)

    def _set_timer(self) -> None:
        """Sets it anew only where it would ring too late: a follower's deadline moves on with every heartbeat."""
        deadline = None if self._is_closed or self._is_broken() else self.raft.deadline()
        if self._timer is not None:
            if deadline is not None and self._timer_at <= deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._on_timer)
            self._timer_at = deadline

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        deadline = self.raft.deadline()
        if deadline is not None and now >= deadline:
            self.raft.tick(now)
        self._drain()

    # The disk

    def _write_soon(self, work: Persist | Snapshot) -> None:
        self._to_write.append(work)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._to_write and not self._is_broken():
                try:
                    await self._write_next()
                    self.trouble = None
                except DiskFull as error:
                    # What is not written stays first in the queue; nothing that waits for it has been promised.
                    if self.trouble is None:
                        self._on_error(error)
                    self.trouble = error
                    await asyncio.sleep(DISK_FULL_RETRY_SECONDS)
        except Exception as error:
            self._break(error)
        finally:
            self._writer = None

    async def _write_next(self) -> None:
        first = self._to_write[0]
        if isinstance(first, Snapshot):
            await self._store.keep_snapshot(first)
            self._to_write.popleft()
            if first.index > self.raft.log.snapshot.index:
                self.raft.compact(first, entries_kept=self._settings.entries_kept)
            return
        persists: list[Persist] = []
        for each in self._to_write:
            if isinstance(each, Snapshot):
                break
            persists.append(each)
        await self._store.perform(persists)
        for _ in persists:
            self._to_write.popleft()
        self.raft.persisted(persists[-1].number, self._loop.time())
        self._drain()

    def _is_broken(self) -> bool:
        return self.trouble is not None and not isinstance(self.trouble, DiskFull)

    def _break(self, error: Exception) -> None:
        """This node can promise nothing any more, so it falls silent; the others go on without it."""
        self.trouble = error if isinstance(error, StorageError) else StorageError(f"the metadata log failed: {error}")
        self._on_error(error)
        self._set_timer()
        self._wake()

    # Snapshots

    def _snapshot_if_due(self) -> None:
        entries = self.applied_index - self.raft.log.snapshot.index
        is_due = (
            entries >= self._settings.snapshot_entries or self._bytes_since_snapshot >= self._settings.snapshot_bytes
        )
        if is_due and self._snapshotting is None and not self._is_closed:
            self._snapshotting = self._loop.create_task(self._make_snapshot())

    async def _make_snapshot(self) -> None:
        image, data_index, index = self.image, self.data_index, self.applied_index
        self._bytes_since_snapshot = 0
        try:
            data = await self._loop.run_in_executor(None, lambda: encode_image(image, data_index=data_index))
            if index > self.raft.log.snapshot.index:  # else one from the leader came in between
                self._write_soon(self.raft.make_snapshot(index, data))
                while self._writer is not None and index > self.raft.log.snapshot.index:
                    await asyncio.shield(self._writer)
        except Exception as error:
            self._on_error(error)
        finally:
            self._snapshotting = None

    # Ending

    async def close(self) -> None:
        """Says nothing more, and leaves the disk in order."""
        self._is_closed = True
        self._set_timer()
        self._wake()
        if self._writer is not None and not self.trouble:
            await asyncio.wait([self._writer])
        for task in (self._writer, self._snapshotting):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._store.close()

    def require_open(self) -> None:
        if self._is_closed:
            raise ControllerUnavailable("the broker stops; ask another, or ask again")
        if self._is_broken():
            assert self.trouble is not None
            raise self.trouble


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
