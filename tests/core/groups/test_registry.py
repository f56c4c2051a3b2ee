"""All groups of a coordinator: both kinds, offsets, operators, restarts."""

import pytest

from millpond.core.groups.classic_events import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Leaving,
    SyncGroup,
    SyncResult,
    Tick,
)
from millpond.core.groups.consumer_events import TopicsChanged
from millpond.core.groups.descriptions import ClassicDescription, ConsumerDescription, GroupType
from millpond.core.groups.effects import Noted, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.lag import Lag, LogFacts
from millpond.core.groups.offsets import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffsets,
    FetchOffsets,
    OffsetToCommit,
    PartitionErrors,
)
from millpond.core.groups.registry import (
    ForGroup,
)
from millpond.core.groups.settings import DAY_MS, GroupSettings
from millpond.model.errors import InvalidSetting
from millpond.model.ids import Offset, TimestampMs
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.coordinator import A0, A1, B0, Coordinator

# Offsets


def test_a_consumer_without_a_group_commits_and_reads_back() -> None:
    coordinator = Coordinator()
    assert coordinator.commit(A0, 5) is GroupError.NONE
    assert coordinator.fetch(A0, A1) == {A0: 5, A1: None}
    assert coordinator.fetch() == {A0: 5}
    assert coordinator.fetch(A0, group="other") == {A0: None}
    assert coordinator.states() == {"g": "Empty"}


def test_a_commit_is_kept_before_it_is_answered() -> None:
    coordinator = Coordinator()
    request = CommitOffsets(token=Token(1), offsets=(OffsetToCommit(A0, Offset(5)), OffsetToCommit(A1, Offset(6))))
    kinds = [type(each) for each in coordinator.step(ForGroup("g", request)) if not isinstance(each, Noted)]
    assert kinds == [Persist, Persist, Reply]


def test_metadata_is_bounded_and_the_rest_of_the_commit_goes_through() -> None:
    coordinator = Coordinator()
    offsets = (OffsetToCommit(A0, Offset(1), metadata="x" * 4_097), OffsetToCommit(A1, Offset(2), metadata="x" * 4_096))
    result = coordinator.ask("g", CommitOffsets(token=Token(0), offsets=offsets))
    assert result == PartitionErrors(
        GroupError.NONE, ((A0, GroupError.OFFSET_METADATA_TOO_LARGE), (A1, GroupError.NONE))
    )
    assert coordinator.fetch() == {A1: 2}


def test_a_member_commits_in_its_generation_only() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic()
    assert coordinator.commit(A0, 5, member_id=member_id, generation=1) is GroupError.NONE
    assert coordinator.commit(A0, 9, member_id=member_id, generation=0) is GroupError.ILLEGAL_GENERATION
    assert coordinator.commit(A0, 9, member_id="zoe", generation=1) is GroupError.UNKNOWN_MEMBER_ID
    assert coordinator.commit(A0, 9) is GroupError.UNKNOWN_MEMBER_ID
    assert coordinator.fetch() == {A0: 5}


def test_a_consumer_group_member_commits_and_fetches_in_its_epoch_only() -> None:
    coordinator = Coordinator()
    coordinator.join_consumer()
    assert coordinator.commit(A0, 5, member_id="ana", generation=1) is GroupError.NONE
    assert coordinator.commit(A0, 9, member_id="ana", generation=0) is GroupError.STALE_MEMBER_EPOCH
    stale = coordinator.ask("g", FetchOffsets(token=Token(0), member_id="ana", member_epoch=0))
    assert stale == FetchedOffsets(GroupError.STALE_MEMBER_EPOCH)
    assert coordinator.fetch() == {A0: 5}


def test_offsets_of_a_topic_somebody_reads_are_not_deleted() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic("g", "a")
    coordinator.commit(A0, 5, member_id=member_id, generation=1)
    coordinator.commit(B0, 6, member_id=member_id, generation=1)
    result = coordinator.ask("g", DeleteOffsets(token=Token(0), partitions=(A0, B0)))
    assert result == PartitionErrors(
        GroupError.NONE, ((A0, GroupError.GROUP_SUBSCRIBED_TO_TOPIC), (B0, GroupError.NONE))
    )
    assert coordinator.fetch() == {A0: 5}
    missing = coordinator.ask("other", DeleteOffsets(token=Token(0), partitions=(A0,)))
    assert missing == PartitionErrors(GroupError.GROUP_ID_NOT_FOUND)


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    coordinator = Coordinator()
    coordinator.commit(A0, 5)
    coordinator.commit(B0, 6)
    coordinator.step(TopicsChanged(topics(b=1)))
    assert coordinator.fetch() == {B0: 6}
    coordinator.restart()
    assert coordinator.fetch() == {B0: 6}


def test_offsets_expire_after_the_group_became_empty_and_the_group_with_them() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic()
    coordinator.commit(A0, 5, member_id=member_id, generation=1)
    for _ in range(10 * DAY_MS // 9_000):
        coordinator.now_ms += 9_000
        coordinator.ask("g", Heartbeat(token=Token(0), member_id=member_id, generation=1))
    coordinator.step(Tick())
    assert coordinator.fetch() == {A0: 5}, "a member reads it"
    coordinator.leave_classic(member_id)
    coordinator.wait(6 * DAY_MS)
    assert coordinator.fetch() == {A0: 5}
    coordinator.restart()
    coordinator.wait(2 * DAY_MS)
    assert coordinator.fetch() == {}
    assert coordinator.states() == {}
    assert set(coordinator.log.values()) == {None}


def test_offsets_of_a_simple_consumer_expire_after_their_commit() -> None:
    coordinator = Coordinator()
    coordinator.commit(A0, 5)
    coordinator.wait(4 * DAY_MS)
    coordinator.commit(A1, 6)
    coordinator.wait(4 * DAY_MS)
    assert coordinator.fetch() == {A1: 6}


def test_an_old_client_asks_for_a_retention_of_its_own() -> None:
    coordinator = Coordinator()
    commit = CommitOffsets(token=Token(0), offsets=(OffsetToCommit(A0, Offset(1)),), retention_ms=DAY_MS)
    coordinator.ask("g", commit)
    coordinator.restart()
    coordinator.wait(DAY_MS // 2)
    assert coordinator.fetch() == {A0: 1}
    coordinator.wait(DAY_MS)
    assert coordinator.fetch() == {}


# Both kinds of group


def test_an_empty_group_becomes_the_other_kind_and_keeps_its_offsets() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic()
    coordinator.commit(A0, 5, member_id=member_id, generation=1)
    assert coordinator.join_consumer().error is GroupError.GROUP_ID_NOT_FOUND
    coordinator.leave_classic(member_id)
    assert coordinator.join_consumer().member_epoch == 3, "generations were 1 and 2"
    coordinator.restart()
    assert coordinator.registry.listings()[0].type is GroupType.CONSUMER
    assert coordinator.fetch() == {A0: 5}
    coordinator.leave_consumer()
    coordinator.join_classic()
    coordinator.restart()
    assert coordinator.registry.listings()[0].type is GroupType.CLASSIC
    assert coordinator.fetch() == {A0: 5}


def test_classic_requests_to_a_consumer_group_in_use_are_refused() -> None:
    coordinator = Coordinator()
    coordinator.join_consumer()
    join = coordinator.ask("g", JoinGroup(token=Token(0), protocols=(("range", b""),)))
    assert isinstance(join, JoinResult)
    assert join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    sync = coordinator.ask("g", SyncGroup(token=Token(0), member_id="ana", generation=1))
    assert sync == SyncResult(error=GroupError.UNKNOWN_MEMBER_ID)
    beat = coordinator.ask("g", Heartbeat(token=Token(0), member_id="ana", generation=1))
    assert beat == HeartbeatResult(GroupError.UNKNOWN_MEMBER_ID)
    leaving = Leaving(member_id="ana")
    left = coordinator.ask("g", LeaveGroup(token=Token(0), members=(leaving,)))
    assert left == LeaveResult(GroupError.NONE, ((leaving, GroupError.UNKNOWN_MEMBER_ID),))


def test_a_group_without_a_name_is_refused() -> None:
    coordinator = Coordinator()
    join = coordinator.ask("", JoinGroup(token=Token(0), protocols=(("range", b""),)))
    assert isinstance(join, JoinResult)
    assert join.error is GroupError.INVALID_GROUP_ID
    assert coordinator.join_consumer("").error is GroupError.INVALID_GROUP_ID


def test_requests_to_groups_that_do_not_exist_leave_nothing_behind() -> None:
    coordinator = Coordinator()
    beat = coordinator.ask("g", Heartbeat(token=Token(0), member_id="ana", generation=1))
    assert beat == HeartbeatResult(GroupError.UNKNOWN_MEMBER_ID)
    coordinator.leave_consumer()
    coordinator.fetch(A0)
    coordinator.commit(A0, 1, member_id="ana", generation=3)
    coordinator.ask("g", JoinGroup(token=Token(0), protocols=(("range", b""),)))
    assert len(coordinator.registry) == 1, "an id is promised"
    coordinator.wait(60_000)
    assert len(coordinator.registry) == 0
    assert coordinator.log == {}


def test_a_promised_id_is_fresh_and_begins_with_the_client_id() -> None:
    coordinator = Coordinator()
    one, two = (coordinator.join_classic(group) for group in ("g", "h"))
    assert one.startswith("ana-")
    assert one != two


# Operators


def test_listings_by_state_and_type() -> None:
    coordinator = Coordinator()
    coordinator.join_classic("classic")
    coordinator.join_consumer("consumer")
    coordinator.commit(A0, 1, group="simple")
    assert coordinator.states() == {"classic": "Stable", "consumer": "Stable", "simple": "Empty"}
    assert coordinator.states(states=["empty"]) == {"simple": "Empty"}
    assert coordinator.states(types=[GroupType.CONSUMER]) == {"consumer": "Stable"}


def test_descriptions() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic("classic")
    coordinator.join_consumer("consumer")
    classic = coordinator.registry.describe("classic")
    assert isinstance(classic, ClassicDescription)
    assert (classic.state, classic.protocol, classic.members[0].member_id) == ("Stable", "range", member_id)
    assert classic.members[0].assignment == b"a0"
    consumer = coordinator.registry.describe("consumer")
    assert isinstance(consumer, ConsumerDescription)
    assert (consumer.state, consumer.epoch, consumer.assignor) == ("Stable", 1, "uniform")
    assert len(consumer.members[0].assigned) == 2
    assert coordinator.registry.describe("none") is None


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_only_an_empty_group_is_deleted(kind: str) -> None:
    coordinator = Coordinator()
    if kind == "classic":
        member_id = coordinator.join_classic()
        assert coordinator.delete() is GroupError.NON_EMPTY_GROUP
        coordinator.leave_classic(member_id)
    else:
        coordinator.join_consumer()
        assert coordinator.delete() is GroupError.NON_EMPTY_GROUP
        coordinator.leave_consumer()
    coordinator.commit(A0, 1)
    assert coordinator.delete() is GroupError.NONE
    assert coordinator.delete() is GroupError.GROUP_ID_NOT_FOUND
    assert set(coordinator.log.values()) == {None}
    coordinator.restart()
    assert len(coordinator.registry) == 0


def test_lag_in_messages_and_in_time() -> None:
    coordinator = Coordinator()
    for at, offset in ((A0, 5), (A1, 9), (B0, 2)):
        coordinator.commit(at, offset)
    logs = {
        A0: LogFacts(Offset(0), Offset(15), TimestampMs(coordinator.now.wall_ms - 3_000)),
        A1: LogFacts(Offset(0), Offset(9), None),
    }
    assert coordinator.registry.lag("g", logs, wall_ms=coordinator.now.wall_ms) == (
        Lag(A0, Offset(5), Offset(15), 10, 3_000),
        Lag(A1, Offset(9), Offset(9), 0, 0),
        Lag(B0, Offset(2), None, None, None),
    )
    cut = {A0: LogFacts(Offset(12), Offset(15), None)}
    assert coordinator.registry.lag("g", cut, wall_ms=0)[0].messages == 3


# Restarts


def test_after_a_restart_everybody_goes_on() -> None:
    coordinator = Coordinator()
    member_id = coordinator.join_classic("classic")
    coordinator.join_consumer("consumer")
    coordinator.commit(A0, 7, group="consumer", member_id="ana", generation=1)
    before = [coordinator.registry.describe(group) for group in ("classic", "consumer")]
    coordinator.restart()
    assert [coordinator.registry.describe(group) for group in ("classic", "consumer")] == before
    beat = coordinator.ask("classic", Heartbeat(token=Token(0), member_id=member_id, generation=1))
    assert beat == HeartbeatResult(GroupError.NONE)
    assert coordinator.fetch(group="consumer") == {A0: 7}
    coordinator.wait(60_000)
    assert coordinator.states() == {"classic": "Empty", "consumer": "Empty"}, "sessions run after a restart too"


@pytest.mark.parametrize(
    "wrong", [{"members_max": 0}, {"session_timeout_ms_min": 2_000_000}, {"initial_rebalance_delay_ms": -1}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting):
        GroupSettings(**wrong)  # type: ignore[arg-type]
