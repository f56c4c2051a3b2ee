"""Conversations of a small cluster, written down as text: who says what to whom, in the order it is heard.

    > 1 times out
      1 is pre-candidate in term 1
      1 -> 2  may I lead term 2? my log ends at 1 of term 1

The network keeps the order and takes no time; disks are at once. Both can be cut. Time passes only when a node is
told to wait for its next deadline.
"""

import os
from collections import deque
from pathlib import Path

from millpond.core.raft.durable import Entry, EntryKind
from millpond.core.raft.membership import Change, Membership
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    SnapshotChunk,
    SnapshotWanted,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from millpond.core.raft.output import Fact, MembershipChanged, Output, Persist, Refused, RoleChanged
from millpond.core.raft.raft import Raft
from millpond.core.raft.settings import RaftSettings
from tests.core.raft.disk import Disk

TRANSCRIPTS = Path(__file__).parent / "transcripts"


class FixedChance:
    """Node 1 waits shortest, node 2 a little longer, and so on."""

    def __init__(self, node: int, session: int) -> None:
        self._node = node
        self._session = session

    def random(self) -> float:
        return 0.0

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._node / 10

    def randrange(self, start: int, stop: int) -> int:
        return start

    def getrandbits(self, k: int) -> int:
        return self._session


class Conversation:
    def __init__(self, voters: int = 3, joining: int = 0, settings: RaftSettings | None = None) -> None:
        self.now = 0.0
        self.settings = settings or RaftSettings(
            election_timeout_s_min=1.0, election_timeout_s_max=2.0, heartbeat_s=0.25, snapshot_chunk_bytes=8
        )
        founders = Membership(tuple(range(1, voters + 1)))
        self.disks = {node: Disk(founders if node <= voters else None) for node in range(1, voters + joining + 1)}
        self.rafts: dict[int, Raft] = {}
        self.mail: deque[Message] = deque()
        self.cut: set[int] = set()
        """Nodes that hear nobody and that nobody hears."""
        self.stalled: dict[int, list[Persist]] = {}
        """Nodes whose disk does nothing, and what it should do."""
        self.applied: dict[int, list[bytes]] = {}
        self.lines: list[str] = []
        self.starts = 0
        for node in self.disks:
            self._start(node)
        self.settle()

    # What happens

    def times_out(self, node: int) -> None:
        deadline = self.rafts[node].deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.say(f"{node} times out")
        self.rafts[node].tick(self.now)
        self.settle()

    def beats(self, node: int, times: int = 1) -> None:
        """A leader's heartbeats, with their answers; nothing else times out."""
        for _ in range(times):
            deadline = self.rafts[node].deadline()
            assert deadline is not None
            self.now = deadline
            self.say(f"{node} beats")
            self.rafts[node].tick(self.now)
            self.settle()

    def proposes(self, node: int, *data: str) -> None:
        self.say(f"{node} is asked to keep {' '.join(data)}")
        self._told(node, self.rafts[node].propose_batch([each.encode() for each in data], self.now))

    def changes(self, node: int, change: Change) -> None:
        self.say(f"{node} is asked for {type(change).__name__} {change.node}")
        self._told(node, self.rafts[node].change_membership(change, self.now))

    def transfers(self, node: int, to: int | None) -> None:
        self.say(f"{node} is asked to hand over to {to or 'anybody'}")
        self._told(node, self.rafts[node].transfer(to, self.now))

    def compacts(self, node: int) -> None:
        index = self.rafts[node].commit
        self.say(f"{node} makes a snapshot at {index}")
        snapshot = self.rafts[node].make_snapshot(index, b",".join(self.applied[node]))
        self.disks[node].keep_snapshot(snapshot)
        self.rafts[node].compact(snapshot)

    def cuts(self, *nodes: int) -> None:
        self.say(f"{' '.join(map(str, nodes))} cut off")
        self.cut |= set(nodes)

    def mends(self) -> None:
        self.say("all connected")
        self.cut.clear()

    def stalls(self, node: int) -> None:
        self.say(f"the disk of {node} stalls")
        self.stalled[node] = []

    def writes(self, node: int) -> None:
        self.say(f"the disk of {node} goes on")
        for persist in self.stalled.pop(node):
            self._write(node, persist)
        self.settle()

    def crashes(self, node: int) -> None:
        self.say(f"{node} crashes")
        del self.rafts[node]
        self.stalled.pop(node, None)
        self.mail = deque(each for each in self.mail if each.to != node)

    def learns_gone(self, node: int, leader: int, term: int) -> None:
        self.say(f"{node} learns that the process of {leader}, which led term {term}, is gone")
        self.rafts[node].leader_gone(leader, term, self.now)
        self.settle()

    def restarts(self, node: int) -> None:
        self.say(f"{node} starts with {self.disks[node]}")
        self._start(node)
        self.settle()

    # How it goes on

    def settle(self) -> None:
        """Until nobody has anything to say."""
        for node in list(self.rafts):
            self._drain(node)
        while self.mail:
            message = self.mail.popleft()
            if message.to not in self.rafts or {message.sender, message.to} & self.cut:
                continue
            self.lines.append(f"  {message.sender} -> {message.to}  {told(message)}")
            self.rafts[message.to].receive(message, self.now)
            self._drain(message.to)

    def _start(self, node: int) -> None:
        self.starts += 1
        chance = FixedChance(node, self.starts)
        data = self.disks[node].snapshot.data
        self.applied[node] = data.split(b",") if data else []
        self.rafts[node] = Raft(node, self.settings, chance, self.disks[node].contents(), now=self.now)

    def _drain(self, node: int) -> None:
        while output := self.rafts[node].take_output():
            self.mail += output.messages
            self._note(node, output)
            if output.persist is not None:
                if node in self.stalled:
                    self.stalled[node].append(output.persist)
                else:
                    self._write(node, output.persist)

    def _write(self, node: int, persist: Persist) -> None:
        self.disks[node].perform(persist)
        self.rafts[node].persisted(persist.number, self.now)

    def _note(self, node: int, output: Output) -> None:
        self.lines += [f"  {node} {noted(fact)}" for fact in output.facts]
        if output.restore is not None:
            self.applied[node] = output.restore.data.split(b",")
            self.lines.append(f"  {node} restores {output.restore.data.decode()} as of {output.restore.index}")
        data = [entry.data for entry in output.committed if entry.kind is EntryKind.DATA]
        if data:
            self.applied[node] += data
            self.lines.append(f"  {node} applies {b' '.join(data).decode()}")

    def _told(self, node: int, answer: object) -> None:
        if isinstance(answer, Refused):
            self.lines.append(f"  {node} refuses: {answer.reason.value}; leader {answer.leader}")
        self.settle()

    def say(self, what: str) -> None:
        self.lines.append(f"> {what}")

    def read(self) -> str:
        lines, self.lines = self.lines, []
        return "\n".join(lines)


def told(message: Message) -> str:
    match message:
        case VoteRequest():
            why = ", the leader asked me to" if message.transfer else ""
            ask = "may I lead" if message.pre else "vote for me in"
            return f"{ask} term {message.term}? my log ends at {message.last_index}/{message.last_term}{why}"
        case VoteAnswer():
            return f"{'yes' if message.granted else 'no'}, term {message.term}{' (pre-vote)' if message.pre else ''}"
        case Append():
            entries = " ".join(shown(entry) for entry in message.entries)
            return f"after {message.prev_index}/{message.prev_term}: {entries or 'nothing'}; commit {message.commit}"
        case AppendAccepted():
            return f"have {message.match}"
        case AppendRejected():
            return f"have no such {message.prev_index}; try {message.hint_index}/{message.hint_term}"
        case Heartbeat():
            return f"round {message.round} of term {message.term}; commit {message.commit}"
        case HeartbeatAnswer():
            return f"heard round {message.round}, term {message.term}"
        case SnapshotChunk():
            return (
                f"snapshot at {message.index}/{message.index_term}, from byte {message.position} "
                f"of {message.bytes_total}: {message.data.decode(errors='replace')}"
            )
        case SnapshotWanted():
            return f"want the snapshot at {message.index} from byte {message.position}"
        case TimeoutNow():
            return f"campaign now, after round {message.round}"


def shown(entry: Entry) -> str:
    match entry.kind:
        case EntryKind.DATA:
            return f"{entry.index}/{entry.term}={entry.data.decode(errors='replace')}"
        case EntryKind.NOOP:
            return f"{entry.index}/{entry.term}=-"
        case EntryKind.MEMBERSHIP:
            return f"{entry.index}/{entry.term}={members_shown(Membership.from_bytes(entry.data))}"


def members_shown(membership: Membership) -> str:
    learners = f"+{','.join(map(str, membership.learners))}" if membership.learners else ""
    return f"{{{','.join(map(str, membership.voters))}{learners}}}"


def noted(fact: Fact) -> str:
    match fact:
        case RoleChanged():
            whom = f" of {fact.leader}" if fact.leader and fact.role.value == "follower" else ""
            return f"is {fact.role.value}{whom} in term {fact.term}"
        case MembershipChanged():
            return f"has members {members_shown(fact.membership)} from {fact.index}"


def golden(actual: str, name: str) -> None:
    """Compares with transcripts/<name>.txt; with REWRITE_TRANSCRIPTS set, writes it anew, to be read in the diff."""
    path = TRANSCRIPTS / f"{name}.txt"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(actual + "\n")
    assert actual + "\n" == path.read_text(), f"{name} went otherwise:\n\n{actual}\n"
