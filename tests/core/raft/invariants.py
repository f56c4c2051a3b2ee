"""What must hold whatever happens, one class each; `seen` is called with a node after each of its inputs."""

from typing import TYPE_CHECKING

from millpond.core.raft.durable import Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import Message, VoteAnswer
from millpond.core.raft.output import Output, Role

if TYPE_CHECKING:
    from tests.core.raft.cluster import Cluster, Node


class SingleLeader:
    """One leader a term."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}

    def seen(self, node: "Node") -> None:
        if node.raft.role is Role.LEADER:
            leader = self.leaders.setdefault(node.raft.term, node.node_id)
            assert leader == node.node_id, f"SingleLeader: {leader} and {node.node_id} lead term {node.raft.term}"


class ElectedByMajority:
    """When a leader appears, a majority has its vote on disk; a disk that is in a later term by then counts as well."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def seen(self, node: "Node", cluster: "Cluster") -> None:
        raft = node.raft
        if raft.role is not Role.LEADER or raft.term in self._seen:
            return
        self._seen.add(raft.term)
        voters = {
            each.node_id
            for each in cluster.nodes.values()
            if each.disk.hard_state.term > raft.term or each.disk.hard_state == HardState(raft.term, node.node_id)
        }
        assert raft.membership.is_majority(voters), f"ElectedByMajority: {node.node_id} in {raft.term} by {voters}"


class OneVote:
    """A node votes once a term, also across crashes."""

    def __init__(self) -> None:
        self._votes: dict[tuple[int, int], int] = {}

    def said(self, message: Message) -> None:
        if isinstance(message, VoteAnswer) and message.granted and not message.pre:
            given = self._votes.setdefault((message.sender, message.term), message.to)
            assert given == message.to, f"OneVote: {message.sender} voted for {given} and {message.to}"


class LogMatching:
    """An index and a term name one entry, with one entry before it."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[int | None, Entry]] = {}

    def persisting(self, node: "Node", entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            prev_term = node.raft.log.term_at(entry.index - 1)
            known = self._entries.setdefault((entry.index, entry.term), (prev_term, entry))
            assert known == (prev_term, entry), f"LogMatching: {known} and {(prev_term, entry)}"

    def restored(self, node: "Node") -> None:
        """The entries that stayed after a snapshot follow it."""
        log = node.raft.log
        term = log.term_at(log.base_index + 1)
        if term is not None and (known := self._entries.get((log.base_index + 1, term))):
            assert known[0] == log.term_at(log.base_index), f"LogMatching: after the snapshot at {log.base_index}"


class CommittedForEver:
    """State machine safety, leader completeness, and a commit index that never goes back.

    What is committed once is the same on every node, in every later leader's log, and on a majority's disks. A leader
    commits with an entry of its own term.
    """

    def __init__(self) -> None:
        self.terms: dict[int, int] = {0: 0}
        self.newest = 0
        self._led: set[tuple[int, int]] = set()

    def seen(self, node: "Node", cluster: "Cluster") -> None:
        raft = node.raft
        assert raft.commit >= node.commit_seen, "MonotonicCommit"
        if raft.role is Role.LEADER and (node.node_id, raft.term) not in self._led:
            self._led.add((node.node_id, raft.term))
            self._check_complete(node)
        newest = self.newest
        for index in range(max(node.commit_seen, raft.log.base_index) + 1, raft.commit + 1):
            term = raft.log.term_at(index)
            assert term is not None
            self.newest = max(index, self.newest)
            known = self.terms.setdefault(index, term)
            assert known == term, f"StateMachineSafety: {index} is of term {known} and {term}"
        if raft.role is Role.LEADER and raft.commit > node.commit_seen:
            assert raft.log.term_at(raft.commit) == raft.term, "OwnTerm: an older entry is committed by counting"
        if self.newest > newest:
            self._check_kept(node, cluster)
        node.commit_seen = raft.commit

    def _check_complete(self, node: "Node") -> None:
        log = node.raft.log
        assert log.last_index >= self.newest, f"LeaderCompleteness: {node.node_id} lacks {self.newest}"
        for index in range(log.base_index + 1, self.newest + 1):
            assert log.term_at(index) == self.terms[index], f"LeaderCompleteness: {node.node_id} at {index}"

    def _check_kept(self, node: "Node", cluster: "Cluster") -> None:
        commit = node.raft.commit
        term = node.raft.log.term_at(commit)
        assert term is not None
        keepers = {each.node_id for each in cluster.nodes.values() if each.disk.holds(commit, term)}
        assert node.raft.membership.is_majority(keepers), f"Durable: {commit} is only on {keepers}"


class SameState:
    """Every node that has applied an index has applied the same before it."""

    def __init__(self) -> None:
        self._states: dict[int, int] = {0: 0}

    def applied(self, index: int, state: int) -> None:
        known = self._states.setdefault(index, state)
        assert known == state, f"StateMachineSafety: two states at {index}"

    def restored(self, snapshot: Snapshot, state: int) -> None:
        assert self._states[snapshot.index] == state, f"StateMachineSafety: the snapshot at {snapshot.index}"


class LeaseExclusivity:
    """While a node believes in its lease, nobody leads a later term, and nobody else believes so."""

    def seen(self, cluster: "Cluster") -> None:
        leaders = [node for node in cluster.nodes.values() if node.alive and node.raft.role is Role.LEADER]
        if len(leaders) < 2:
            return
        for node in leaders:
            now = node.clock(cluster.now)
            until = node.raft.lease_until(now)
            if until is not None and now < until:
                newer = [each.node_id for each in leaders if each.raft.term > node.raft.term]
                assert not newer, f"LeaseExclusivity: {node.node_id} trusts its lease, {newer} lead"


class LinearizableReads:
    """A read answers with everything that anybody had committed when it was asked."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self.answered = 0

    def asked(self, token: int, committed: int) -> None:
        self._asked[token] = committed

    def seen(self, output: Output) -> None:
        for read in output.reads:
            self.answered += 1
            committed = self._asked.pop(read.token)
            assert read.index >= committed, f"LinearizableReads: {read.index} misses {committed}"


class OneChangeAtATime:
    """Memberships that follow each other in a log differ by one voter, and a leader has one uncommitted, at most."""

    def persisting(self, node: "Node", entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP and entry.index - 1 >= node.raft.log.base_index:
                if node.raft.role is Role.LEADER:
                    assert node.raft.log.membership_at(entry.index - 1) == node.raft.log.membership_at(
                        max(min(node.raft.commit, entry.index - 1), node.raft.log.base_index)
                    ), "OneChangeAtATime: the one before is not committed"
                before = set(node.raft.log.membership_at(entry.index - 1).voters)
                after = set(Membership.from_bytes(entry.data).voters)
                assert len(before ^ after) <= 1 or entry.index == 1, f"OneChangeAtATime: {before} and {after}"
