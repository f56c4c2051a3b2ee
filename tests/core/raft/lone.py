"""One machine with a disk, and a test that plays everybody else."""

import random

from millpond.core.raft.durable import Entry, EntryKind
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    VoteAnswer,
    VoteRequest,
)
from millpond.core.raft.output import Fact, Output, Persist, ReadReady, Role
from millpond.core.raft.raft import Raft
from millpond.core.raft.settings import RaftSettings
from tests.core.raft.disk import Disk

SETTINGS = RaftSettings(
    election_timeout_s_min=1.0,
    election_timeout_s_max=2.0,
    heartbeat_s=0.25,
    clock_drift_max=0.1,
    snapshot_chunk_bytes=4,
)


def entry(index: int, term: int, data: bytes | None = None) -> Entry:
    return Entry(index, term, EntryKind.DATA, b"%d.%d" % (index, term) if data is None else data)


def members(index: int, term: int, *voters: int) -> Entry:
    return Entry(index, term, EntryKind.MEMBERSHIP, Membership(voters).to_bytes())


class Lone:
    """Node 1. Its log is the founders' entry and one entry for each further term given."""

    def __init__(
        self,
        *voters: int,
        log: tuple[Entry, ...] = (),
        term: int = 1,
        voted_for: int | None = None,
        settings: RaftSettings = SETTINGS,
    ) -> None:
        self.now = 100.0
        self.settings = settings
        self.disk = Disk(Membership(voters or (1, 2, 3)))
        self.disk.entries |= {each.index: each for each in log}
        self.disk.hard_state = type(self.disk.hard_state)(term, voted_for)
        self.stalled = False
        """While it is, persists pile up in `waiting`."""
        self.start()

    def start(self) -> None:
        self.waiting: list[Persist] = []
        self.committed: list[Entry] = []
        self.reads: list[ReadReady] = []
        self.facts: list[Fact] = []
        self.raft = Raft(1, self.settings, random.Random(1), self.disk.contents(), now=self.now)
        self.sent = self.drain()

    def drain(self) -> list[Message]:
        """Everything it says, with the disk as quick as it is allowed to be."""
        said: list[Message] = []
        while output := self.raft.take_output():
            said += output.messages
            self._note(output)
            if output.persist is not None:
                self.waiting.append(output.persist)
            if not self.stalled:
                self.write()
        return said

    def _note(self, output: Output) -> None:
        self.committed += output.committed
        self.reads += output.reads
        self.facts += output.facts

    def write(self) -> None:
        for persist in self.waiting:
            self.disk.perform(persist)
            self.raft.persisted(persist.number, self.now)
        self.waiting = []

    def hear(self, message: Message) -> list[Message]:
        self.raft.receive(message, self.now)
        return self.drain()

    def tick(self) -> list[Message]:
        """At its next deadline."""
        deadline = self.raft.deadline()
        assert deadline is not None
        self.now = max(deadline, self.now)
        self.raft.tick(self.now)
        return self.drain()

    def elect(self, *voters: int) -> list[Message]:
        """Becomes leader with the votes of these, and returns what it says then."""
        self.tick()
        for voter in voters or (2,):
            self.hear(VoteAnswer(sender=voter, to=1, term=self.raft.term + 1, granted=True, pre=True))
        for voter in voters or (2,):
            said = self.hear(VoteAnswer(sender=voter, to=1, term=self.raft.term, granted=True))
            if self.raft.role is Role.LEADER:
                return said
        raise AssertionError(f"not elected: {self.raft.role}")

    # What others say

    def accepted(self, sender: int, match: int, term: int | None = None) -> AppendAccepted:
        return AppendAccepted(sender=sender, to=1, term=self.raft.term if term is None else term, match=match)

    def answered(self, sender: int, round_heard: int, session: int = 7) -> HeartbeatAnswer:
        return HeartbeatAnswer(sender=sender, to=1, term=self.raft.term, round=round_heard, session=session)


def append(*entries: Entry, prev: tuple[int, int], term: int, commit: int = 0, sender: int = 2) -> Append:
    return Append(sender=sender, to=1, term=term, prev_index=prev[0], prev_term=prev[1], commit=commit, entries=entries)


def heartbeat(*, term: int, sender: int = 2, number: int = 1, commit: int = 0) -> Heartbeat:
    return Heartbeat(sender=sender, to=1, term=term, round=number, commit=commit)


def asks(
    *, term: int, last: tuple[int, int], sender: int = 3, pre: bool = False, transfer: bool = False
) -> VoteRequest:
    return VoteRequest(
        sender=sender, to=1, term=term, last_index=last[0], last_term=last[1], pre=pre, transfer=transfer
    )
