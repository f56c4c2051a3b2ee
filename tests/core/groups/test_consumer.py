"""Conversations with a consumer group, held to their transcripts, and single questions to one."""

import pytest

from millpond.core.groups.consumer import State
from millpond.core.groups.errors import GroupError
from millpond.core.groups.settings import GroupSettings
from tests.core.groups.consumer_conversation import ConsumerConversation, topics
from tests.core.groups.conversation import golden


def talking(*names: str, **sizes: int) -> ConsumerConversation:
    """A settled group of these; nothing written down yet."""
    talk = ConsumerConversation(topics(**(sizes or {"a": 4})))
    for name in names:
        talk.join(name)
    talk.settle()
    talk.read()
    return talk


# Conversations


def test_a_second_and_a_third_member_join_and_one_leaves() -> None:
    talk = ConsumerConversation(topics(a=6))
    talk.join("ana")
    talk.join("ben")
    talk.beat("ana")
    talk.beat("ben")
    talk.beat("ana")
    talk.beat("ben")
    talk.join("cid")
    talk.settle()
    talk.leave("ana")
    talk.settle()
    golden(talk.read(), "consumer_join_and_leave")


def test_who_does_not_give_up_its_partitions_in_time_is_out() -> None:
    talk = talking("ana", a=2)
    talk.join("ben")
    talk.beat("ana")
    for _ in range(3):
        talk.wait(10_000)
        talk.silent_beat("ana")
        talk.beat("ben")
    golden(talk.read(), "consumer_revocation_timeout")


def test_a_session_expires_and_the_others_take_over() -> None:
    talk = talking("ana", "ben", a=2)
    talk.wait(30_000)
    talk.beat("ana")
    talk.wait(20_000)
    talk.beat("ana")
    talk.beat("ben")
    golden(talk.read(), "consumer_session_expiry")


def test_fencing() -> None:
    talk = talking("ana", "ben")
    talk.beat("ana", epoch=7)
    talk.beat("ana", epoch=1)
    talk.beat("zoe", epoch=2)
    talk.beat("ana", epoch=-3)
    talk.join("ben", assignor="psychic")
    talk.join("ben", regex="(")
    golden(talk.read(), "consumer_fencing")


def test_a_static_member_restarts_and_nobody_notices() -> None:
    talk = ConsumerConversation(topics(a=4))
    talk.consumer("ana").instance_id = "i-ana"
    talk.consumer("new ana").instance_id = "i-ana"
    talk.join("ana")
    talk.join("ben")
    talk.beat("ana")
    talk.beat("ana")
    talk.beat("ben")
    talk.read()
    talk.join("new ana")
    talk.leave("ana", back_soon=True)
    talk.beat("ben")
    talk.join("new ana")
    talk.beat("ben")
    talk.beat("ana", instance_id="i-ana")
    golden(talk.read(), "consumer_static_restart")


def test_topics_come_grow_and_go() -> None:
    talk = talking("ana", "ben", a=2, b=1)
    talk.change_topics(a=2, b=3)
    talk.settle()
    talk.change_topics(b=3)
    talk.settle()
    talk.change_topics(b=3, c=1)
    golden(talk.read(), "consumer_topics_change")


def test_a_restarted_coordinator_knows_what_everybody_has() -> None:
    talk = talking("ana", "ben")
    talk.join("cid")
    talk.restart()
    talk.settle()
    golden(talk.read(), "consumer_restart")


# Single questions


def test_topics_that_changed_while_the_coordinator_was_away_are_noticed() -> None:
    talk = talking("ana", a=2)
    talk.restart()
    talk.change_topics(a=2)
    assert "RebalanceBegan" not in talk.read()
    talk.topics = topics(a=3)
    talk.restart()
    talk.change_topics(a=3)
    assert "RebalanceBegan" in talk.read()


def test_a_pattern_subscribes_to_topics_to_come() -> None:
    talk = ConsumerConversation(topics(a=1, b=1))
    talk.join("ana", regex="a|c.*")
    assert len(talk.consumer("ana").owned) == 1
    talk.change_topics(a=1, b=1, cold=2)
    talk.settle()
    assert len(talk.consumer("ana").owned) == 3
    assert talk.group.subscribed_topics() == {"a", "cold"}


def test_the_assignor_most_members_ask_for_is_used() -> None:
    talk = ConsumerConversation(topics(a=4))
    talk.join("ana", assignor="range")
    talk.join("ben", assignor="range")
    talk.join("cid", assignor="uniform")
    assert talk.group.assignor == "range"


def test_a_changed_subscription_moves_what_it_must() -> None:
    talk = talking("ana", "ben", a=2, b=2)
    talk.beat("ben", topics=frozenset({"b"}))
    talk.settle()
    assert {chr(each.topic_id[0]) for each in talk.consumer("ben").owned} == {"b"}
    assert len(talk.consumer("ana").owned) == 2


def test_a_lost_answer_does_not_fence() -> None:
    talk = talking("ana", a=2)
    talk.change_topics(a=3)
    before = talk.consumer("ana").epoch
    talk.beat("ana")
    talk.consumer("ana").epoch = before  # as if the answer had not come
    assert talk.beat("ana", owned=frozenset()) is GroupError.NONE
    assert talk.consumer("ana").epoch == before + 1


def test_who_still_reads_what_it_gave_up_is_fenced() -> None:
    talk = talking("ana", a=2)
    had = talk.consumer("ana").owned
    talk.join("ben")
    talk.beat("ana")
    talk.beat("ana")
    assert talk.consumer("ana").epoch == 2
    assert talk.beat("ana", epoch=1, owned=had) is GroupError.FENCED_MEMBER_EPOCH
    assert talk.beat("ana", epoch=1) is GroupError.FENCED_MEMBER_EPOCH, "it does not say what it reads"
    assert talk.beat("ana", epoch=1, owned=talk.consumer("ana").owned) is GroupError.NONE


def test_a_fenced_member_joins_again_and_is_given_what_is_its_own() -> None:
    talk = talking("ana", "ben")
    had = talk.consumer("ana").owned
    talk.consumer("ana").owned = frozenset()
    assert talk.join("ana") is GroupError.NONE
    assert talk.consumer("ana").owned == had


def test_a_static_member_that_stays_away_loses_its_share_with_its_session() -> None:
    talk = ConsumerConversation(topics(a=2))
    talk.consumer("ana").instance_id = "i-ana"
    talk.join("ana")
    talk.join("ben")
    talk.settle()
    talk.leave("ana", back_soon=True)
    for _ in range(3):
        talk.wait(20_000)
        talk.beat("ben")
    assert len(talk.consumer("ben").owned) == 2


def test_a_share_that_moves_from_a_static_member_that_is_away_is_free_at_once() -> None:
    talk = ConsumerConversation(topics(a=4))
    talk.consumer("ana").instance_id = "i-ana"
    talk.join("ana")
    talk.leave("ana", back_soon=True)
    talk.join("ben")
    assert len(talk.consumer("ben").owned) == 2


def test_a_full_group_refuses_a_newcomer() -> None:
    talk = ConsumerConversation(topics(a=2), GroupSettings(consumer_members_max=1))
    talk.join("ana")
    assert talk.join("ben") is GroupError.GROUP_MAX_SIZE_REACHED
    assert talk.join("ana") is GroupError.NONE


def test_an_old_client_is_given_an_id() -> None:
    talk = ConsumerConversation(topics(a=2))
    talk.consumer("ana").member_id = ""
    talk.join("ana")
    assert talk.consumer("ana").member_id == "client-1"


@pytest.mark.parametrize(
    "said",
    [
        {"epoch": 0, "topics": None, "rebalance_timeout_ms": 1},
        {"epoch": 0, "topics": frozenset({"a"})},
        {"epoch": -2},
    ],
    ids=["without a subscription", "without a timeout", "static without an instance id"],
)
def test_a_request_that_makes_no_sense_is_refused(said: dict[str, object]) -> None:
    talk = talking("ana")
    assert talk.beat("ana", **said) is GroupError.INVALID_REQUEST  # type: ignore[arg-type]


def test_who_may_commit() -> None:
    group = ConsumerConversation(topics(a=2)).group
    assert group.admit_commit(member_id="", member_epoch=-1) is GroupError.NONE
    group = talking("ana").group
    assert group.admit_commit(member_id="", member_epoch=-1) is GroupError.UNKNOWN_MEMBER_ID
    assert group.admit_commit(member_id="ana", member_epoch=1) is GroupError.NONE
    assert group.admit_commit(member_id="ana", member_epoch=0) is GroupError.STALE_MEMBER_EPOCH


def test_states_of_the_group() -> None:
    talk = ConsumerConversation(topics(a=2))
    states = [talk.group.state]
    talk.join("ana")
    states.append(talk.group.state)
    talk.join("ben")
    states.append(talk.group.state)
    talk.settle()
    states.append(talk.group.state)
    talk.leave("ana")
    talk.leave("ben")
    states.append(talk.group.state)
    assert states == [State.EMPTY, State.STABLE, State.RECONCILING, State.STABLE, State.EMPTY]
