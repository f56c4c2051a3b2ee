"""Which topics a client is told of, and how it may ask for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.api.asking import create
from tests.api.brokers import NODE_ID, Answer, Peer, RunningBroker, running

EVERY_VERSION = MetadataRequest.versions


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One with two topics, and no others."""
    directory: Path = tmp_path_factory.mktemp("broker")
    with running(directory, auto_create_topics_enable="false") as started:
        with Peer(started) as peer:
            create(peer, "b", partitions=2)
            create(peer, "a")
        yield started


def names(answer: Answer) -> list[str | None]:
    return [each.name for each in answer.topics]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_all_topics_are_asked_for_by_nothing(peer: Peer, version: int) -> None:
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert names(peer.ask(everything, version)) == ["a", "b"]
    assert names(peer.ask(MetadataRequest(topics=[]), version)) == (["a", "b"] if version == 0 else [])


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_topic_is_told_with_its_leader_and_replicas(peer: Peer, broker: RunningBroker, version: int) -> None:
    answer = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="b")]), version)
    (node,) = answer.brokers
    (topic,) = answer.topics
    assert (node.node_id, node.host, node.port) == (NODE_ID, "127.0.0.1", broker.port)
    assert [(each.partition_index, each.leader_id, each.error_code) for each in topic.partitions] == [
        (0, NODE_ID, 0),
        (1, NODE_ID, 0),
    ]
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [NODE_ID]
    assert (topic.topic_id != NO_ID) == (version >= 10)
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    assert answer.controller_id == (NODE_ID if version >= 1 else -1)


def test_a_topic_is_asked_for_by_its_id(peer: Peer) -> None:
    by_name = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")])).topics[0]
    by_id = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=by_name.topic_id)])).topics[0]
    assert by_id == by_name
    unknown = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"\1" * 16)])).topics[0]
    assert (unknown.error_code, unknown.topic_id, unknown.partitions) == (100, b"\1" * 16, [])


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_topics_that_are_not_there_are_answered_beside_those_that_are(peer: Peer, version: int) -> None:
    asked = [MetadataRequestTopic(name="not-there"), MetadataRequestTopic(name="a")]
    answer = peer.ask(MetadataRequest(topics=asked), version)
    assert [(each.name, each.error_code) for each in answer.topics] == [("not-there", 3), ("a", 0)]


def test_a_transactional_producer_is_refused_while_there_are_no_transactions(peer: Peer) -> None:
    answer = peer.ask(InitProducerIdRequest(transactional_id="t"))
    assert answer.error_code == 53
    assert answer.producer_id == -1
