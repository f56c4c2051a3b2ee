"""What Kafka answers about groups in corners that its clients may come to; compared with Kafka's own answers by
`python -m tests.interop.beside_kafka`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.api.kafka.allowed import CLUSTER, GROUP, NOT_ASKED, TOPIC
from millpond.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millpond.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest
from millpond.protocol.messages.describe_groups import DescribeGroupsRequest
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest
from millpond.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millpond.protocol.messages.list_groups import ListGroupsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millpond.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millpond.protocol.messages.sync_group import SyncGroupRequest
from tests.api.asking import create
from tests.api.brokers import Answer, Peer, RunningBroker, running

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory: Path = tmp_path_factory.mktemp("broker")
    with running(
        directory,
        offsets_topic_num_partitions="1",
        group_max_size="2",
        group_consumer_max_size="1",
        group_initial_rebalance_delay_ms="0",
    ) as started:
        started.do(lambda node: node.groups.make_place())
        yield started


def joining(group: str, **how: Any) -> ConsumerGroupHeartbeatRequest:  # noqa: ANN401 - any field
    fields = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": [], **how}
    return ConsumerGroupHeartbeatRequest(**{"group_id": group, "member_id": MEMBER, "member_epoch": 0, **fields})


def join(peer: Peer, group: str, member: str = "") -> Answer:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, member_id=member, protocol_type="consumer", protocols=protocols
    )
    request.rebalance_timeout_ms = 30_000
    return peer.ask(request)


@pytest.mark.parametrize(
    "how",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"topic_partitions": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_a_heartbeat_that_no_group_could_take_is_invalid_and_names_nobody(
    peer: Peer, name: str, how: dict[str, Any]
) -> None:
    answer = peer.ask(joining(name, **how))
    assert (answer.error_code, answer.member_id, answer.assignment) == (42, None, None)


def test_groups_are_no_larger_than_the_broker_allows(peer: Peer, name: str) -> None:
    assert peer.ask(joining(name)).error_code == 0
    refused = peer.ask(joining(name, member_id="AAAAAAAAAAAAAAAAAAAAAg"))
    assert (refused.error_code, refused.member_id) == (81, None)


def test_an_id_that_was_only_promised_takes_nobodys_place(peer: Peer, name: str) -> None:
    first = join(peer, name)
    other = join(peer, name)
    assert [first.error_code, other.error_code] == [79, 79]
    assert join(peer, name, first.member_id).generation_id == 1, "it does not wait for who may never come"
    assert [join(peer, name).error_code for _ in range(2)] == [79, 81], "but there are not more promises than places"


def test_a_sync_names_its_protocol_where_it_can(peer: Peer, name: str) -> None:
    member = join(peer, name, join(peer, name).member_id).member_id
    request = SyncGroupRequest(group_id=name, generation_id=1, member_id=member)
    assert peer.ask(request, 5).error_code == 23
    assert peer.ask(request, 4).error_code == 0


def test_a_stale_commit_is_told_so_in_words_its_version_knows(peer: Peer, name: str) -> None:
    create(peer, name)
    peer.ask(joining(name, subscribed_topic_names=[name]))
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=0,
        member_id=MEMBER,
        topics=[OffsetCommitRequestTopic(name=name, partitions=[part])],
    )
    codes = [peer.ask(request, version).topics[0].partitions[0].error_code for version in (8, 9)]
    assert codes == [35, 113]


def test_offsets_of_topics_that_are_not_there_cannot_be_deleted(peer: Peer, name: str) -> None:
    peer.ask(joining(name))
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="no-such", partitions=parts)]
    answer = peer.ask(OffsetDeleteRequest(group_id=name, topics=topics))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 3)
    refused = peer.ask(OffsetDeleteRequest(group_id="", topics=topics))
    assert (refused.error_code, refused.topics) == (24, [])


def test_groups_are_listed_and_described_in_kafkas_words(peer: Peer, name: str) -> None:
    peer.ask(joining(name))
    listed = {each.group_id: each.group_type for each in peer.ask(ListGroupsRequest()).groups}
    assert listed[name] == "consumer"
    request = ConsumerGroupDescribeRequest(group_ids=[name, ""], include_authorized_operations=True)
    known, unnamed = peer.ask(request).groups
    assert (known.members[0].subscribed_topic_regex, known.authorized_operations) == ("", GROUP)
    assert (unnamed.error_code, unnamed.authorized_operations) == (24, NOT_ASKED)


def test_everything_is_allowed_and_said_only_where_it_is_asked(peer: Peer, name: str) -> None:
    create(peer, name)
    topics = [MetadataRequestTopic(name=name)]
    asked = peer.ask(MetadataRequest(topics=topics, include_topic_authorized_operations=True))
    assert asked.topics[0].topic_authorized_operations == TOPIC
    assert peer.ask(MetadataRequest(topics=topics)).topics[0].topic_authorized_operations == NOT_ASKED
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert peer.ask(cluster).cluster_authorized_operations == CLUSTER
    member = join(peer, name, join(peer, name).member_id).member_id
    described = peer.ask(DescribeGroupsRequest(groups=[name], include_authorized_operations=True)).groups[0]
    assert (described.members[0].member_id, described.authorized_operations) == (member, GROUP)


def test_a_kind_of_coordinator_that_there_is_not_is_invalid(peer: Peer) -> None:
    answer = peer.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]))
    assert [each.error_code for each in answer.coordinators] == [42]


def test_who_asks_for_a_coordinator_of_transactions_is_refused_for_good_and_told_why(peer: Peer) -> None:
    """And is not told to ask again: clients would, until their time is up."""
    (found,) = peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])).coordinators
    assert (found.error_code, found.node_id) == (53, -1)
    assert "transactions are not served" in (found.error_message or "")


def test_a_name_that_comes_twice_is_answered_once(peer: Peer, name: str) -> None:
    create(peer, name)
    topics = [MetadataRequestTopic(name=name)] * 2
    assert len(peer.ask(MetadataRequest(topics=topics)).topics) == 1
