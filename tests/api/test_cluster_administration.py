"""What administrators ask of a cluster, asked of a broker that is alone: refusals, and answers that change nothing."""

import pytest

from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest
from millpond.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest
from millpond.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from millpond.protocol.messages.metadata import MetadataRequest
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from millpond.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.api.asking import create
from tests.api.brokers import NODE_ID, Peer


@pytest.mark.parametrize(("replicas", "code"), [([NODE_ID], 0), ([NODE_ID, 9], 39), ([], 39), (None, 85)])
def test_a_partition_moves_only_where_there_are_brokers(
    peer: Peer, name: str, replicas: list[int] | None, code: int
) -> None:
    create(peer, name)
    part = ReassignablePartition(partition_index=0, replicas=replicas)
    asked = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[part])])
    (topic,) = peer.ask(asked).responses
    (answer,) = topic.partitions
    assert (topic.name, answer.partition_index, answer.error_code) == (name, 0, code)
    assert (answer.error_message is None) == (code == 0)
    assert peer.ask(ListPartitionReassignmentsRequest(topics=None)).topics == []


def test_the_number_of_replicas_can_be_held(peer: Peer, name: str) -> None:
    create(peer, name)
    part = ReassignablePartition(partition_index=7, replicas=[NODE_ID])
    topics = [ReassignableTopic(name=name, partitions=[part])]
    answer = peer.ask(AlterPartitionReassignmentsRequest(topics=topics, allow_replication_factor_change=False))
    assert answer.allow_replication_factor_change is False
    assert answer.responses[0].partitions[0].error_code == 3


def test_a_broker_that_is_up_or_unknown_is_not_forgotten(peer: Peer) -> None:
    assert peer.ask(UnregisterBrokerRequest(broker_id=NODE_ID)).error_code == 42
    assert peer.ask(UnregisterBrokerRequest(broker_id=9)).error_code == 102


def test_who_votes_is_checked(peer: Peer) -> None:
    assert peer.ask(AddRaftVoterRequest(voter_id=NODE_ID)).error_code == 126
    assert peer.ask(AddRaftVoterRequest(voter_id=9)).error_code == 42
    assert peer.ask(RemoveRaftVoterRequest(voter_id=9)).error_code == 127
    assert peer.ask(RemoveRaftVoterRequest(voter_id=NODE_ID)).error_code == 42
    assert peer.ask(RemoveRaftVoterRequest(voter_id=9, cluster_id="another")).error_code == 104


def test_the_controller_is_named(peer: Peer) -> None:
    described = peer.ask(DescribeClusterRequest(include_fenced_brokers=True))
    assert described.controller_id == peer.ask(MetadataRequest(topics=[])).controller_id == NODE_ID
    assert [(each.broker_id, each.is_fenced) for each in described.brokers] == [(NODE_ID, False)]
