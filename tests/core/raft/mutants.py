"""Bugs planted on purpose, one at a time, so that the seeded cluster proves that it would see them.

Each leaves out or twists a single step, of the kind that works on every day without a crash or a late message.
"""

import math
from collections.abc import Callable

import pytest

from millpond.core.raft.durability import Durability
from millpond.core.raft.durable import Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.leading import Leadership
from millpond.core.raft.log import RaftLog
from millpond.core.raft.membership import Change, Membership
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    TimeoutNow,
    VoteAnswer,
)
from millpond.core.raft.output import ReadReady, Role
from millpond.core.raft.raft import Raft
from millpond.core.raft.settings import RaftSettings

MEMBERSHIP = EntryKind.MEMBERSHIP
Mutant = Callable[[pytest.MonkeyPatch], None]


def forget_the_vote(patch: pytest.MonkeyPatch) -> None:
    """The term is written, who was voted for is not."""
    original = Durability.keep_hard_state
    patch.setattr(Durability, "keep_hard_state", lambda self, state: original(self, HardState(state.term, None)))


def vote_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    _never_hold(patch, VoteAnswer)


def acknowledge_entries_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    _never_hold(patch, AppendAccepted)


def _never_hold(patch: pytest.MonkeyPatch, kind: type[Message]) -> None:
    def hold(self: Durability, message: Message, *, for_log: bool) -> None:
        if isinstance(message, kind) and message.to != message.sender:
            self._held.append((0, message))
        else:
            original(self, message, for_log=for_log)

    original = Durability.hold
    patch.setattr(Durability, "hold", hold)


def acknowledge_entries_when_the_term_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = Durability.hold
    patch.setattr(Durability, "hold", lambda self, message, *, for_log: original(self, message, for_log=False))


def believe_a_persist_that_was_overtaken_by_a_truncation(patch: pytest.MonkeyPatch) -> None:
    def keep_truncation(self: Durability, index: int) -> None:
        ends = [each.last_index for each in self._outstanding]
        original(self, index)
        for each, end in zip(self._outstanding, ends, strict=True):
            each.last_index = end

    original = Durability.keep_truncation
    patch.setattr(Durability, "keep_truncation", keep_truncation)


def count_the_leader_before_its_disk(patch: pytest.MonkeyPatch) -> None:
    original = Leadership.index_agreed
    patch.setattr(Leadership, "index_agreed", lambda self, own_stable: original(self, self._log.last_index))


def commit_older_terms_by_counting(patch: pytest.MonkeyPatch) -> None:
    def index_agreed(self: Leadership, own_stable: int) -> int:
        return self._log.membership.agreed(lambda node: own_stable if node == self._node_id else self.peers[node].match)

    patch.setattr(Leadership, "index_agreed", index_agreed)


def count_answers_of_older_terms(patch: pytest.MonkeyPatch) -> None:
    def receive(self: Raft, message: Message, now: float) -> None:
        if isinstance(message, AppendAccepted) and self._leading is not None and message.term < self.term:
            self._on_answer(message, self._leading, now)
        else:
            original(self, message, now)

    original = Raft.receive
    patch.setattr(Raft, "receive", receive)


def count_votes_of_older_terms(patch: pytest.MonkeyPatch) -> None:
    def on_vote_answer(self: Raft, answer: VoteAnswer, now: float) -> None:
        if answer.granted and self.role is (Role.PRE_CANDIDATE if answer.pre else Role.CANDIDATE):
            self._count_vote(answer.sender, now)

    patch.setattr(Raft, "_on_vote_answer", on_vote_answer)


def vote_for_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "is_as_good", lambda self, *, last_index, last_term: True)


def vote_for_the_longer_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "is_as_good", lambda self, *, last_index, last_term: last_index >= self.last_index)


def cut_the_log_after_every_append(patch: pytest.MonkeyPatch) -> None:
    """Whatever follows a message's last entry goes, even where nothing contradicts."""

    def take_over(self: Raft, entries: tuple[Entry, ...]) -> None:
        original(self, entries)
        if entries and self.log.commit <= entries[-1].index < self.log.last_index:
            self.log.truncate_from(entries[-1].index + 1)
            self._durability.keep_truncation(entries[-1].index + 1)

    original = Raft._take_over
    patch.setattr(Raft, "_take_over", take_over)


def commit_beyond_what_matches(patch: pytest.MonkeyPatch) -> None:
    """A follower takes the leader's commit index for entries the leader has not compared yet."""

    def on_append(self: Raft, message: Append, now: float) -> None:
        original(self, message, now)
        self._follow_commit(min(message.commit, self.log.last_index))

    original = Raft._on_append
    patch.setattr(Raft, "_on_append", on_append)


def tell_the_commit_index_to_all(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat names the leader's commit index also to those who may not have that entry."""

    def begin_round(self: Leadership, now: float) -> None:
        send = self._send
        told = self._log.commit

        def send_with_commit(message: Message) -> None:
            if isinstance(message, Heartbeat):
                message = Heartbeat(
                    sender=message.sender, to=message.to, term=message.term, round=message.round, commit=told
                )
            send(message)

        self._send = send_with_commit
        original(self, now)
        self._send = send

    original = Leadership.begin_round
    patch.setattr(Leadership, "begin_round", begin_round)


def keep_entries_that_contradict_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    def install(self: RaftLog, snapshot: Snapshot) -> bool:
        if self._base_index < snapshot.index <= self.last_index:
            self.commit = snapshot.index
            self.compact(snapshot.index, snapshot)
            return True
        return original(self, snapshot)

    original = RaftLog.install
    patch.setattr(RaftLog, "install", install)


def count_the_lease_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    def heartbeat_answered(self: Leadership, answer: HeartbeatAnswer, now: float) -> None:
        if answer.round in self._round_sent_at:
            self._round_sent_at[answer.round] = now
        original(self, answer, now)

    original = Leadership.heartbeat_answered
    patch.setattr(Leadership, "heartbeat_answered", heartbeat_answered)


def trust_all_clocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftSettings, "lease_s", property(lambda self: self.election_timeout_s_min))


def vote_while_a_leader_is_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_hears_leader", lambda self, now: self.role is Role.LEADER)


def take_silence_for_an_end(patch: pytest.MonkeyPatch) -> None:
    """A leader that was not heard for two heartbeats is taken for one whose process is gone."""

    def silent_at(self: Raft) -> float:
        return self._heard_at + 2 * self.settings.heartbeat_s

    def deadline_of(self: Raft) -> float | None:
        deadline = deadline_(self)
        waits = self.role is Role.FOLLOWER and self.leader is not None and deadline is not None
        return min(deadline, silent_at(self)) if waits and deadline is not None else deadline

    def tick(self: Raft, now: float) -> None:
        if self.role is Role.FOLLOWER and self.leader is not None and now >= silent_at(self):
            self.leader_gone(self.leader, self.term, now)
        tick_(self, now)

    deadline_, tick_ = Raft.deadline, Raft.tick
    patch.setattr(Raft, "deadline", deadline_of)
    patch.setattr(Raft, "tick", tick)


def take_any_word_of_an_end_for_the_leaders(patch: pytest.MonkeyPatch) -> None:
    """Also one of an earlier process of the node that leads."""
    original = Raft.leader_gone
    patch.setattr(Raft, "leader_gone", lambda self, leader, term, now: original(self, leader, self.term, now))


def forget_at_a_restart_that_a_leader_was_heard(patch: pytest.MonkeyPatch) -> None:
    def postpone_election(self: Raft, now: float) -> None:
        if self._election_at == now and not self._facts:
            self._heard_at = -math.inf
        original(self, now)

    original = Raft._postpone_election
    patch.setattr(Raft, "_postpone_election", postpone_election)


def forget_in_a_new_term_that_a_leader_was_heard(patch: pytest.MonkeyPatch) -> None:
    def become_follower(self: Raft, term: int, leader: int | None, now: float) -> None:
        if term > self.term:
            self._heard_at = -math.inf
        original(self, term, leader, now)

    original = Raft._become_follower
    patch.setattr(Raft, "_become_follower", become_follower)


def keep_the_lease_while_handing_over(patch: pytest.MonkeyPatch) -> None:
    def lease_until(self: Leadership, now: float) -> float | None:
        self._timeout_now_round.clear()
        return original(self, now)

    original = Leadership.lease_until
    patch.setattr(Leadership, "lease_until", lease_until)


def obey_a_late_word_to_campaign(patch: pytest.MonkeyPatch) -> None:
    def on_timeout_now(self: Raft, message: TimeoutNow, now: float) -> None:
        if self._is_voter() and self.role is Role.FOLLOWER:
            self._begin_campaign(now, transferred=True)

    patch.setattr(Raft, "_on_timeout_now", on_timeout_now)


def elect_oneself_when_the_newest_membership_is_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_was_always_alone", lambda self: self.membership.voters == (self.node_id,))


def read_without_asking(patch: pytest.MonkeyPatch) -> None:
    def start_reads(self: Leadership, now: float) -> None:
        if self.is_settled():
            self.reads_ready += [ReadReady(token, self._log.commit) for token in self._reads_waiting]
            self._reads_waiting = []

    patch.setattr(Leadership, "start_reads", start_reads)


def read_before_the_first_own_entry_is_committed(patch: pytest.MonkeyPatch) -> None:
    def start_reads(self: Leadership, now: float) -> None:
        with pytest.MonkeyPatch.context() as for_this_call:
            for_this_call.setattr(Leadership, "is_settled", lambda self: True)
            original(self, now)

    original = Leadership.start_reads
    patch.setattr(Leadership, "start_reads", start_reads)


def share_a_round_that_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """A read counts a round that was sent before it was asked for."""

    def begin_round(self: Leadership, now: float) -> None:
        if not self._reads_waiting and self._round_sent_at and now < self.heartbeat_at:
            return
        original(self, now)

    original = Leadership.begin_round
    patch.setattr(Leadership, "begin_round", begin_round)


def follow_a_membership_only_when_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def membership(self: RaftLog) -> Membership:
        return self.membership_at(max(self.commit, self._base_index, 1 if self.last_index else 0))

    patch.setattr(RaftLog, "membership", property(membership))


def change_the_membership_twice_at_once(patch: pytest.MonkeyPatch) -> None:
    def changed(self: Raft, change: Change, now: float) -> object:
        leading = self._leading
        if leading is None or not leading.is_settled():
            return None
        made = leading.changed(change)
        return self._append_as_leader(MEMBERSHIP, [made.to_bytes()], now) if isinstance(made, Membership) else None

    patch.setattr(Raft, "change_membership", changed)


def change_the_membership_before_anything_is_committed(patch: pytest.MonkeyPatch) -> None:
    def change_membership(self: Raft, change: Change, now: float) -> object:
        with pytest.MonkeyPatch.context() as for_this_call:
            for_this_call.setattr(Leadership, "is_settled", lambda self: True)
            return original(self, change, now)

    original = Raft.change_membership
    patch.setattr(Raft, "change_membership", change_membership)


def keep_the_membership_of_truncated_entries(patch: pytest.MonkeyPatch) -> None:
    def truncate_from(self: RaftLog, index: int) -> None:
        del self._entries[index - self._base_index - 1 :]

    patch.setattr(RaftLog, "truncate_from", truncate_from)


MUTANTS: tuple[Mutant, ...] = (
    forget_the_vote,
    vote_before_it_is_durable,
    acknowledge_entries_before_they_are_durable,
    acknowledge_entries_when_the_term_is_durable,
    believe_a_persist_that_was_overtaken_by_a_truncation,
    count_the_leader_before_its_disk,
    commit_older_terms_by_counting,
    count_votes_of_older_terms,
    vote_for_anybody,
    vote_for_the_longer_log,
    cut_the_log_after_every_append,
    commit_beyond_what_matches,
    tell_the_commit_index_to_all,
    keep_entries_that_contradict_a_snapshot,
    count_the_lease_from_the_answer,
    trust_all_clocks,
    vote_while_a_leader_is_heard,
    take_silence_for_an_end,
    keep_the_lease_while_handing_over,
    read_without_asking,
    read_before_the_first_own_entry_is_committed,
    follow_a_membership_only_when_it_is_committed,
    change_the_membership_twice_at_once,
    keep_the_membership_of_truncated_entries,
)
"""Found by the seeded cluster."""

SUBTLE: dict[Mutant, str] = {
    count_answers_of_older_terms: "test_an_answer_to_an_earlier_term_says_nothing",
    forget_at_a_restart_that_a_leader_was_heard: "test_a_restarted_node_keeps_the_promise_it_cannot_remember",
    forget_in_a_new_term_that_a_leader_was_heard: "test_a_promise_outlives_the_term_it_was_given_in",
    take_any_word_of_an_end_for_the_leaders: "test_only_who_leads_the_present_term_can_be_gone",
    obey_a_late_word_to_campaign: "test_a_late_word_to_campaign_is_not_obeyed",
    elect_oneself_when_the_newest_membership_is_alone: "test_being_alone_in_the_newest_membership_is_not_enough",
    share_a_round_that_is_under_way: "test_a_read_waits_for_a_round_that_was_sent_after_it_was_asked",
    change_the_membership_before_anything_is_committed: "test_a_new_leader_commits_first",
}
"""Would need so much bad luck that a test sets each of these up: the name of that test in `test_traps.py`."""
