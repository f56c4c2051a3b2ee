"""What nodes say to each other when this and that happens, held to transcripts that can be read as documentation."""

from millpond.core.raft.membership import AddLearner, PromoteLearner, RemoveNode
from millpond.core.raft.output import Role
from tests.core.raft.conversation import Conversation, golden


def led(voters: int = 3, joining: int = 0) -> Conversation:
    """Node 1 leads and everybody knows; nothing written down yet."""
    talk = Conversation(voters, joining)
    if voters > 1:
        talk.times_out(1)
    assert talk.rafts[1].role is Role.LEADER
    talk.read()
    return talk


def test_an_election() -> None:
    talk = Conversation()
    talk.times_out(1)
    golden(talk.read(), "election")


def test_a_cluster_of_one() -> None:
    talk = Conversation(1)
    talk.proposes(1, "a")
    golden(talk.read(), "cluster_of_one")


def test_replication() -> None:
    talk = led()
    talk.proposes(1, "a")
    talk.stalls(1)
    talk.proposes(1, "b", "c")
    talk.writes(1)
    talk.stalls(2)
    talk.stalls(3)
    talk.proposes(1, "d")
    talk.writes(3)
    talk.writes(2)
    talk.proposes(2, "e")
    golden(talk.read(), "replication")


def test_a_leader_cut_off_and_its_entries_replaced() -> None:
    talk = led()
    talk.cuts(1)
    talk.proposes(1, "lost", "too")
    talk.times_out(2)
    talk.proposes(2, "kept")
    for _ in range(4):
        talk.times_out(1)
    talk.mends()
    talk.beats(2)
    assert talk.applied[1] == [b"kept"]
    golden(talk.read(), "conflict_and_repair")


def test_a_node_that_was_away_catches_up_from_a_snapshot() -> None:
    talk = led()
    talk.cuts(3)
    talk.proposes(1, "apple", "banana", "cherry")
    talk.compacts(1)
    talk.mends()
    talk.beats(1)
    assert talk.applied[3] == [b"apple", b"banana", b"cherry"]
    golden(talk.read(), "snapshot")


def test_a_node_joins() -> None:
    talk = led(1, joining=1)
    talk.proposes(1, "a")
    talk.changes(1, AddLearner(2))
    talk.changes(1, PromoteLearner(2))
    talk.proposes(1, "b")
    assert talk.applied[2] == [b"a", b"b"]
    golden(talk.read(), "join")


def test_a_node_is_removed_and_disturbs_nobody() -> None:
    talk = led()
    talk.changes(1, RemoveNode(3))
    talk.proposes(1, "a")
    talk.beats(1, 4)
    talk.read()
    talk.times_out(3)
    golden(talk.read(), "removed_follower")


def test_a_leader_is_removed() -> None:
    talk = led()
    talk.changes(1, RemoveNode(1))
    assert talk.rafts[2].role is Role.LEADER or talk.rafts[3].role is Role.LEADER
    golden(talk.read(), "removed_leader")


def test_a_leader_hands_over() -> None:
    talk = led()
    talk.transfers(1, 3)
    assert talk.rafts[3].role is Role.LEADER
    golden(talk.read(), "transfer")


def test_a_leader_restarts_with_what_its_disk_had() -> None:
    talk = led()
    talk.proposes(1, "a")
    talk.stalls(1)
    talk.cuts(2, 3)
    talk.proposes(1, "never written")
    talk.crashes(1)
    talk.mends()
    talk.times_out(2)
    talk.restarts(1)
    talk.beats(2)
    assert talk.applied[1] == [b"a"]
    golden(talk.read(), "restart")


def test_a_leader_whose_process_is_gone_is_not_waited_for() -> None:
    talk = led()
    talk.beats(1)
    talk.crashes(1)
    talk.learns_gone(2, 1, 2)
    talk.times_out(2)  # 3 has not learnt it yet, and keeps its promise
    talk.learns_gone(3, 1, 2)
    talk.times_out(2)
    assert talk.rafts[2].role is Role.LEADER
    assert talk.now < 1.0 + talk.settings.election_timeout_s_min, "sooner than any election timeout"
    golden(talk.read(), "leader_gone")
