"""What only a leader has: its peers, rounds of heartbeats, the lease, reads, and handing over.

**Lease.** A follower that hears a heartbeat neither votes nor campaigns for `election_timeout_s_min` of its clock. So
once a majority has answered a round, no other leader can be elected until that time has passed since the round was
*sent*, by the leader's own clock, less what clocks may drift apart. A `TimeoutNow` asks a node not to wait, so it takes
the lease back until that node has answered a later round: it will not act on the old word any more then.

**Reads.** A round sent after a read was asked for, and answered by a majority, shows that nobody else led before it
was sent; so nothing beyond this leader's commit index was committed then.

All messages from here may leave before the leader's own disk has the entries: the leader counts itself only up to
what is durable. Pure. Made by raft.py when an election is won, dropped when the term or the leadership ends.
"""

from collections.abc import Callable
from typing import assert_never

from millpond.core.raft.log import RaftLog
from millpond.core.raft.membership import MEMBERS_MAX, AddLearner, Change, Membership, PromoteLearner, RemoveNode
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
)
from millpond.core.raft.output import ReadReady, Reason
from millpond.core.raft.peer import Peer, Sending
from millpond.core.raft.settings import RaftSettings
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class _Asked:
    """Reads that wait for one round."""

    round: int
    index: int
    tokens: tuple[int, ...]


class Leadership:
    def __init__(
        self, node_id: int, term: int, log: RaftLog, settings: RaftSettings, send: Callable[[Message], None], now: float
    ) -> None:
        self._node_id = node_id
        self._term = term
        self._log = log
        self._settings = settings
        self._send = send
        self.peers: dict[int, Peer] = {}
        self.heartbeat_at = now
        self.uncommitted_bytes = sum(len(entry.data) for entry in log.slice(log.commit + 1, log.last_index))
        self._round = 0
        self._round_sent_at: dict[int, float] = {}
        """Of every round that could still become the newest one a majority has answered."""
        self._reads_waiting: list[int] = []
        self._reads_asked: _Asked | None = None
        self.reads_ready: list[ReadReady] = []
        self.transfer_to: int | None = None
        self.transfer_until = now
        self._timeout_now_round: dict[int, int] = {}
        """The last round in which a node was told to campaign, while it might still do so."""
        self.follow_membership(now)

    # Members

    def follow_membership(self, now: float) -> None:
        """Called whenever the log's membership changed."""
        nodes = set(self._log.membership.nodes) - {self._node_id}
        for gone in self.peers.keys() - nodes:
            del self.peers[gone]
        for new in sorted(nodes - self.peers.keys()):
            self.peers[new] = Peer(next=self._log.last_index + 1, heard_at=now)
        if self.transfer_to not in self.peers:
            self.transfer_to = None

    def changed(self, change: Change) -> Membership | Reason:
        """What the change would make of the newest membership."""
        members = self._log.membership
        match change:
            case AddLearner(node):
                if node in members.nodes:
                    return Reason.ALREADY_A_MEMBER
                return members.with_learner(node) if len(members.nodes) < MEMBERS_MAX else Reason.TOO_MANY_MEMBERS
            case PromoteLearner(node):
                if node not in members.learners:
                    return Reason.NO_SUCH_NODE
                is_near = self._log.commit - self.peers[node].match <= self._settings.learner_entries_behind_max
                return members.with_voter(node) if is_near else Reason.TOO_FAR_BEHIND
            case RemoveNode(node):
                if node not in members.nodes:
                    return Reason.NO_SUCH_NODE
                return members.without(node) if members.voters != (node,) else Reason.LAST_VOTER
            case _:
                assert_never(change)

    def hears_majority(self, now: float) -> bool:
        """Check-quorum: whether a majority said anything within the last election timeout."""
        heard_at = self._log.membership.agreed(lambda node: now if node == self._node_id else self.peers[node].heard_at)
        return now - heard_at <= self._settings.election_timeout_s_min

    # Entries

    def replicate_to_all(self) -> None:
        for node in self.peers:
            self.replicate(node)

    def replicate(self, node: int, *, even_empty: bool = False) -> None:
        peer = self.peers[node]
        while not peer.is_full(self._settings.appends_in_flight_max):
            prev_term = self._log.term_at(peer.next - 1)
            if prev_term is None:
                peer.send_snapshot(self._log.snapshot)
                self._send_chunk(node, peer)
                return
            entries = self._log.slice_by_bytes(peer.next, self._settings.append_bytes_max)
            if not entries and not even_empty and peer.commit_told >= self._log.commit:
                return
            append = Append(
                sender=self._node_id,
                to=node,
                term=self._term,
                prev_index=peer.next - 1,
                prev_term=prev_term,
                commit=self._log.commit,
                entries=entries,
            )
            self._send(append)
            peer.sent(append.prev_index + len(entries), self._log.commit)
            even_empty = False

    def accepted(self, answer: AppendAccepted, now: float) -> None:
        peer = self.peers.get(answer.sender)
        if peer is None or answer.match > self._log.last_index:
            return
        peer.heard_at = now
        peer.accepted(answer.match)
        self.replicate(answer.sender)
        if answer.sender == self.transfer_to:
            self.hand_over_if_ready(now)

    def rejected(self, answer: AppendRejected, now: float) -> None:
        peer = self.peers.get(answer.sender)
        if peer is None:
            return
        peer.heard_at = now
        if peer.is_stale_rejection(answer.prev_index):
            return
        agrees_at = self._log.last_index_of_term_up_to(answer.hint_term, index=answer.hint_index)
        peer.probe_from(min(agrees_at, answer.prev_index - 1) + 1)
        if peer.next > answer.prev_index:
            peer.probe_sent = True  # it lost what it had; asking again at once would never end
        else:
            self.replicate(answer.sender, even_empty=True)

    def index_agreed(self, own_stable: int) -> int:
        """What a majority has on disk. Only entries of this term are committed by counting: an older one that a
        majority has can still be replaced by a leader that never saw it."""
        agreed = self._log.membership.agreed(
            lambda node: own_stable if node == self._node_id else self.peers[node].match
        )
        return agreed if self._log.term_at(agreed) == self._term else self._log.commit

    # Snapshots

    def snapshot_wanted(self, answer: SnapshotWanted, now: float) -> None:
        peer = self.peers.get(answer.sender)
        if peer is None:
            return
        peer.heard_at = now
        if peer.snapshot is None or answer.index != peer.snapshot.index:
            return
        if answer.position == peer.snapshot_position or answer.position > len(peer.snapshot.data):
            return  # said twice: that chunk is on its way
        peer.snapshot_position = answer.position
        self._send_chunk(answer.sender, peer)

    def _send_chunk(self, node: int, peer: Peer) -> None:
        snapshot, start = peer.snapshot, peer.snapshot_position
        assert snapshot is not None
        self._send(
            SnapshotChunk(
                sender=self._node_id,
                to=node,
                term=self._term,
                index=snapshot.index,
                index_term=snapshot.term,
                membership=snapshot.membership,
                bytes_total=len(snapshot.data),
                position=start,
                data=snapshot.data[start : start + self._settings.snapshot_chunk_bytes],
            )
        )

    # Rounds

    def begin_round(self, now: float) -> None:
        self._round += 1
        self._round_sent_at[self._round] = now
        self.heartbeat_at = now + self._settings.heartbeat_s
        for node, peer in self.peers.items():
            self._send(
                Heartbeat(
                    sender=self._node_id,
                    to=node,
                    term=self._term,
                    round=self._round,
                    commit=min(peer.match, self._log.commit),
                )
            )

    def heartbeat_answered(self, answer: HeartbeatAnswer, now: float) -> None:
        peer = self.peers.get(answer.sender)
        if peer is None or answer.round > self._round:
            return
        if peer.session not in (0, answer.session) and answer.sender in self._log.membership.learners:
            # It was started anew, and may have lost its disk: whoever counts for no majority may forget what it said.
            peer = self.peers[answer.sender] = Peer(next=self._log.last_index + 1, heard_at=now)
        peer.heard_at = now
        peer.session = answer.session
        peer.round_answered = max(peer.round_answered, answer.round)
        if self._timeout_now_round.get(answer.sender, answer.round) < answer.round:
            del self._timeout_now_round[answer.sender]
        self._count_rounds()
        if peer.sending is Sending.SNAPSHOT:
            self._send_chunk(answer.sender, peer)  # the last one, or its answer, may be lost
        elif peer.match < self._log.last_index:
            peer.probe_sent = False
            if peer.is_full(self._settings.appends_in_flight_max):
                peer.in_flight.popleft()
            self.replicate(answer.sender, even_empty=True)

    def _round_agreed(self) -> int:
        return self._log.membership.agreed(
            lambda node: self._round if node == self._node_id else self.peers[node].round_answered
        )

    def _count_rounds(self) -> None:
        agreed = self._round_agreed()
        for old in [each for each in self._round_sent_at if each < agreed]:
            del self._round_sent_at[old]
        if self._reads_asked is not None and agreed >= self._reads_asked.round:
            asked, self._reads_asked = self._reads_asked, None
            self.reads_ready += [ReadReady(token, asked.index) for token in asked.tokens]

    # Lease and reads

    def lease_until(self, now: float) -> float | None:
        if self._timeout_now_round:
            return None
        if self._log.membership.voters == (self._node_id,):
            return now + self._settings.lease_s
        sent_at = self._round_sent_at.get(self._round_agreed())
        return None if sent_at is None else sent_at + self._settings.lease_s

    def is_settled(self) -> bool:
        """Whether an entry of this term is committed: only then is the commit index known to be the newest."""
        return self._log.term_at(self._log.commit) == self._term

    @property
    def reads_in_flight(self) -> int:
        return len(self._reads_waiting) + (len(self._reads_asked.tokens) if self._reads_asked else 0)

    def read(self, token: int, now: float) -> None:
        self._reads_waiting.append(token)
        self.start_reads(now)

    def start_reads(self, now: float) -> None:
        """Asks in one round for all that wait; those who come while it is under way share the next one."""
        if not self._reads_waiting or self._reads_asked is not None or not self.is_settled():
            return
        tokens, self._reads_waiting = tuple(self._reads_waiting), []
        lease = self.lease_until(now)
        if self._log.membership.voters == (self._node_id,) or (self._settings.lease_reads and lease and now < lease):
            self.reads_ready += [ReadReady(token, self._log.commit) for token in tokens]
            return
        self.begin_round(now)
        self._reads_asked = _Asked(self._round, self._log.commit, tokens)

    def abandoned_reads(self) -> tuple[int, ...]:
        return (*(self._reads_asked.tokens if self._reads_asked else ()), *self._reads_waiting)

    # Handing over

    def most_advanced_voter(self) -> int | None:
        voters = [node for node in self._log.membership.voters if node in self.peers]
        return max(voters, key=lambda node: (self.peers[node].match, self.peers[node].heard_at), default=None)

    def transfer(self, to: int, now: float) -> None:
        self.transfer_to = to
        self.transfer_until = now + self._settings.election_timeout_s_max
        self.hand_over_if_ready(now)

    def hand_over_if_ready(self, now: float) -> None:
        """The round goes out just before, so that the word and the round it names arrive together."""
        assert self.transfer_to is not None
        peer = self.peers[self.transfer_to]
        if peer.match == self._log.last_index:
            self.begin_round(now)
            self._timeout_now_round[self.transfer_to] = self._round
            self._send(
                TimeoutNow(
                    sender=self._node_id,
                    to=self.transfer_to,
                    term=self._term,
                    round=self._round,
                    session=peer.session,
                )
            )

    def tick(self, now: float) -> None:
        if self.transfer_to is not None and now >= self.transfer_until:
            self.transfer_to = None
        if now >= self.heartbeat_at:
            if self.transfer_to is not None and self.peers[self.transfer_to].match == self._log.last_index:
                self.hand_over_if_ready(now)
            else:
                self.begin_round(now)
            self._count_rounds()
        self.start_reads(now)

    def deadline(self) -> float | None:
        """When to tick; None where there is nobody to talk to."""
        return self.heartbeat_at if self.peers else None
