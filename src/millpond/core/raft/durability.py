"""What is on its way to the disk, and the messages that wait for it.

Persists are numbered; the driver performs them in order and tells when one is durable. A message that promises
something is held until the persist that carries the promise is.

Invariant: `stable` is never above what a crash at this moment would leave of the present log.
Pure. Belongs to raft.py.
"""

from collections import deque

from millpond.core.raft.durable import HardState, Snapshot
from millpond.core.raft.log import RaftLog
from millpond.core.raft.messages import Message
from millpond.core.raft.output import Persist
from millpond.model.values import dataclass


@dataclass(slots=True)
class _Outstanding:
    number: int
    last_index: int
    """The end of the log it makes durable; moves back when the log is truncated meanwhile."""
    snapshot: Snapshot | None


class Durability:
    __slots__ = (
        "_durable",
        "_handed_index",
        "_hard_state",
        "_hard_state_in",
        "_held",
        "_log",
        "_log_in",
        "_outstanding",
        "_snapshot",
        "_taken",
        "_truncate_from",
        "stable",
    )

    def __init__(self, log: RaftLog) -> None:
        self._log = log
        self.stable = log.last_index
        self._handed_index = log.last_index
        self._taken = 0
        self._durable = 0
        self._hard_state_in = 0
        self._log_in = 0
        """Numbers of the persists with the newest term and vote, and the newest change of the log."""
        self._outstanding: deque[_Outstanding] = deque()
        self._hard_state: HardState | None = None
        self._truncate_from: int | None = None
        self._snapshot: Snapshot | None = None
        self._held: list[tuple[int, Message]] = []

    # What is to be made durable

    def keep_hard_state(self, state: HardState) -> None:
        self._hard_state = state
        self._hard_state_in = self._taken + 1

    def keep_entries(self) -> None:
        self._log_in = self._taken + 1

    def keep_truncation(self, index: int) -> None:
        """The log was cut: what is under way counts only up to there."""
        if index <= self._handed_index:
            self._truncate_from = index if self._truncate_from is None else min(index, self._truncate_from)
            self._handed_index = index - 1
        for each in self._outstanding:
            each.last_index = min(each.last_index, index - 1)
        self.stable = min(self.stable, index - 1)
        self._log_in = self._taken + 1

    def keep_snapshot(self, snapshot: Snapshot, *, entries_stay: bool) -> None:
        if not entries_stay:
            self.keep_truncation(snapshot.index + 1)
        self._snapshot = snapshot
        self._handed_index = max(self._handed_index, snapshot.index)
        self._log_in = self._taken + 1

    # What waits for it

    def hold(self, message: Message, *, for_log: bool) -> None:
        """Until term and vote are durable, and where the message speaks of entries, these too."""
        self._held.append((max(self._hard_state_in, self._log_in if for_log else 0), message))

    def releasable(self) -> list[Message]:
        ready = [message for number, message in self._held if number <= self._durable]
        if ready:
            self._held = [(number, message) for number, message in self._held if number > self._durable]
        return ready

    # To the disk and back

    def take(self) -> Persist | None:
        if max(self._hard_state_in, self._log_in) <= self._taken:
            return None
        self._taken += 1
        entries = self._log.slice(max(self._handed_index, self._log.base_index) + 1, self._log.last_index)
        persist = Persist(
            number=self._taken,
            hard_state=self._hard_state,
            truncate_from=self._truncate_from,
            snapshot=self._snapshot,
            entries=entries,
        )
        self._outstanding.append(_Outstanding(self._taken, self._log.last_index, self._snapshot))
        self._handed_index = self._log.last_index
        self._hard_state = self._truncate_from = self._snapshot = None
        return persist

    def persisted(self, number: int) -> Snapshot | None:
        """Everything up to this number is durable. Returns the newest snapshot that became so."""
        assert self._durable < number <= self._taken, (self._durable, number, self._taken)
        self._durable = number
        restored = None
        while self._outstanding and self._outstanding[0].number <= number:
            done = self._outstanding.popleft()
            self.stable = max(self.stable, done.last_index)
            restored = done.snapshot or restored
        return restored
