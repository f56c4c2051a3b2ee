"""A leader whose process has ended: nobody is bound to it any more, and nobody hurries too much."""

from dataclasses import replace

import pytest

from millpond.core.raft.messages import VoteAnswer
from millpond.core.raft.output import Role
from tests.core.raft.lone import SETTINGS, Lone, asks, heartbeat


def test_a_promise_ends_with_the_process_that_it_was_given() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    assert node.hear(asks(term=2, last=(1, 1))) == []
    node.raft.leader_gone(2, 1, node.now)
    deadline = node.raft.deadline()
    assert deadline is not None
    assert deadline <= node.now + SETTINGS.gone_delay_s_max
    assert node.hear(asks(term=2, last=(1, 1))) == [VoteAnswer(sender=1, to=3, term=2, granted=True)]
    deadline = node.raft.deadline()
    assert deadline is not None
    assert deadline >= node.now + SETTINGS.election_timeout_s_min, "who has its vote is left the time to win"
    assert node.hear(asks(term=2, last=(9, 1), sender=2)) == [VoteAnswer(sender=1, to=2, term=2, granted=False)]


def test_a_leader_that_is_heard_again_is_promised_to_again() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.raft.leader_gone(2, 1, node.now)
    node.hear(heartbeat(term=2, sender=3))
    assert node.hear(asks(term=3, last=(1, 1), sender=2)) == []
    deadline = node.raft.deadline()
    assert deadline is not None
    assert deadline >= node.now + SETTINGS.election_timeout_s_min


def test_nobody_hurries_for_ever() -> None:
    node = Lone()
    node.hear(heartbeat(term=1))
    node.raft.leader_gone(2, 1, node.now)
    delays = []
    for _ in range(10):
        before = node.now
        node.tick()
        delays.append(node.now - before)
    assert delays[0] <= SETTINGS.gone_delay_s_max
    assert min(delays[-2:]) >= SETTINGS.election_timeout_s_min
    assert node.raft.term == 1, "nobody let it campaign"


@pytest.mark.parametrize(("node_id", "role"), [(1, Role.PRE_CANDIDATE), (5, Role.FOLLOWER)])
def test_of_two_that_hurry_one_gives_way(node_id: int, role: Role) -> None:
    """Else both would win the pre-vote, and both lose the vote."""
    node = Lone()
    node.hear(heartbeat(term=1, sender=3))
    node.raft.leader_gone(3, 1, node.now)
    node.tick()
    node.raft.node_id = node_id
    node.hear(replace(asks(term=2, last=(1, 1), sender=2, pre=True), to=node_id))
    assert node.raft.role is role


def test_a_leader_does_not_take_itself_for_gone() -> None:
    node = Lone()
    node.elect()
    node.raft.leader_gone(1, node.raft.term, node.now)
    assert node.raft.role is Role.LEADER
