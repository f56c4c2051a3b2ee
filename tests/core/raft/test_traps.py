"""Mistakes that Raft implementations are known for, one test each: one machine, and a test that plays the others."""

from dataclasses import replace

import pytest

from millpond.core.raft.membership import AddLearner, Membership, PromoteLearner, RemoveNode
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    Heartbeat,
    HeartbeatAnswer,
    SnapshotChunk,
    SnapshotWanted,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from millpond.core.raft.output import Proposed, ReadReady, Reason, Refused, Role
from tests.core.raft.lone import SETTINGS, Lone, append, asks, entry, heartbeat, members

LONG_S = SETTINGS.election_timeout_s_max


# Votes


def test_a_vote_is_said_only_when_it_is_durable() -> None:
    node = Lone()
    node.now += LONG_S
    node.stalled = True
    assert node.hear(asks(term=2, last=(1, 1))) == []
    node.write()
    assert node.drain() == [VoteAnswer(sender=1, to=3, term=2, granted=True)]
    assert (node.disk.hard_state.term, node.disk.hard_state.voted_for) == (2, 3)


def test_a_vote_survives_a_restart() -> None:
    node = Lone()
    node.now += LONG_S
    node.hear(asks(term=2, last=(1, 1), sender=3))
    node.start()
    node.now += LONG_S
    assert node.hear(asks(term=2, last=(9, 1), sender=2)) == [VoteAnswer(sender=1, to=2, term=2, granted=False)]
    assert node.hear(asks(term=2, last=(1, 1), sender=3)) == [VoteAnswer(sender=1, to=3, term=2, granted=True)]


def test_the_own_vote_counts_only_when_it_is_durable() -> None:
    node = Lone(1)
    node.stalled = True
    node.start()
    assert node.raft.role.name == "CANDIDATE"
    node.write()
    assert node.raft.role.name == "LEADER"


def test_votes_of_an_older_campaign_do_not_count() -> None:
    node = Lone()
    node.tick()
    node.hear(VoteAnswer(sender=2, to=1, term=2, granted=True, pre=True))
    assert node.raft.role is Role.CANDIDATE
    node.tick()
    node.hear(VoteAnswer(sender=2, to=1, term=3, granted=True, pre=True))
    assert (node.raft.role, node.raft.term) == (Role.CANDIDATE, 3)
    node.hear(VoteAnswer(sender=3, to=1, term=2, granted=True))
    assert node.raft.role is Role.CANDIDATE


def test_a_pre_vote_changes_nothing_at_the_receiver() -> None:
    node = Lone()
    node.now += LONG_S
    assert node.hear(asks(term=7, last=(1, 1), pre=True)) == [
        VoteAnswer(sender=1, to=3, term=7, granted=True, pre=True)
    ]
    assert (node.raft.term, node.raft.voted_for, node.raft.role) == (1, None, Role.FOLLOWER)


def test_a_pre_candidate_in_an_old_term_learns_the_new_one_and_comes_back() -> None:
    """The one with the only good log may be behind in terms: refused without being told, it would never win."""
    behind = Lone(log=(entry(2, 1),))
    behind.tick()
    assert behind.raft.role is Role.PRE_CANDIDATE
    behind.hear(VoteAnswer(sender=2, to=1, term=5, granted=False, pre=True))
    assert (behind.raft.role, behind.raft.term) == (Role.FOLLOWER, 5)
    asked = [message for message in behind.tick() if isinstance(message, VoteRequest)]
    assert {(message.term, message.pre) for message in asked} == {(6, True)}

    ahead = Lone(term=5)
    ahead.now += LONG_S
    assert ahead.hear(asks(term=2, last=(2, 1), pre=True)) == [
        VoteAnswer(sender=1, to=3, term=5, granted=False, pre=True)
    ]


def test_a_shorter_or_older_log_gets_no_vote() -> None:
    node = Lone(log=(entry(2, 1), entry(3, 2)), term=2)
    node.now += LONG_S
    for last, granted in (((2, 2), False), ((9, 1), False), ((3, 2), True)):
        (answer,) = node.hear(asks(term=3, last=last))
        assert isinstance(answer, VoteAnswer)
        assert answer.granted is granted


# Disturbers, leases


@pytest.mark.parametrize("pre", [True, False])
def test_a_node_that_was_cut_off_does_not_disturb(pre: bool) -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.now += 0.9
    assert node.hear(asks(term=9, last=(99, 8), pre=pre)) == []
    assert (node.raft.term, node.raft.leader) == (1, 2)

    leader = Lone()
    leader.elect()
    assert leader.hear(asks(term=9, last=(99, 8), pre=pre)) == []
    assert leader.raft.role is Role.LEADER


def test_a_stuck_node_of_a_later_term_is_heard_by_the_leader_when_it_answers() -> None:
    """Else it could never come back: it refuses this leader's entries, and nobody asks for its vote."""
    leader = Lone()
    leader.elect()
    leader.hear(HeartbeatAnswer(sender=3, to=1, term=9, round=0, session=1))
    assert (leader.raft.role, leader.raft.term) == (Role.FOLLOWER, 9)

    stuck = Lone(term=9)
    (answer,) = stuck.hear(heartbeat(term=2))
    assert answer == HeartbeatAnswer(sender=1, to=2, term=9, round=0, session=stuck.raft._session)


def test_a_restarted_node_keeps_the_promise_it_cannot_remember() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.start()
    assert node.hear(asks(term=2, last=(1, 1), pre=True)) == []
    node.now += 0.9
    assert node.hear(asks(term=2, last=(1, 1))) == []
    node.now += 0.2
    assert node.hear(asks(term=2, last=(1, 1))) == [VoteAnswer(sender=1, to=3, term=2, granted=True)]


def test_a_promise_outlives_the_term_it_was_given_in() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.hear(VoteAnswer(sender=3, to=1, term=5, granted=False, pre=True))
    assert node.raft.term == 5
    node.now += 0.5
    assert node.hear(asks(term=5, last=(1, 1))) == []
    node.now += 0.6
    assert node.hear(asks(term=5, last=(1, 1))) == [VoteAnswer(sender=1, to=3, term=5, granted=True)]


def test_only_who_leads_the_present_term_can_be_gone() -> None:
    """The node that led term 1 and is gone may lead term 2 in another process, which counts on its lease."""
    node = Lone()
    node.hear(heartbeat(term=1))
    node.hear(heartbeat(term=2))
    node.raft.leader_gone(2, 1, node.now)
    node.raft.leader_gone(3, 2, node.now)
    assert node.raft.leader == 2
    assert node.hear(asks(term=3, last=(1, 1))) == []


def test_the_lease_counts_from_the_round_that_was_answered() -> None:
    node = Lone()
    node.elect()
    elected_at = node.now
    assert node.raft.lease_until(node.now) is None
    node.now += 0.2
    node.hear(node.answered(2, 1))
    assert node.raft.lease_until(node.now) == pytest.approx(elected_at + 0.9)
    node.tick()
    assert node.raft.lease_until(node.now) == pytest.approx(elected_at + 0.9)
    second_round_at = node.now
    node.hear(node.answered(3, 2))
    assert node.raft.lease_until(node.now) == pytest.approx(second_round_at + 0.9)


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    node = Lone(1, 2, 3, 4, 5)
    node.elect(2, 3)
    stops_at = node.now + 3.0
    while node.raft.role is Role.LEADER and node.now < stops_at:
        node.tick()
        if node.raft.role is Role.LEADER:
            node.hear(node.answered(2, node.raft._leading._round))  # type: ignore[union-attr]
    assert node.raft.role is Role.FOLLOWER, "one of four others is not enough"
    assert node.raft.lease_until(node.now) is None


def test_a_one_way_link_does_not_keep_a_leader_that_nobody_hears() -> None:
    """It hears others campaign, but no answer to itself."""
    node = Lone()
    node.elect()
    node.now += 0.95
    node.hear(asks(term=2, last=(9, 9), pre=True))
    node.now += 0.1
    node.tick()
    assert node.raft.role is Role.FOLLOWER


def test_handing_over_takes_the_lease_back_until_the_other_has_answered_a_later_round() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2))
    node.hear(node.answered(2, 1, session=55))
    assert node.raft.lease_until(node.now) is not None
    node.raft.transfer(2, node.now)
    said = node.drain()
    word = TimeoutNow(sender=1, to=2, term=2, round=2, session=55)
    assert word in said
    assert said.index(word) > said.index(Heartbeat(sender=1, to=2, term=2, round=2, commit=2))
    assert node.raft.lease_until(node.now) is None
    node.hear(node.answered(3, 2))
    assert node.raft.lease_until(node.now) is None
    stops_at = node.now + LONG_S
    while node.now < stops_at:
        node.tick()
        node.hear(node.answered(3, node.raft._leading._round))  # type: ignore[union-attr]
    assert isinstance(node.raft.propose(b"goes on", node.now), Proposed)
    assert node.raft.lease_until(node.now) is None, "2 may still act on what it was told"
    node.tick()
    node.hear(node.answered(2, node.raft._leading._round))  # type: ignore[union-attr]
    assert node.raft.lease_until(node.now) is not None


def test_a_late_word_to_campaign_is_not_obeyed() -> None:
    node = Lone()
    node.hear(heartbeat(term=1, number=3))
    session = node.raft._session
    for late in (
        TimeoutNow(sender=2, to=1, term=1, round=2, session=session),
        TimeoutNow(sender=2, to=1, term=1, round=3, session=session + 1),
        TimeoutNow(sender=3, to=1, term=1, round=3, session=session),
    ):
        node.hear(late)
        assert node.raft.role is Role.FOLLOWER
    said = node.hear(TimeoutNow(sender=2, to=1, term=1, round=3, session=session))
    assert node.raft.role is Role.CANDIDATE
    assert said == [
        VoteRequest(sender=1, to=voter, term=2, last_index=1, last_term=1, transfer=True) for voter in (2, 3)
    ]


# Entries


def test_entries_are_acknowledged_only_when_they_are_durable() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.stalled = True
    assert node.hear(append(entry(2, 1), prev=(1, 1), term=1, commit=2)) == []
    assert [each.index for each in node.committed] == [1], "not even what others have committed is applied before"
    node.write()
    assert node.drain() == [AppendAccepted(sender=1, to=2, term=1, match=2)]
    assert [each.index for each in node.committed] == [1, 2]


def test_a_heartbeat_is_answered_while_entries_are_still_being_written() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.stalled = True
    node.hear(append(entry(2, 1), prev=(1, 1), term=1))
    (answer,) = node.hear(heartbeat(term=1, number=2))
    assert isinstance(answer, HeartbeatAnswer)


def test_a_leader_counts_itself_only_when_its_disk_has_the_entry() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2))
    assert node.raft.commit == 2
    node.stalled = True
    node.raft.propose(b"x", node.now)
    said = node.drain()
    assert any(isinstance(message, Append) and message.entries for message in said), "others need not wait for it"
    node.hear(node.accepted(2, 3))
    assert node.raft.commit == 2
    node.write()
    assert node.raft.commit == 3


def test_a_persist_that_a_truncation_overtook_does_not_count() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.stalled = True
    node.hear(append(entry(2, 1), entry(3, 1), prev=(1, 1), term=1))
    node.hear(append(entry(2, 2), entry(3, 2), prev=(1, 1), term=2, commit=3, sender=3))
    first, second = node.waiting
    node.disk.perform(first)
    node.raft.persisted(first.number, node.now)
    assert node.raft.take_output().committed == (), "the disk has other entries there"
    node.disk.perform(second)
    node.raft.persisted(second.number, node.now)
    assert [each.term for each in node.raft.take_output().committed] == [2, 2]
    assert [each.term for each in node.disk.contents().entries] == [1, 2, 2]


def test_an_entry_of_an_older_term_is_not_committed_by_counting() -> None:
    """Figure 8 of the paper: a majority has it, and it can still be replaced."""
    node = Lone(log=(entry(2, 2),), term=3)
    node.elect()
    assert node.raft.term == 4
    node.hear(node.accepted(2, 2))
    node.hear(node.accepted(3, 2))
    assert node.raft.commit == 0
    node.hear(node.accepted(2, 3))
    assert node.raft.commit == 3


def test_an_answer_to_an_earlier_term_says_nothing() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2, term=1))
    assert node.raft.commit == 0
    node.hear(node.accepted(2, 99))
    assert node.raft.commit == 0, "an answer beyond the log is nobody's"
    node.hear(node.accepted(2, 2))
    node.hear(node.accepted(2, 1))
    assert node.raft._leading is not None
    assert node.raft._leading.peers[2].match == 2, "a late answer takes nothing back"


def test_a_late_append_does_not_cut_off_what_came_after_it() -> None:
    node = Lone()
    node.hear(append(entry(2, 1), entry(3, 1), prev=(1, 1), term=1))
    assert node.hear(append(entry(2, 1), prev=(1, 1), term=1)) == [AppendAccepted(sender=1, to=2, term=1, match=2)]
    assert node.raft.log.last_index == 3


def test_a_commit_index_reaches_only_as_far_as_the_logs_were_compared() -> None:
    node = Lone(log=(entry(2, 1), entry(3, 1)))
    node.hear(append(prev=(1, 1), term=2, commit=3))
    assert node.raft.commit == 1


def test_a_contradiction_is_found_in_one_step_per_term() -> None:
    node = Lone(log=tuple(entry(index, 2) for index in range(2, 50)), term=2)
    (rejected,) = node.hear(append(prev=(60, 5), term=5))
    assert isinstance(rejected, AppendRejected)
    assert (rejected.hint_index, rejected.hint_term) == (49, 2)
    leader = Lone(log=(entry(2, 1), *(entry(index, 4) for index in range(3, 60))), term=4)
    leader.elect()
    said = leader.hear(replace(rejected, sender=2, to=1, term=5, prev_index=59))
    assert [message.prev_index for message in said if isinstance(message, Append)] == [2]


def test_a_node_that_lost_its_log_is_not_asked_again_and_again() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2))
    rejected = AppendRejected(sender=2, to=1, term=2, prev_index=2, hint_index=0, hint_term=0)
    node.raft.propose(b"x", node.now)
    node.drain()
    assert node.hear(replace(rejected, prev_index=3)) != []
    assert node.hear(rejected) == []


# Membership


def test_a_new_leader_commits_first() -> None:
    """Before, it may not know of a change its predecessor committed, and its own could differ from it by two."""
    node = Lone()
    node.elect()
    assert node.raft.change_membership(AddLearner(4), node.now) == Refused(Reason.NOT_SETTLED, 1)
    node.hear(node.accepted(2, 2))
    assert isinstance(node.raft.change_membership(AddLearner(4), node.now), Proposed)
    assert node.raft.change_membership(RemoveNode(2), node.now) == Refused(Reason.CHANGE_UNDER_WAY, 1)


def test_a_membership_holds_from_the_moment_it_is_in_the_log() -> None:
    node = Lone(1, 2)
    node.elect()
    node.hear(node.accepted(2, 2))
    node.raft.change_membership(RemoveNode(2), node.now)
    node.drain()
    assert node.raft.commit == 3, "2 was asked no more"


def test_a_truncated_membership_is_taken_back() -> None:
    node = Lone(log=(members(2, 1, 1, 2, 3, 4),))
    assert node.raft.membership == Membership((1, 2, 3, 4))
    node.hear(append(entry(2, 2), prev=(1, 1), term=2))
    assert node.raft.membership == Membership((1, 2, 3))


def test_a_leader_that_is_removed_leads_until_that_is_committed_and_names_a_successor() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2))
    node.hear(node.accepted(3, 2))
    node.hear(node.answered(3, 1, session=33))
    node.raft.change_membership(RemoveNode(1), node.now)
    node.drain()
    node.hear(node.accepted(2, 3))
    assert node.raft.role is Role.LEADER, "it does not count itself any more"
    said = node.hear(node.accepted(3, 3))
    assert (node.raft.role, node.raft.commit) == (Role.FOLLOWER, 3)
    assert any(isinstance(message, TimeoutNow) for message in said)
    assert node.raft.deadline() is None, "it never campaigns again"


def test_a_node_whose_removal_is_not_committed_may_still_be_needed() -> None:
    """It has entries that those who stay lack, so that they could not be elected without it."""
    node = Lone(log=(members(2, 1, 2, 3),))
    assert node.raft.deadline() is not None
    said = node.tick()
    assert {message.to for message in said} == {2, 3}


def test_being_alone_in_the_newest_membership_is_not_enough() -> None:
    """It may not be committed, and whoever removed itself may lead until it is."""
    node = Lone(1, 2, log=(members(2, 1, 1),))
    assert (node.raft.role, node.raft.term) == (Role.FOLLOWER, 1)


def test_only_a_learner_that_has_caught_up_becomes_a_voter() -> None:
    node = Lone(1, settings=replace(SETTINGS, learner_entries_behind_max=0))
    assert node.raft.change_membership(PromoteLearner(2), node.now) == Refused(Reason.NO_SUCH_NODE, 1)
    node.raft.change_membership(AddLearner(2), node.now)
    node.drain()
    assert node.raft.change_membership(AddLearner(2), node.now) == Refused(Reason.ALREADY_A_MEMBER, 1)
    assert node.raft.change_membership(PromoteLearner(2), node.now) == Refused(Reason.TOO_FAR_BEHIND, 1)
    node.hear(node.accepted(2, 3))
    assert isinstance(node.raft.change_membership(PromoteLearner(2), node.now), Proposed)
    assert node.raft.membership == Membership((1, 2))


def test_a_learner_that_starts_anew_is_asked_anew_what_it_has() -> None:
    """It may have lost its disk, and would refuse for ever what it is taken to be ready for."""
    node = Lone(1)
    node.raft.change_membership(AddLearner(2), node.now)
    node.drain()
    node.hear(node.accepted(2, 3))
    assert [type(each) for each in node.hear(node.answered(2, 0, session=7))] == []
    (asked,) = node.hear(node.answered(2, 0, session=8))
    assert isinstance(asked, Append)
    refused = AppendRejected(
        sender=2, to=1, term=node.raft.term, prev_index=asked.prev_index, hint_index=0, hint_term=0
    )
    (sent,) = node.hear(refused)
    assert isinstance(sent, Append)
    assert [each.index for each in sent.entries] == [1, 2, 3]


def test_a_voter_that_starts_anew_is_held_to_its_word() -> None:
    node = Lone()
    node.elect()
    node.hear(node.accepted(2, 2))
    node.hear(node.answered(2, 0, session=7))
    assert node.hear(node.answered(2, 0, session=8)) == []


def test_the_last_voter_cannot_leave() -> None:
    node = Lone(1)
    assert node.raft.change_membership(RemoveNode(1), node.now) == Refused(Reason.LAST_VOTER, 1)


# Snapshots


def chunk(*, index: int, index_term: int, data: bytes, position: int = 0, total: int | None = None) -> SnapshotChunk:
    return SnapshotChunk(
        sender=2,
        to=1,
        term=5,
        index=index,
        index_term=index_term,
        membership=Membership((1, 2, 3)),
        bytes_total=len(data) if total is None else total,
        position=position,
        data=data,
    )


def test_a_snapshot_older_than_the_log_is_answered_and_changes_nothing() -> None:
    node = Lone(log=(entry(2, 1), entry(3, 1)))
    node.hear(append(prev=(3, 1), term=5, commit=3))
    assert node.hear(chunk(index=2, index_term=1, data=b"old")) == [AppendAccepted(sender=1, to=2, term=5, match=3)]
    assert (node.raft.log.base_index, node.raft.log.last_index) == (0, 3)


def test_a_snapshot_keeps_the_entries_after_it_if_they_follow_it() -> None:
    node = Lone(log=(entry(2, 1), entry(3, 1), entry(4, 1)))
    node.hear(chunk(index=3, index_term=1, data=b"abc"))
    assert (node.raft.log.base_index, node.raft.log.last_index) == (3, 4)
    node.start()
    assert (node.raft.log.base_index, node.raft.log.last_index) == (3, 4)


def test_a_snapshot_discards_the_entries_after_it_if_they_contradict_it() -> None:
    node = Lone(log=(entry(2, 1), entry(3, 1), entry(4, 1)))
    node.stalled = True
    assert node.hear(chunk(index=3, index_term=4, data=b"abc")) == []
    (persist,) = node.waiting
    assert (persist.truncate_from, persist.snapshot is not None) == (4, True)
    node.write()
    assert node.drain() == [AppendAccepted(sender=1, to=2, term=5, match=3)]
    assert node.raft.log.last_index == 3
    assert node.disk.contents().entries == ()


def test_chunks_that_come_twice_or_too_early_do_no_harm() -> None:
    node = Lone()
    first = chunk(index=9, index_term=4, data=b"abcd", total=6)
    second = replace(first, data=b"ef", position=4)
    wanted = SnapshotWanted(sender=1, to=2, term=5, index=9, position=0)
    assert node.hear(second) == [wanted]
    assert node.hear(first) == [replace(wanted, position=4)]
    assert node.hear(first) == [replace(wanted, position=4)]
    assert node.hear(second) == [AppendAccepted(sender=1, to=2, term=5, match=9)]
    assert node.disk.snapshot.data == b"abcdef"


# Reads, bounds


def test_a_read_waits_for_a_round_that_was_sent_after_it_was_asked() -> None:
    node = Lone(settings=replace(SETTINGS, lease_reads=False))
    node.elect()
    node.hear(node.accepted(2, 2))
    node.raft.read(77, node.now)
    node.drain()
    node.hear(node.answered(2, 1))
    assert node.reads == []
    node.hear(node.answered(3, 2))
    assert node.reads == [ReadReady(77, 2)]


def test_a_read_waits_for_the_first_entry_of_the_leader() -> None:
    node = Lone()
    node.elect()
    node.hear(node.answered(2, 1))
    node.raft.read(77, node.now)
    node.drain()
    assert node.reads == []
    node.hear(node.accepted(2, 2))
    assert node.reads == [ReadReady(77, 2)]


def test_reads_of_a_leader_that_steps_down_are_given_back() -> None:
    node = Lone(settings=replace(SETTINGS, lease_reads=False))
    node.elect()
    node.raft.read(77, node.now)
    node.raft.receive(heartbeat(term=9), node.now)
    assert node.raft.take_output().reads_refused == (77,)
    assert node.raft.read(78, node.now) == Refused(Reason.NOT_LEADER, 2)


def test_what_is_under_way_is_bounded() -> None:
    bounds = replace(
        SETTINGS, proposals_in_flight_max=3, proposal_bytes_in_flight_max=20, entry_bytes_max=16, reads_in_flight_max=1
    )
    node = Lone(settings=bounds)
    assert node.raft.propose(b"x", node.now) == Refused(Reason.NOT_LEADER, None)
    node.elect()
    assert node.raft.propose(b"x" * 17, node.now) == Refused(Reason.TOO_LARGE, 1)
    assert node.raft.propose_batch([b"x", b"y", b"z"], node.now) == Refused(Reason.TOO_MANY_IN_FLIGHT, 1)
    node.hear(node.accepted(2, 2))
    assert node.raft.propose(b"x" * 16, node.now) == Proposed(3, 2)
    assert node.raft.propose(b"x" * 16, node.now) == Refused(Reason.TOO_MANY_IN_FLIGHT, 1)
    node.drain()
    node.hear(node.accepted(2, 3))
    assert node.raft.propose(b"x" * 16, node.now) == Proposed(4, 2)
    assert node.raft.read(1, node.now) is None
    assert node.raft.read(2, node.now) == Refused(Reason.TOO_MANY_IN_FLIGHT, 1)


def test_appends_in_flight_to_one_peer_are_bounded() -> None:
    node = Lone(settings=replace(SETTINGS, appends_in_flight_max=2, append_bytes_max=1))
    node.elect()
    node.hear(node.accepted(2, 2))
    node.raft.propose_batch([b"a", b"b", b"c", b"d"], node.now)
    to_two = [each for each in node.drain() if isinstance(each, Append) and each.to == 2 and each.entries]
    assert [[each.index for each in message.entries] for message in to_two] == [[3], [4]]
    to_two = [each for each in node.hear(node.accepted(2, 3)) if isinstance(each, Append) and each.to == 2]
    assert [[each.index for each in message.entries] for message in to_two] == [[5]]


def test_a_cluster_of_one_leads_at_once_and_waits_for_nothing() -> None:
    node = Lone(1)
    assert node.raft.role is Role.LEADER
    assert node.raft.deadline() is None
    assert node.sent == []
    assert node.raft.propose(b"x", node.now) == Proposed(3, 2)
    node.drain()
    assert [each.index for each in node.committed] == [1, 2, 3]
    assert node.raft.read(5, node.now) is None
    node.drain()
    assert node.reads == [ReadReady(5, 3)]
    until = node.raft.lease_until(node.now)
    assert until is not None
    assert until > node.now
