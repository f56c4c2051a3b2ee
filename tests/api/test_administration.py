"""What administrators are answered: topics, partitions, settings, producers, sizes; and what they are refused."""

import pytest

from millpond.broker.node import Node
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.messages import describe_quorum
from millpond.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millpond.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from millpond.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from millpond.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest
from millpond.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millpond.protocol.messages.describe_producers import DescribeProducersRequest
from millpond.protocol.messages.describe_producers import TopicRequest as ProducersOf
from millpond.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from millpond.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.api.asking import batch, create, fetch, list_offset, produce, values
from tests.api.brokers import NODE_ID, Answer, Peer, RunningBroker


def topic_named(peer: Peer, name: str) -> Answer:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return peer.ask(request).topics[0]


# Topics


def create_topics(peer: Peer, *topics: CreatableTopic, validate_only: bool = False) -> list[tuple[str, int]]:
    answer = peer.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only))
    return [(each.name, each.error_code) for each in answer.topics]


def test_each_topic_of_a_request_is_decided_for_itself(peer: Peer, name: str) -> None:
    wrong_setting = CreatableTopicConfig(name="retention.ms", value="soon")
    answers = create_topics(
        peer,
        CreatableTopic(name=name, num_partitions=3, replication_factor=1),
        CreatableTopic(name="no topic!", num_partitions=1, replication_factor=1),
        CreatableTopic(name=f"{name}-a", num_partitions=0, replication_factor=1),
        CreatableTopic(name=f"{name}-b", num_partitions=1, replication_factor=2),
        CreatableTopic(name=f"{name}-c", num_partitions=1, replication_factor=1, configs=[wrong_setting]),
        CreatableTopic(name=f"{name}-d", num_partitions=-1, replication_factor=-1),
    )
    assert [code for _, code in answers] == [0, 17, 37, 38, 40, 0]
    assert len(topic_named(peer, name).partitions) == 3
    assert len(topic_named(peer, f"{name}-d").partitions) == 1
    assert create_topics(peer, CreatableTopic(name=name, num_partitions=1, replication_factor=1)) == [(name, 36)]


def test_a_topic_that_is_only_tried_is_not_there(peer: Peer, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1)
    assert create_topics(peer, topic, validate_only=True) == [(name, 0)]
    assert topic_named(peer, name).error_code == 3


def test_a_topic_is_deleted_by_name_or_by_id_and_its_records_with_it(peer: Peer, name: str) -> None:
    topic_id = create(peer, name)
    produce(peer, name, batch(b"old"))
    (gone,) = peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])).responses
    assert (gone.error_code, gone.name) == (0, name)
    assert topic_named(peer, name).error_code == 3
    assert create(peer, name) != topic_id
    assert values(fetch(peer, name)) == []
    assert peer.ask(DeleteTopicsRequest(topic_names=[name]), 5).responses[0].error_code == 0


def test_what_is_not_there_is_not_deleted(peer: Peer, name: str) -> None:
    states = [DeleteTopicState(name=name), DeleteTopicState(name=None, topic_id=b"\1" * 16)]
    answers = peer.ask(DeleteTopicsRequest(topics=states)).responses
    assert [each.error_code for each in answers] == [3, 100]
    assert "AQEBAQEBAQEBAQEBAQEBAQ" in answers[1].error_message


def test_the_quorum_of_one_broker_is_itself_and_caught_up(peer: Peer) -> None:
    (topic,) = peer.ask(describe_quorum_request(describe_quorum.METADATA_TOPIC)).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
    assert partition.leader_epoch > 0
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, partition.high_watermark)
    assert voter.replica_directory_id != bytes(16)
    assert partition.observers == []


def test_nothing_else_has_a_quorum(peer: Peer, name: str) -> None:
    create(peer, name)
    (topic,) = peer.ask(describe_quorum_request(name)).topics
    assert topic.partitions[0].error_code == 3
    assert f"{name}-0 has no quorum" in topic.partitions[0].error_message


def describe_quorum_request(topic: str) -> describe_quorum.DescribeQuorumRequest:
    partition = describe_quorum.PartitionRequest(partition_index=0)
    return describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.TopicRequest(topic_name=topic, partitions=[partition])]
    )


def test_the_cluster_is_this_broker(broker: RunningBroker, peer: Peer) -> None:
    answer = peer.ask(DescribeClusterRequest())
    assert [(each.broker_id, each.port) for each in answer.brokers] == [(NODE_ID, broker.port)]
    assert answer.controller_id == NODE_ID
    assert [peer.ask(DescribeClusterRequest(endpoint_type=kind)).error_code for kind in (1, 2, 9)] == [0, 114, 115]


# Partitions


def grow(peer: Peer, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
    answer = peer.ask(CreatePartitionsRequest(topics=list(topics), validate_only=validate_only))
    return [each.error_code for each in answer.results]


def test_a_topic_grows_and_its_new_partitions_take_records(peer: Peer, name: str) -> None:
    create(peer, name)
    assert grow(peer, CreatePartitionsTopic(name=name, count=3, assignments=None), validate_only=True) == [0]
    assert len(topic_named(peer, name).partitions) == 1
    assert grow(peer, CreatePartitionsTopic(name=name, count=3, assignments=None)) == [0]
    assert produce(peer, name, batch(b"x"), partition=2).error_code == 0
    placed = [CreatePartitionsAssignment(broker_ids=[NODE_ID])]
    assert grow(peer, CreatePartitionsTopic(name=name, count=4, assignments=placed)) == [0]
    assert len(topic_named(peer, name).partitions) == 4


def test_a_topic_cannot_shrink_and_strangers_hold_no_replicas(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)
    nowhere = [CreatePartitionsAssignment(broker_ids=[99])]
    assert grow(peer, CreatePartitionsTopic(name=name, count=1, assignments=None)) == [37]
    assert grow(peer, CreatePartitionsTopic(name=name, count=2, assignments=None)) == [37]
    assert grow(peer, CreatePartitionsTopic(name=name, count=3, assignments=nowhere)) == [39]
    assert grow(peer, CreatePartitionsTopic(name="not-there", count=3, assignments=None)) == [3]


def pages(peer: Peer, names: list[str], limit: int) -> list[list[tuple[str, int]]]:
    found, cursor = [], None
    while True:
        topics = [TopicRequest(name=name) for name in names]
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        answer = peer.ask(request)
        found.append([(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions])
        cursor = answer.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 100])
def test_partitions_come_in_pages_each_once_and_in_order(peer: Peer, name: str, limit: int) -> None:
    names = [f"{name}-a", f"{name}-b", f"{name}-c"]
    for number, each in enumerate(names, start=1):
        create(peer, each, partitions=number)
    found = pages(peer, [*reversed(names)], limit)
    assert [each for page in found for each in page] == [
        (each, part) for number, each in enumerate(names, start=1) for part in range(number)
    ]
    assert max(map(len, found)) <= limit
    everything = [each for page in pages(peer, [], limit) for each in page]
    assert [each for each in everything if each[0] in names] == [each for page in found for each in page]


def test_a_topic_that_is_not_there_is_described_as_such(peer: Peer, name: str) -> None:
    topic_id = create(peer, name)
    topics = [TopicRequest(name=each) for each in (name, f"{name}-not", "no topic!")]
    answer = peer.ask(DescribeTopicPartitionsRequest(topics=topics))
    assert [(each.name, each.error_code, each.topic_id) for each in answer.topics] == [
        ("no topic!", 17, NO_ID),
        (name, 0, topic_id),
        (f"{name}-not", 3, NO_ID),
    ]


def test_a_cursor_nobody_gave_out_does_no_harm(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)

    def ask(cursor: Cursor) -> Answer:
        return peer.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], cursor=cursor, response_partition_limit=-5)
        )

    assert ask(Cursor(topic_name=name, partition_index=-1)).topics[0].error_code == 42
    assert ask(Cursor(topic_name=name, partition_index=2**31 - 1)).topics[0].partitions == []
    assert ask(Cursor(topic_name="zzz", partition_index=0)).topics == []
    assert len(ask(Cursor(topic_name="", partition_index=0)).topics[0].partitions) == 1


def test_no_election_is_needed(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)
    asked = [TopicPartitions(topic=name, partitions=[0, 1, 1, 7]), TopicPartitions(topic="not-there", partitions=[0])]
    for kind in (0, 1):
        answer = peer.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked))
        results = [
            (topic.topic, part.partition_id, part.error_code)
            for topic in answer.replica_election_results
            for part in topic.partition_result
        ]
        assert results == [(name, 0, 84), (name, 1, 84), (name, 7, 3), ("not-there", 0, 3)]
    assert peer.ask(ElectLeadersRequest(topic_partitions=None)).replica_election_results == []
    assert peer.ask(ElectLeadersRequest(election_type=9, topic_partitions=asked)).error_code == 42


# Records


def delete_before(peer: Peer, name: str, offset: int, *, partition: int = 0) -> tuple[int, int]:
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[part])], timeout_ms=1000)
    result = peer.ask(request).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_deleted_records_are_gone_and_offsets_go_on(peer: Peer, name: str) -> None:
    create(peer, name)
    for number in range(5):
        produce(peer, name, batch(b"%d" % number))
    assert delete_before(peer, name, 2) == (0, 2)
    assert fetch(peer, name, 1).error_code == 1
    assert values(fetch(peer, name, 2)) == [b"2", b"3", b"4"]
    assert list_offset(peer, name, -2).offset == 2
    assert delete_before(peer, name, 1) == (0, 2)  # the start does not move back
    assert delete_before(peer, name, -1) == (0, 5)
    assert produce(peer, name, batch(b"next")).base_offset == 5
    assert values(fetch(peer, name, 5)) == [b"next"]


def test_what_is_not_there_yet_or_must_stay_is_not_deleted(peer: Peer, name: str) -> None:
    create(peer, name)
    create(peer, f"{name}-compacted", cleanup_policy="compact")
    produce(peer, name, batch(b"x"))
    assert delete_before(peer, name, 2) == (1, -1)
    assert delete_before(peer, name, -2) == (1, -1)
    assert delete_before(peer, name, 0, partition=9) == (3, -1)
    assert delete_before(peer, "not-there", 0) == (3, -1)
    assert delete_before(peer, f"{name}-compacted", 0) == (44, -1)
    assert values(fetch(peer, name)) == [b"x"]


def test_records_that_no_consumer_can_see_yet_stay(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)
    for content in (b"seen", b"unseen"):
        produce(peer, name, batch(content))

    async def hide_the_last(node: Node) -> None:
        partition = node.partitions.named(name, 0)
        assert partition is not None
        partition.high_watermark = Offset(1)

    broker.do(hide_the_last)
    assert delete_before(peer, name, 2) == (1, -1)
    assert delete_before(peer, name, -1) == (0, 1)


def test_records_of_internal_topics_stay(peer: Peer) -> None:
    peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]))
    assert delete_before(peer, "__consumer_offsets", 0) == (17, -1)


def test_the_size_of_each_partition_is_told(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)
    records = batch(b"x")
    produce(peer, name, records)

    def sizes(topics: list[DescribableLogDirTopic] | None) -> dict[tuple[str, int], int]:
        (directory,) = peer.ask(DescribeLogDirsRequest(topics=topics)).results
        assert directory.log_dir
        return {
            (topic.name, part.partition_index): part.partition_size
            for topic in directory.topics
            for part in topic.partitions
        }

    expected = {(name, 0): len(records), (name, 1): 0}
    asked = [DescribableLogDirTopic(topic=name, partitions=[0, 1, 2])]
    assert sizes(asked) == expected
    assert sizes(None).items() >= expected.items()
    assert sizes([]) == {}


def test_producers_are_described_by_their_newest_batch(peer: Peer, name: str) -> None:
    create(peer, name)
    for sequence in (0, 2):
        who = {"producer_id": ProducerId(7000), "producer_epoch": ProducerEpoch(3), "base_sequence": Sequence(sequence)}
        produce(peer, name, batch(b"a", b"b", timestamp=TimestampMs(1000 + sequence), **who))
    request = DescribeProducersRequest(topics=[ProducersOf(name=name, partition_indexes=[0, 5])])
    known, unknown = peer.ask(request).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7000, 3, 3)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1002, -1)
    assert unknown.error_code == 3
