"""One node of a Raft cluster: messages, time and proposals in, one `Output` after each.

    FOLLOWER ──> PRE_CANDIDATE ──> CANDIDATE ──> LEADER      any of them ──> FOLLOWER
    a learner is a follower that is no voter: it never campaigns

Invariants, over all nodes: one leader a term; two logs with the same term at an index are the same up to there; what
is committed is in every later leader's log; a node never takes back a vote or an acknowledgement, whenever it crashes.
Pure: `now` is a monotonic clock in seconds, read when the input is handed over, never before it arrived.
"""

import math
from collections.abc import Mapping
from typing import assert_never

from millpond.core.raft.durability import Durability
from millpond.core.raft.durable import DurableState, Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.incoming import IncomingSnapshot
from millpond.core.raft.leading import Leadership
from millpond.core.raft.log import RaftLog
from millpond.core.raft.membership import Change, Membership
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    FromLeader,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    SnapshotChunk,
    SnapshotWanted,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from millpond.core.raft.output import (
    Fact,
    MembershipChanged,
    Output,
    Proposed,
    ReadReady,
    Reason,
    Refused,
    Role,
    RoleChanged,
)
from millpond.core.raft.peer import Peer
from millpond.core.raft.settings import RaftSettings
from millpond.model.ports import Rng

LEGAL = {
    Role.FOLLOWER: {Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE},
    Role.PRE_CANDIDATE: {Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE},
    Role.CANDIDATE: {Role.FOLLOWER, Role.PRE_CANDIDATE, Role.LEADER},
    Role.LEADER: {Role.FOLLOWER},
}

HASTY_TRIES_MAX = 16
"""Each delay is twice as long as the one before; after so many, as long as any."""


class Raft:
    def __init__(self, node_id: int, settings: RaftSettings, rng: Rng, durable: DurableState, *, now: float) -> None:
        self.node_id = node_id
        self.settings = settings
        self._rng = rng
        self.log = RaftLog(durable.snapshot, durable.entries)
        self._durability = Durability(self.log)
        self.term = durable.hard_state.term
        self.voted_for = durable.hard_state.voted_for
        self.role = Role.FOLLOWER
        self.leader: int | None = None
        self._leading: Leadership | None = None
        self._votes: set[int] = set()
        self._transferred = False
        """Whether this campaign was asked for by the leader."""
        # A new process cannot know what the one before promised a leader, so it counts as having heard one just now.
        self._heard_at = now
        self._round_heard = 0
        self._session = rng.getrandbits(63)
        self._election_at = now
        self._hasty_tries: int | None = None
        """How often this node has set itself a short delay since its leader's process ended; None while none has."""
        self._incoming: IncomingSnapshot | None = None
        self._emitted = durable.snapshot.index
        self._sendable: list[Message] = []
        self._facts: list[Fact] = []
        self._restore: Snapshot | None = None
        self._reads_ready: list[ReadReady] = []
        self._reads_refused: list[int] = []
        self._postpone_election(now)
        if self._was_always_alone():
            self._begin_pre_vote(now)

    # Time

    def deadline(self) -> float | None:
        """When to tick; None where nothing is waited for."""
        if self._leading is not None:
            return self._leading.deadline()
        return self._election_at if self._may_campaign() else None

    def tick(self, now: float) -> None:
        if self._leading is not None:
            if self._leading.hears_majority(now):
                self._leading.tick(now)
            else:
                self._become_follower(self.term, None, now)
        elif now >= self._election_at and self._may_campaign():
            self._begin_pre_vote(now)
        self._collect_reads()

    def leader_gone(self, leader: int, term: int, now: float) -> None:
        """The process that led this term has ended. A promise to a process that is no more binds nobody, so there is
        no need to wait for its end; a campaign goes as any other, and whoever has not learnt of it refuses.

        Only for who knows: silence proves nothing, and a leader that lives may trust its lease. Of the present term
        only, because the same node may lead a later one, as another process.
        """
        if self.role is Role.FOLLOWER and (self.leader, self.term) == (leader, term):
            self._heard_at = -math.inf
            self._hasty_tries = 0
            self._become(Role.FOLLOWER, None)
            self._postpone_election(now)

    # What callers ask for

    @property
    def membership(self) -> Membership:
        """The newest the log knows, committed or not."""
        return self.log.membership

    @property
    def commit(self) -> int:
        return self.log.commit

    @property
    def peers(self) -> Mapping[int, Peer]:
        """What this node knows of each other one, as their leader; empty where it is not."""
        return {} if self._leading is None else self._leading.peers

    def lease_until(self, now: float) -> float | None:
        """By this node's clock, until when no leader of a later term can exist; None where it cannot tell.

        One of an earlier term, whose votes came late, can exist, but it has no lease and commits nothing.

        To be asked anew whenever it matters: handing over, or losing the leadership, takes a lease back.
        """
        return self._leading.lease_until(now) if self._leading is not None else None

    def propose(self, data: bytes, now: float) -> Proposed | Refused:
        return self.propose_batch([data], now)

    def propose_batch(self, batch: list[bytes], now: float) -> Proposed | Refused:
        """All or none; they follow each other in the log, and the index is the last one's."""
        assert batch
        leading = self._leading
        if leading is None:
            return self._refused(Reason.NOT_LEADER)
        if leading.transfer_to is not None:
            return self._refused(Reason.TRANSFERRING)
        if any(len(data) > self.settings.entry_bytes_max for data in batch):
            return self._refused(Reason.TOO_LARGE)
        entries_in_flight = self.log.last_index - self.log.commit + len(batch)
        bytes_in_flight = leading.uncommitted_bytes + sum(map(len, batch))
        if (
            entries_in_flight > self.settings.proposals_in_flight_max
            or bytes_in_flight > self.settings.proposal_bytes_in_flight_max
        ):
            return self._refused(Reason.TOO_MANY_IN_FLIGHT)
        return self._append_as_leader(EntryKind.DATA, batch, now)

    def change_membership(self, change: Change, now: float) -> Proposed | Refused:
        leading = self._leading
        if leading is None:
            return self._refused(Reason.NOT_LEADER)
        if leading.transfer_to is not None:
            return self._refused(Reason.TRANSFERRING)
        # Without an entry of its own term a leader may not know of the change its predecessor committed last.
        if not leading.is_settled():
            return self._refused(Reason.NOT_SETTLED)
        if self.log.membership_index > self.log.commit:
            return self._refused(Reason.CHANGE_UNDER_WAY)
        changed = leading.changed(change)
        if isinstance(changed, Reason):
            return self._refused(changed)
        return self._append_as_leader(EntryKind.MEMBERSHIP, [changed.to_bytes()], now)

    def transfer(self, to: int | None, now: float) -> Refused | None:
        """Hands the leadership to a voter, or to the one that has most; if that fails, this node goes on leading."""
        if self._leading is None:
            return self._refused(Reason.NOT_LEADER)
        target = self._leading.most_advanced_voter() if to is None else to
        if target not in self._leading.peers or target not in self.membership.voters:
            return self._refused(Reason.NO_SUCH_NODE)
        self._leading.transfer(target, now)
        return None

    def read(self, token: int, now: float) -> Refused | None:
        """`Output.reads` tells, under the token, from which index on a state answers for this moment."""
        if self._leading is None:
            return self._refused(Reason.NOT_LEADER)
        if self._leading.reads_in_flight >= self.settings.reads_in_flight_max:
            return self._refused(Reason.TOO_MANY_IN_FLIGHT)
        self._leading.read(token, now)
        self._collect_reads()
        return None

    def make_snapshot(self, index: int, data: bytes) -> Snapshot:
        """Of the state after applying `index`, for the driver to keep and then to `compact` with."""
        assert len(data) <= self.settings.snapshot_bytes_max, "no other node would take it"
        term = self.log.term_at(index)
        assert term is not None
        assert index <= self._emitted, (index, self._emitted)
        return Snapshot(index, term, self.log.membership_at(index), data)

    def compact(self, snapshot: Snapshot, *, entries_kept: int = 0) -> None:
        """Once the snapshot is durable. Some entries may stay, for nodes that are only a little behind."""
        upto = max(snapshot.index - entries_kept, self.log.base_index)
        if snapshot.index > self.log.snapshot.index:
            self.log.compact(upto, snapshot)

    # The driver's side

    def take_output(self) -> Output:
        persist = self._durability.take()
        said_to_itself = self._release()
        assert not said_to_itself, "the own vote waits for the disk"
        end = min(self.log.commit, self._durability.stable)
        committed: tuple[Entry, ...] = ()
        restore, self._restore = self._restore, None
        if restore is not None:
            self._emitted = max(self._emitted, restore.index)
        if self.log.base_index <= self._emitted < end:
            committed, self._emitted = self.log.slice(self._emitted + 1, end), end
        output = Output(
            messages=tuple(self._sendable),
            persist=persist,
            restore=restore,
            committed=committed,
            reads=tuple(self._reads_ready),
            reads_refused=tuple(self._reads_refused),
            facts=tuple(self._facts),
        )
        self._sendable, self._reads_ready, self._reads_refused, self._facts = [], [], [], []
        return output

    def persisted(self, number: int, now: float) -> None:
        """The persist of this number, and every one before it, is durable."""
        self._restore = self._durability.persisted(number) or self._restore
        if self._leading is not None:
            self._commit_what_is_agreed(now)
        for message in self._release():
            self.receive(message, now)

    def _release(self) -> list[Message]:
        """Lets go of what has waited long enough; returns what this node said to itself."""
        ready = self._durability.releasable()
        self._sendable += [message for message in ready if message.to != self.node_id]
        return [message for message in ready if message.to == self.node_id]

    def _say(self, message: Message, *, for_log: bool = False) -> None:
        self._durability.hold(message, for_log=for_log)

    def _collect_reads(self) -> None:
        if self._leading is not None and self._leading.reads_ready:
            self._reads_ready += self._leading.reads_ready
            self._leading.reads_ready = []

    # Messages

    def receive(self, message: Message, now: float) -> None:
        if message.to != self.node_id:
            return
        if isinstance(message, VoteRequest):
            self._on_vote_request(message, now)
            return
        if message.term > self.term and not (isinstance(message, VoteAnswer) and message.pre and message.granted):
            self._become_follower(message.term, message.sender if isinstance(message, FromLeader) else None, now)
        if isinstance(message, FromLeader):
            self._on_leader(message, now)
        elif isinstance(message, VoteAnswer):
            self._on_vote_answer(message, now)
        elif self._leading is not None and message.term == self.term:
            self._on_answer(message, self._leading, now)

    def _on_answer(
        self,
        answer: AppendAccepted | AppendRejected | HeartbeatAnswer | SnapshotWanted,
        leading: Leadership,
        now: float,
    ) -> None:
        match answer:
            case AppendAccepted():
                leading.accepted(answer, now)
                self._commit_what_is_agreed(now)
            case AppendRejected():
                leading.rejected(answer, now)
            case HeartbeatAnswer():
                leading.heartbeat_answered(answer, now)
                leading.start_reads(now)
            case SnapshotWanted():
                leading.snapshot_wanted(answer, now)
            case _:
                assert_never(answer)
        self._collect_reads()

    def _on_leader(self, message: FromLeader, now: float) -> None:
        if message.term < self.term:
            self._answer_heartbeat(message.sender, round_heard=0)
            return
        if isinstance(message, TimeoutNow):
            self._on_timeout_now(message, now)
            return
        assert self.role is not Role.LEADER, f"{message.sender} leads term {self.term} too"
        if self.role is not Role.FOLLOWER or self.leader != message.sender:
            self._become_follower(self.term, message.sender, now)
        self._heard_at = now
        self._hasty_tries = None
        self._postpone_election(now)
        match message:
            case Append():
                self._on_append(message, now)
            case Heartbeat():
                self._round_heard = max(self._round_heard, message.round)
                self._follow_commit(min(message.commit, self.log.last_index))
                self._answer_heartbeat(message.sender, round_heard=message.round)
            case SnapshotChunk():
                self._on_chunk(message)
            case _:
                assert_never(message)

    def _answer_heartbeat(self, to: int, *, round_heard: int) -> None:
        self._say(HeartbeatAnswer(sender=self.node_id, to=to, term=self.term, round=round_heard, session=self._session))

    # Following

    def _on_append(self, message: Append, now: float) -> None:
        if message.prev_index < self.log.commit:
            self._accept(message.sender, self.log.commit)  # an old one; what is committed fits every leader
            return
        if self.log.term_at(message.prev_index) != message.prev_term:
            hint = self.log.last_index_of_term_up_to(message.prev_term, index=message.prev_index)
            self._say(
                AppendRejected(
                    sender=self.node_id,
                    to=message.sender,
                    term=self.term,
                    prev_index=message.prev_index,
                    hint_index=hint,
                    hint_term=self.log.term_at(hint) or 0,
                )
            )
            return
        self._take_over(message.entries)
        match_index = message.prev_index + len(message.entries)
        self._follow_commit(min(message.commit, match_index))
        self._accept(message.sender, match_index)

    def _take_over(self, entries: tuple[Entry, ...]) -> None:
        """Appends what is new. Cuts only where an entry contradicts: the rest may be newer than this message."""
        new = next((place for place, each in enumerate(entries) if self.log.term_at(each.index) != each.term), None)
        if new is None:
            return
        membership_index = self.log.membership_index
        first = entries[new].index
        if first <= self.log.last_index:
            self.log.truncate_from(first)
            self._durability.keep_truncation(first)
        self.log.append(entries[new:])
        self._durability.keep_entries()
        if self.log.membership_index != membership_index or first <= membership_index:
            self._note_membership()

    def _accept(self, leader: int, match_index: int) -> None:
        self._say(AppendAccepted(sender=self.node_id, to=leader, term=self.term, match=match_index), for_log=True)

    def _follow_commit(self, index: int) -> None:
        if index > self.log.commit:
            self.log.commit_to(index)

    def _on_chunk(self, chunk: SnapshotChunk) -> None:
        if chunk.index <= self.log.commit:
            self._incoming = None
            self._accept(chunk.sender, self.log.commit)
            return
        if chunk.bytes_total > self.settings.snapshot_bytes_max:
            return
        if self._incoming is None or not self._incoming.is_of(chunk):
            self._incoming = IncomingSnapshot(chunk)
        self._incoming.add(chunk)
        snapshot = self._incoming.whole()
        if snapshot is None:
            self._say(
                SnapshotWanted(
                    sender=self.node_id,
                    to=chunk.sender,
                    term=self.term,
                    index=chunk.index,
                    position=self._incoming.position,
                )
            )
            return
        self._incoming = None
        entries_stay = self.log.install(snapshot)
        self._durability.keep_snapshot(snapshot, entries_stay=entries_stay)
        self._note_membership()
        self._accept(chunk.sender, snapshot.index)

    # Elections

    def _is_voter(self) -> bool:
        return self.node_id in self.membership.voters

    def _may_campaign(self) -> bool:
        """Also a node whose removal is in its log, but not known to be committed: others may need its entries."""
        before = self.log.membership_index - 1
        return self._is_voter() or (
            before >= max(self.log.commit, self.log.base_index)
            and self.node_id in self.log.membership_at(before).voters
        )

    def _was_always_alone(self) -> bool:
        """Whether the disk knows of no other voter, so that there is nobody to wait for.

        That the newest membership has no other is not enough: it may not be committed, and another node lead.
        """
        others = {voter for membership in self.log.memberships for voter in membership.voters} - {self.node_id}
        return self._is_voter() and not others

    def _hears_leader(self, now: float) -> bool:
        """While this is so, a leader may count on this node not to help another one."""
        return self.role is Role.LEADER or now - self._heard_at < self.settings.election_timeout_s_min

    def _postpone_election(self, now: float) -> None:
        settings = self.settings
        s_min, s_max = settings.election_timeout_s_min, settings.election_timeout_s_max
        if self._hasty_tries is not None:
            longer = 2**self._hasty_tries
            s_min, s_max = (
                min(s_min, settings.gone_delay_s_min * longer),
                min(s_max, settings.gone_delay_s_max * longer),
            )
            self._hasty_tries = min(self._hasty_tries + 1, HASTY_TRIES_MAX)
        self._election_at = now + self._rng.uniform(s_min, s_max)

    def _on_vote_request(self, request: VoteRequest, now: float) -> None:
        if self._hears_leader(now) and not request.transfer and request.term >= self.term:
            return  # not even its term is taken over: a node that was cut off must not disturb
        if request.term > self.term and not request.pre:
            self._become_follower(request.term, None, now)
        if request.pre:
            is_free = request.term > self.term
        else:
            is_free = request.term == self.term and self.voted_for in (None, request.sender)
        granted = is_free and self.log.is_as_good(last_index=request.last_index, last_term=request.last_term)
        if granted and not request.pre:
            if self.voted_for is None:
                self._keep_hard_state(self.term, request.sender)
            self._hasty_tries = None  # somebody campaigns already: it is left the time to win
            self._postpone_election(now)
        if granted and request.pre and self._gives_way_to(request.sender):
            self._become_follower(self.term, None, now)
        term = request.term if request.pre and granted else self.term
        self._say(VoteAnswer(sender=self.node_id, to=request.sender, term=term, granted=granted, pre=request.pre))

    def _gives_way_to(self, sender: int) -> bool:
        """Those who learn that a leader is gone learn it at the same moment: of two that ask, one goes on."""
        return self.role is Role.PRE_CANDIDATE and self._hasty_tries is not None and sender < self.node_id

    def _on_timeout_now(self, message: TimeoutNow, now: float) -> None:
        is_fresh = message.round == self._round_heard and message.session == self._session
        if self.leader == message.sender and is_fresh and self._may_campaign():
            self._begin_campaign(now, transferred=True)

    def _begin_pre_vote(self, now: float) -> None:
        self._become(Role.PRE_CANDIDATE, None)
        self._postpone_election(now)
        self._transferred = False
        self._ask_for_votes(self.term + 1, pre=True)
        self._count_vote(self.node_id, now)

    def _begin_campaign(self, now: float, *, transferred: bool = False) -> None:
        self._keep_hard_state(self.term + 1, self.node_id)
        self._become(Role.CANDIDATE, None)
        self._postpone_election(now)
        self._transferred = transferred
        self._ask_for_votes(self.term, pre=False)
        # The own vote counts when it is durable, like anybody's.
        self._say(VoteAnswer(sender=self.node_id, to=self.node_id, term=self.term, granted=True))

    def _ask_for_votes(self, term: int, *, pre: bool) -> None:
        self._votes = set()
        for voter in self.membership.voters:
            if voter != self.node_id:
                self._say(
                    VoteRequest(
                        sender=self.node_id,
                        to=voter,
                        term=term,
                        last_index=self.log.last_index,
                        last_term=self.log.last_term,
                        pre=pre,
                        transfer=self._transferred,
                    )
                )

    def _on_vote_answer(self, answer: VoteAnswer, now: float) -> None:
        asked_for = (Role.PRE_CANDIDATE, self.term + 1) if answer.pre else (Role.CANDIDATE, self.term)
        if answer.granted and (self.role, answer.term) == asked_for:
            self._count_vote(answer.sender, now)

    def _count_vote(self, voter: int, now: float) -> None:
        self._votes.add(voter)
        if self.membership.is_majority(self._votes):
            if self.role is Role.PRE_CANDIDATE:
                self._begin_campaign(now)
            else:
                self._become_leader(now)

    # Roles

    def _become(self, role: Role, leader: int | None) -> None:
        assert role in LEGAL[self.role], (self.role, role)
        if self._leading is not None:
            self._reads_refused += self._leading.abandoned_reads()
            self._leading = None
        self.role, self.leader = role, leader
        self._facts.append(RoleChanged(role, self.term, leader))

    def _become_follower(self, term: int, leader: int | None, now: float) -> None:
        if term > self.term:
            self._keep_hard_state(term, None)
        self._incoming = None
        self._become(Role.FOLLOWER, leader)
        self._postpone_election(now)

    def _become_leader(self, now: float) -> None:
        self._become(Role.LEADER, self.node_id)
        self._leading = Leadership(self.node_id, self.term, self.log, self.settings, send=self._send_at_once, now=now)
        self._append_as_leader(EntryKind.NOOP, [b""], now)
        self._leading.begin_round(now)

    def _send_at_once(self, message: Message) -> None:
        self._sendable.append(message)

    def _keep_hard_state(self, term: int, voted_for: int | None) -> None:
        assert term >= self.term, (term, self.term)
        if term > self.term:
            self._round_heard = 0
        self.term, self.voted_for = term, voted_for
        self._durability.keep_hard_state(HardState(term, voted_for))

    # Leading

    def _append_as_leader(self, kind: EntryKind, batch: list[bytes], now: float) -> Proposed:
        leading = self._leading
        assert leading is not None
        first = self.log.last_index + 1
        self.log.append([Entry(first + place, self.term, kind, data) for place, data in enumerate(batch)])
        self._durability.keep_entries()
        leading.uncommitted_bytes += sum(map(len, batch))
        if kind is EntryKind.MEMBERSHIP:
            self._note_membership()
            leading.follow_membership(now)
        leading.replicate_to_all()
        self._commit_what_is_agreed(now)  # a node that leaves may be the one that was waited for
        return Proposed(self.log.last_index, self.term)

    def _commit_what_is_agreed(self, now: float) -> None:
        leading = self._leading
        assert leading is not None
        agreed = leading.index_agreed(self._durability.stable)
        if agreed <= self.log.commit:
            return
        leading.uncommitted_bytes -= sum(len(entry.data) for entry in self.log.slice(self.log.commit + 1, agreed))
        self.log.commit_to(agreed)
        leading.replicate_to_all()
        if not self._is_voter() and self.log.membership_index <= agreed:
            self._leave(leading, now)
        else:
            leading.start_reads(now)
            self._collect_reads()

    def _leave(self, leading: Leadership, now: float) -> None:
        """This node's own removal is committed: it asks the best of the others to take over, and is done."""
        successor = leading.most_advanced_voter()
        assert successor is not None
        leading.transfer(successor, now)
        self._become_follower(self.term, None, now)

    def _note_membership(self) -> None:
        self._facts.append(MembershipChanged(self.membership, self.log.membership_index))

    def _refused(self, reason: Reason) -> Refused:
        return Refused(reason, self.leader)
