"""Share groups over the wire: joining, describing, listing, and what other kinds of groups are told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.api.kafka.handlers import share_group_describe, share_group_heartbeat
from millpond.api.kafka.served import SERVED
from millpond.protocol.messages import incremental_alter_configs as configs
from millpond.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from millpond.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millpond.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millpond.protocol.messages.delete_groups import DeleteGroupsRequest
from millpond.protocol.messages.describe_groups import DescribeGroupsRequest
from millpond.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest
from millpond.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millpond.protocol.messages.list_groups import ListGroupsRequest
from millpond.protocol.messages.registry import APIS
from millpond.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from millpond.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.api.asking import create
from tests.api.brokers import NODE_ID, Answer, Peer, running

OFFSET_OUT_OF_RANGE = 1
HANDLERS = {76: share_group_heartbeat, 77: share_group_describe}


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not a broker advertises them."""
    for key in HANDLERS:
        monkeypatch.setitem(SERVED, key, APIS[key])


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with running(tmp_path) as broker, Peer(broker) as connected:
        yield connected


def beat(peer: Peer, group: str, member: str, epoch: int, *topics: str) -> Answer:
    names = list(topics) or None
    return peer.ask(
        ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names)
    )


def assigned(answer: Answer) -> list[int]:
    assert answer.error_code == 0, answer.error_message
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


def test_members_join_share_partitions_and_leave(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)
    found = peer.ask(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0]
    assert (found.error_code, found.node_id) == (0, NODE_ID)
    first = beat(peer, "g", "ana", 0, name)
    assert (first.member_id, first.heartbeat_interval_ms) == ("ana", 1_000)
    assert assigned(first) == [0, 1]
    second = beat(peer, "g", "ben", 0, name)
    told = beat(peer, "g", "ana", first.member_epoch)
    assert (assigned(second), told.assignment) == ([0, 1], None), "each has two readers where there are two"
    third = beat(peer, "g", "cid", 0, name)
    told = beat(peer, "g", "ana", told.member_epoch)
    second = beat(peer, "g", "ben", second.member_epoch)
    assert len(assigned(third)) in (1, 2)
    assert beat(peer, "g", "ana", told.member_epoch).assignment is None
    for member in ("ben", "cid"):
        assert beat(peer, "g", member, -1).member_epoch == -1
    last = beat(peer, "g", "ana", told.member_epoch)
    assert assigned(last if last.assignment is not None else first) == [0, 1]


def test_a_share_group_is_described_listed_and_deleted(peer: Peer, name: str) -> None:
    create(peer, name, partitions=1)
    beat(peer, "g", "ana", 0, name)
    (group,) = peer.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.error_code, group.group_state, group.group_epoch) == (0, "Stable", 1)
    assert (group.assignment_epoch, group.assignor_name) == (1, "simple")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("ana", "peer", [name])
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == (name, [0])
    (listed,) = peer.ask(ListGroupsRequest(types_filter=["share"])).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "share", "share")
    assert peer.ask(ListGroupsRequest(types_filter=["consumer"])).groups == []
    assert peer.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 68
    beat(peer, "g", "ana", -1)
    assert peer.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    assert peer.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups[0].error_code == 69


def test_all_places_of_a_share_group_are_described_by_topic_and_partition(peer: Peer, name: str) -> None:
    names = [f"{name}-b", f"{name}-a"]
    for each in names:
        create(peer, each, partitions=3)
    moved = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=each,
            partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=at, start_offset=0) for at in (2, 0, 1)],
        )
        for each in names
    ]
    answer = peer.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=moved))
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [0] * 6
    asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    (group,) = peer.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    assert group.error_code == 0
    assert [
        (topic.topic_name, [(part.partition_index, part.start_offset) for part in topic.partitions])
        for topic in group.topics
    ] == [(each, [(0, 0), (1, 0), (2, 0)]) for each in sorted(names)]


@pytest.mark.parametrize("offset", [-5, -1, 1])
def test_a_share_group_is_not_moved_to_an_offset_that_is_not_there(peer: Peer, name: str, offset: int) -> None:
    create(peer, name, partitions=1)
    part = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[part])
    (answered,) = peer.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])).responses
    assert answered.partitions[0].error_code == OFFSET_OUT_OF_RANGE


def test_requests_of_other_kinds_do_not_find_it(peer: Peer, name: str) -> None:
    create(peer, name)
    beat(peer, "g", "ana", 0, name)
    joined = peer.ask(
        JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            session_timeout_ms=10_000,
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
    )
    assert joined.error_code == 23
    assert peer.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0].error_code == 69
    assert peer.ask(DescribeGroupsRequest(groups=["g"])).groups[0].error_code == 69
    assert peer.ask(ShareGroupDescribeRequest(group_ids=["nobody"])).groups[0].error_code == 69


def configure(peer: Peer, group: str, setting: str, value: str) -> None:
    item = configs.AlterableConfig(name=setting, config_operation=0, value=value)
    of = configs.AlterConfigsResource(resource_type=32, resource_name=group, configs=[item])
    assert peer.ask(configs.IncrementalAlterConfigsRequest(resources=[of])).responses[0].error_code == 0


def test_a_group_beats_as_its_settings_say(peer: Peer, name: str) -> None:
    create(peer, name)
    assert beat(peer, "g", "ana", 0, name).heartbeat_interval_ms == 1_000
    configure(peer, "g", "share.heartbeat.interval.ms", "250")
    assert beat(peer, "g", "ana", 1).heartbeat_interval_ms == 250
    assert beat(peer, "other", "ana", 0, name).heartbeat_interval_ms == 1_000


def test_so_does_a_consumer_group(peer: Peer, name: str) -> None:
    create(peer, name)
    joining = ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="ana",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )
    assert peer.ask(joining).heartbeat_interval_ms == 700
    configure(peer, "c", "consumer.heartbeat.interval.ms", "250")
    assert peer.ask(joining).heartbeat_interval_ms == 250


def test_a_broker_that_restarts_knows_its_members(tmp_path: Path, name: str) -> None:
    with running(tmp_path) as broker, Peer(broker) as peer:
        create(peer, name)
        epoch = beat(peer, "g", "ana", 0, name).member_epoch
    with running(tmp_path) as broker, Peer(broker) as peer:
        assert beat(peer, "g", "ana", epoch).error_code == 0
        assert beat(peer, "g", "ben", epoch).error_code == 25
