"""Conversations with a classic group, held to their transcripts, and single questions to one."""

from dataclasses import replace

import pytest

from millpond.core.groups.classic import LEGAL, State
from millpond.core.groups.classic_events import JoinGroup, JoinResult, LeaveGroup, Leaving, SyncGroup, SyncResult
from millpond.core.groups.effects import Effect, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.settings import GroupSettings
from tests.core.groups.conversation import Conversation, golden, instant


def settled(*names: str, settings: GroupSettings | None = None) -> Conversation:
    """A stable group of these, each with the partition of its place; nothing written down yet."""
    talk = Conversation(settings) if settings else Conversation()
    for name in names:
        talk.join_fully(name)
    for name in names[:-1]:
        talk.join(name)
    talk.sync(names[0], **{name: str(place) for place, name in enumerate(names)})
    for name in names[1:]:
        talk.sync(name)
    talk.read()
    return talk


def static_pair() -> Conversation:
    talk = Conversation()
    for name in ("ana", "ben"):
        talk.client(name).instance_id = f"i-{name}"
        talk.join(name)
    talk.join("ana")
    talk.sync("ana", ana="0", ben="1")
    talk.sync("ben")
    return talk


def restart_of(talk: Conversation, name: str) -> None:
    """The process of a static member is started again, and the old one does not know yet."""
    talk.clients[f"old {name}"] = replace(talk.client(name))
    talk.client(name).member_id = ""


# Conversations


def test_one_member_joins_stays_and_leaves() -> None:
    talk = Conversation()
    talk.join_fully("ana")
    talk.sync("ana", ana="0")
    talk.heartbeat("ana")
    talk.leave("ana")
    golden(talk.read(), "single_member")


def test_the_first_generation_waits_a_little_for_company() -> None:
    talk = Conversation(GroupSettings(initial_rebalance_delay_ms=100))
    for name in ("ana", "ben", "cid"):
        talk.join_fully(name)
        talk.wait(40)
    talk.wait(200)
    golden(talk.read(), "initial_delay")


def test_three_members_join_and_one_leaves() -> None:
    talk = Conversation()
    for name in ("ana", "ben", "cid"):
        talk.join_fully(name)
    talk.heartbeat("ana")
    talk.join("ana")
    talk.sync("ben")
    talk.sync("ana", ana="0", ben="1", cid="2")
    talk.sync("cid")
    talk.leave("ben")
    for name in ("ana", "cid"):
        talk.heartbeat(name)
        talk.join(name)
    talk.sync("cid")
    talk.sync("ana", ana="0,1", cid="2")
    golden(talk.read(), "three_members")


def test_a_static_member_restarts_and_nobody_notices() -> None:
    talk = static_pair()
    restart_of(talk, "ben")
    talk.join("ben")
    talk.sync("ben")
    talk.heartbeat("ben")
    talk.heartbeat("old ben")
    talk.sync("old ben")
    talk.join("old ben")
    talk.leave("old ben")
    golden(talk.read(), "static_restart")


def test_a_static_leader_restarts_and_does_not_assign_anew() -> None:
    talk = static_pair()
    talk.read()
    restart_of(talk, "ana")
    talk.join("ana")
    talk.sync("ana")
    restart_of(talk, "ana")
    talk.join("ana", can_skip_assignment=True)
    talk.sync("ana")
    golden(talk.read(), "static_leader_restart")


def test_a_session_expires_while_the_group_is_stable() -> None:
    talk = settled("ana", "ben")
    talk.wait(6_000)
    talk.heartbeat("ana")
    talk.wait(6_000)
    talk.heartbeat("ana")
    talk.join("ana")
    golden(talk.read(), "expiry_in_stable")


def test_a_session_expires_while_a_rebalance_is_prepared() -> None:
    talk = settled("ana", "ben")
    talk.join_fully("cid")
    talk.wait(9_000)
    talk.heartbeat("ana")
    talk.wait(2_000)
    talk.join("ana")
    golden(talk.read(), "expiry_in_preparing")


def test_the_leaders_session_expires_while_a_rebalance_is_completed() -> None:
    talk = Conversation()
    talk.join_fully("ana")
    talk.sync("ana", ana="0")
    talk.join_fully("ben")
    talk.join("ana")
    talk.sync("ben")
    talk.wait(10_000)
    talk.join("ben")
    talk.sync("ben", ben="0")
    golden(talk.read(), "expiry_in_completing")


def test_a_promised_id_that_is_never_used_holds_up_a_rebalance_for_one_session_only() -> None:
    talk = settled("ana")
    talk.join("ben")
    talk.wait(4_000)
    talk.join("ana")
    talk.wait(8_000)
    golden(talk.read(), "promise_expires")


def test_who_does_not_join_again_in_time_is_left_behind() -> None:
    talk = settled("ana", "ben")
    talk.join_fully("cid")
    talk.join("ana")
    for _ in range(4):
        talk.wait(7_500)
        talk.heartbeat("ben")
    talk.join("ben")
    golden(talk.read(), "rebalance_timeout")


def test_a_static_member_that_is_away_is_not_left_behind() -> None:
    talk = static_pair()
    talk.read()
    talk.join_fully("cid", rebalance_timeout_ms=5_000)
    talk.join("ana", rebalance_timeout_ms=5_000)
    for _ in range(5):
        talk.wait(6_000)
        talk.heartbeat("ben")
    talk.join("ben")
    talk.wait(12_000)
    golden(talk.read(), "static_away")


def test_a_late_sync_still_gets_its_assignment() -> None:
    talk = Conversation()
    talk.join_fully("ana")
    talk.join_fully("ben")
    talk.join("ana")
    talk.sync("ana", ana="0", ben="1")
    talk.wait(5_000)
    talk.sync_in(1, "ben")
    talk.sync("ben")
    talk.heartbeat("ben")
    golden(talk.read(), "late_sync")


def test_who_heartbeats_but_never_syncs_is_taken_for_dead() -> None:
    talk = Conversation()
    talk.join_fully("ana")
    talk.join_fully("ben")
    talk.join("ana")
    talk.sync("ana", ana="0", ben="1")
    for _ in range(4):
        talk.wait(7_500)
        talk.heartbeat("ana")
        talk.heartbeat("ben")
    golden(talk.read(), "never_synced")


def test_a_restarted_coordinator_goes_on_in_the_same_generation() -> None:
    talk = settled("ana", "ben")
    talk.wait(1_000)
    talk.restart()
    talk.heartbeat("ana")
    talk.sync("ben")
    talk.wait(9_000)
    talk.heartbeat("ben")
    talk.wait(1_000)
    golden(talk.read(), "restart")


def test_a_group_of_several_members_is_emptied_in_one_request() -> None:
    talk = settled("ana", "ben")
    talk.leave("ana", "ben", "cid")
    golden(talk.read(), "leave_together")


# Single questions


def answer(effects: list[Effect], token: int) -> object:
    (result,) = [each.result for each in effects if isinstance(each, Reply) and each.to == token]
    return result


def join_error(talk: Conversation, **changes: object) -> GroupError:
    event = JoinGroup(token=Token(99), protocols=(("range", b""),), session_timeout_ms=10_000, client_id="zoe")
    effects = talk.group.step(replace(event, **changes), now=instant(talk.now_ms))  # type: ignore[arg-type]
    result = answer(effects, 99)
    assert isinstance(result, JoinResult)
    return result.error


@pytest.mark.parametrize("timeout_ms", [0, 5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    assert join_error(Conversation(), session_timeout_ms=timeout_ms) is GroupError.INVALID_SESSION_TIMEOUT


def test_whoever_shares_no_protocol_is_not_let_in() -> None:
    talk = settled("ana")
    assert join_error(talk, protocols=(("sticky", b""),)) is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert join_error(talk, protocol_type="connect") is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert join_error(talk, protocols=()) is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_a_lone_member_may_change_its_protocols() -> None:
    talk = settled("ana")
    talk.join("ana", protocols=(("sticky", b""),))
    assert talk.group.protocol == "sticky"


def test_a_full_group_refuses_a_newcomer_but_not_its_members() -> None:
    talk = settled("ana", "ben", settings=GroupSettings(initial_rebalance_delay_ms=0, members_max=2))
    assert join_error(talk) is GroupError.GROUP_MAX_SIZE_REACHED
    talk.join("ana")
    assert "GROUP_MAX_SIZE_REACHED" not in talk.read()


def test_an_id_nobody_was_given_is_unknown() -> None:
    assert join_error(settled("ana"), member_id="invented") is GroupError.UNKNOWN_MEMBER_ID
    assert join_error(settled("ana"), member_id="invented", instance_id="i") is GroupError.UNKNOWN_MEMBER_ID


def test_an_old_client_joins_without_asking_for_an_id_first() -> None:
    assert join_error(Conversation(), requires_known_member_id=False) is GroupError.NONE


def test_the_protocol_most_members_prefer_is_taken() -> None:
    talk = Conversation()
    talk.join_fully("ana", protocols=(("range", b""), ("sticky", b"")))
    talk.join_fully("ben", protocols=(("sticky", b""), ("range", b"")))
    talk.join_fully("cid", protocols=(("sticky", b""), ("range", b"")))
    talk.join("ana", protocols=(("range", b""), ("sticky", b"")))
    assert talk.group.protocol == "sticky"


def test_a_join_sent_twice_is_answered_twice() -> None:
    talk = settled("ana", "ben")
    talk.join("ana", protocols=(("range", b"new"),))
    talk.join("ana", protocols=(("range", b"new"),))
    assert "ana <- REBALANCE_IN_PROGRESS" in talk.read()


def test_a_sync_that_names_another_protocol_is_refused() -> None:
    talk = settled("ana")
    for believed in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        event = SyncGroup(token=Token(99), member_id="ana-1", generation=1, **believed)  # type: ignore[arg-type]
        result = answer(talk.group.step(event, now=instant(0)), 99)
        assert result == SyncResult(error=GroupError.INCONSISTENT_GROUP_PROTOCOL)


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    talk = static_pair()
    event = LeaveGroup(token=Token(99), members=(Leaving(instance_id="i-ben"), Leaving(instance_id="i-cid")))
    talk.senders[Token(99)] = "admin"
    talk.say("admin", "admin", event)
    assert "admin <- i-ben gone, i-cid UNKNOWN_MEMBER_ID" in talk.read()
    assert talk.group.members.of_instance("i-ben") is None


def commit_error(talk: Conversation, member_id: str = "", generation: int = -1) -> GroupError:
    return talk.group.admit_commit(
        member_id=member_id, instance_id=None, generation=generation, now=instant(talk.now_ms)
    )


def test_whoever_is_no_member_commits_only_to_an_empty_group() -> None:
    assert commit_error(Conversation()) is GroupError.NONE
    assert commit_error(settled("ana")) is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_commits_in_its_generation_and_until_it_joined_the_next() -> None:
    talk = settled("ana", "ben")
    assert commit_error(talk, "ana-1", 2) is GroupError.NONE
    assert commit_error(talk, "ana-1", 1) is GroupError.ILLEGAL_GENERATION
    talk.leave("ben")
    assert commit_error(talk, "ana-1", 2) is GroupError.NONE, "what it has read before it revokes"
    talk.join("ana")
    assert commit_error(talk, "ana-1", 3) is GroupError.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_session_alive() -> None:
    talk = settled("ana")
    talk.wait(9_000)
    assert commit_error(talk, "ana-1", 1) is GroupError.NONE
    talk.wait(9_000)
    talk.heartbeat("ana")
    assert "still a member" in talk.read()


def test_only_an_empty_group_dies() -> None:
    assert [state for state, then in LEGAL.items() if State.DEAD in then] == [State.EMPTY]
    assert LEGAL[State.DEAD] == set()
    talk = Conversation()
    talk.group.bury(now=instant(0))
    assert join_error(talk) is GroupError.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(AssertionError):
        settled("ana").group.bury(now=instant(0))
