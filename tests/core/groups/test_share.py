"""Conversations with a share group, held to their transcripts, and single questions to one."""

import pytest

from millpond.core.groups.errors import GroupError
from millpond.core.groups.settings import GroupSettings, Pace
from millpond.core.groups.share import State
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.conversation import golden
from tests.core.groups.share_conversation import ShareConversation


def talking(*names: str, **sizes: int) -> ShareConversation:
    """A group in which everybody has heard everything; nothing written down yet."""
    talk = ShareConversation(topics(**(sizes or {"a": 4})))
    for name in names:
        talk.join(name)
    for name in names:
        talk.beat(name)
    talk.read()
    return talk


# Conversations


def test_members_come_and_go_and_nobody_waits() -> None:
    talk = ShareConversation(topics(a=2))
    talk.join("ana")
    talk.join("ben")
    talk.beat("ana")
    talk.join("cid")
    talk.beat("ana")
    talk.beat("ben")
    talk.leave("ana")
    talk.beat("ben")
    talk.beat("cid")
    talk.leave("ben")
    talk.leave("cid")
    golden(talk.read(), "share_join_and_leave")


def test_a_session_expires_and_the_others_take_over() -> None:
    talk = talking("ana", "ben", "cid", a=3)
    for pause_ms in (30_000, 20_000):
        talk.wait(pause_ms)
        talk.beat("ana")
        talk.beat("cid")
    talk.beat("ben")
    golden(talk.read(), "share_session_expiry")


def test_fencing() -> None:
    talk = talking("ana", "ben")
    talk.beat("ana", epoch=7)
    talk.beat("zoe", epoch=2)
    talk.beat("ana", epoch=-2)
    talk.leave("zoe")
    talk.say("zoe joins without a subscription", "zoe", member_epoch=0)
    talk.say("somebody without a name joins", "", member_epoch=0, topics=frozenset("a"))
    talk.say("zoe joins from nowhere", "zoe", member_epoch=0, topics=frozenset("a"), rack_id="")
    golden(talk.read(), "share_fencing")


def test_topics_come_grow_and_go() -> None:
    talk = ShareConversation(topics(a=1))
    talk.join("ana", "a", "b")
    talk.change_topics(a=2)
    talk.beat("ana")
    talk.change_topics(a=2, b=1)
    talk.beat("ana")
    talk.change_topics(b=1)
    talk.beat("ana")
    golden(talk.read(), "share_topics_change")


# Questions


def test_an_answer_that_was_lost_is_given_again() -> None:
    talk = talking("ana", "ben", a=3)
    talk.join("cid")
    before = talk.readers["ana"].epoch
    lost = talk.say("ana heartbeats", "ana", is_lost=True, member_epoch=before)
    again = talk.say("ana heartbeats again", "ana", member_epoch=before)
    assert lost.assignment == again.assignment is not None
    assert talk.beat("ana") is GroupError.NONE
    talk.join("dan")
    talk.beat("ana")
    assert talk.beat("ana", epoch=before) is GroupError.FENCED_MEMBER_EPOCH


def test_who_joins_again_keeps_its_place() -> None:
    talk = talking("ana", "ben", a=2)
    before = talk.group.epoch, {name: member.target for name, member in talk.group.members.items()}
    talk.join("ana")
    assert (talk.group.epoch, {name: member.target for name, member in talk.group.members.items()}) == before
    assert talk.readers["ana"].reads == talk.group.members["ana"].target


def test_a_heartbeat_that_only_says_still_here_writes_nothing() -> None:
    talk = talking("ana")
    talk.beat("ana")
    assert "keep" not in talk.read()


def test_a_group_of_its_own_pace_is_told_so_from_the_next_heartbeat_on() -> None:
    talk = talking("ana")
    talk.pace = Pace(heartbeat_ms=250, session_timeout_ms=2_000)
    assert talk.say("ana", "ana", member_epoch=talk.readers["ana"].epoch).heartbeat_interval_ms == 250
    talk.wait(2_000)
    assert talk.group.state is State.EMPTY


def test_a_full_group_takes_nobody_in() -> None:
    talk = ShareConversation(topics(a=1), settings=GroupSettings(members_max=1))
    assert talk.join("ana") is GroupError.NONE
    assert talk.join("ben") is GroupError.GROUP_MAX_SIZE_REACHED
    assert talk.join("ana") is GroupError.NONE


def test_who_subscribes_to_nothing_any_more_stays_a_member() -> None:
    talk = talking("ana", "ben", a=2)
    talk.beat("ana", topics=frozenset())
    assert talk.readers["ana"].reads == frozenset()
    talk.beat("ben")
    assert len(talk.readers["ben"].reads) == 2


@pytest.mark.parametrize("changed", [False, True])
def test_a_restart_changes_nothing_unless_topics_did_meanwhile(changed: bool) -> None:
    talk = talking("ana", "ben", a=4)
    epoch = talk.group.epoch
    if changed:
        talk.topics = topics(a=5)
    talk.restart()
    talk.change_topics(**{name: topic.partitions for name, topic in talk.topics.items()})
    assert talk.group.epoch == epoch + changed
    for name in ("ana", "ben"):
        assert talk.beat(name) is GroupError.NONE
    assert sum(len(reader.reads) for reader in talk.readers.values()) == 2 * (4 + changed)
    talk.wait(45_000)
    assert talk.group.state is State.EMPTY
