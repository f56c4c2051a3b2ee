"""Share groups among the others of a coordinator: never mistaken for them, remembered, and kept until deleted."""

import pytest

from millpond.core.groups.classic_events import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Leaving,
)
from millpond.core.groups.consumer_events import TopicsChanged
from millpond.core.groups.descriptions import GroupType, ShareDescription
from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import DeleteOffsets, FetchedOffsets, FetchOffsets, PartitionErrors
from millpond.core.groups.settings import DAY_MS
from tests.core.groups.consumer_conversation import topics, written
from tests.core.groups.coordinator import A0, Coordinator

T = Token(0)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_share_group_is_no_other_kind_even_while_it_is_empty(is_empty: bool) -> None:
    coordinator = Coordinator()
    assert coordinator.join_share().error is GroupError.NONE
    if is_empty:
        coordinator.leave_share()
    joined = coordinator.ask("g", JoinGroup(token=T, protocols=(("range", b""),), session_timeout_ms=10_000))
    assert isinstance(joined, JoinResult)
    assert joined.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.ask("g", Heartbeat(token=T, member_id="ana", generation=1)) == HeartbeatResult(
        GroupError.UNKNOWN_MEMBER_ID
    )
    left = coordinator.ask("g", LeaveGroup(token=T, members=(Leaving(member_id="ana"),)))
    assert isinstance(left, LeaveResult)
    assert [error for _, error in left.members] == [GroupError.UNKNOWN_MEMBER_ID]
    assert coordinator.join_consumer().error is GroupError.GROUP_ID_NOT_FOUND
    assert coordinator.commit(A0, 5) is GroupError.GROUP_ID_NOT_FOUND
    assert coordinator.ask("g", FetchOffsets(token=T)) == FetchedOffsets(GroupError.GROUP_ID_NOT_FOUND)
    assert coordinator.ask("g", DeleteOffsets(token=T, partitions=(A0,))) == PartitionErrors(
        GroupError.GROUP_ID_NOT_FOUND
    )
    assert coordinator.states() == {"g": "Empty" if is_empty else "Stable"}


def test_another_kind_is_no_share_group() -> None:
    coordinator = Coordinator()
    coordinator.join_classic("classic")
    coordinator.join_consumer("consumer")
    coordinator.commit(A0, 5, group="offsets")
    for group in ("classic", "consumer", "offsets"):
        assert coordinator.join_share(group).error is GroupError.GROUP_ID_NOT_FOUND
    assert coordinator.join_share("").error is GroupError.INVALID_GROUP_ID
    assert coordinator.delete("offsets") is GroupError.NONE
    assert coordinator.join_share("offsets").error is GroupError.NONE


def test_who_believes_to_be_in_a_group_that_is_not_there_joins_again() -> None:
    coordinator = Coordinator()
    assert coordinator.join_share(epoch=3).error is GroupError.UNKNOWN_MEMBER_ID
    assert coordinator.states() == {}


def test_share_groups_are_listed_and_described() -> None:
    coordinator = Coordinator()
    coordinator.join_share("s")
    coordinator.join_consumer("c")
    (listing,) = coordinator.registry.listings(types=[GroupType.SHARE])
    assert (listing.group, listing.protocol_type, listing.state) == ("s", "share", "Stable")
    described = coordinator.registry.describe("s")
    assert isinstance(described, ShareDescription)
    assert (described.epoch, described.assignor) == (1, "simple")
    assert [(each.member_id, written(each.assigned)) for each in described.members] == [("ana", "a0 a1")]


def test_a_restart_remembers_members_and_their_epochs() -> None:
    coordinator = Coordinator()
    coordinator.join_share()
    epoch = coordinator.join_share(member_id="ben").member_epoch
    coordinator.restart()
    assert coordinator.join_share(member_id="ben", epoch=epoch).error is GroupError.NONE
    coordinator.wait(45_000)
    assert coordinator.states() == {"g": "Empty"}
    coordinator.restart()
    assert coordinator.states() == {"g": "Empty"}
    assert coordinator.join_share().member_epoch > epoch


def test_an_empty_share_group_is_kept_until_it_is_deleted() -> None:
    coordinator = Coordinator()
    coordinator.join_share()
    assert coordinator.delete() is GroupError.NON_EMPTY_GROUP
    coordinator.leave_share()
    coordinator.wait(30 * DAY_MS)
    assert coordinator.states() == {"g": "Empty"}
    assert coordinator.delete() is GroupError.NONE
    coordinator.restart()
    assert coordinator.states() == {}
    assert coordinator.join_classic()


def test_members_hear_of_topics_that_come_and_grow() -> None:
    coordinator = Coordinator()
    epoch = coordinator.join_share().member_epoch
    coordinator.step(TopicsChanged(topics(a=3)))
    told = coordinator.join_share(epoch=epoch)
    assert told.assignment is not None
    assert written(told.assignment) == "a0 a1 a2"
