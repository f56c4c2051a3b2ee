"""Requests that decode and ask for the absurd are answered as Kafka answers them, and disturb nobody."""

import socket
import struct
import warnings

import pytest

from millpond.protocol.messages.headers import request_frame
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.api.asking import batch, create, produce, produce_request
from tests.api.brokers import Peer, RunningBroker

INT64_MAX = 2**63 - 1
UNKNOWN_TOPIC = 3
UNKNOWN_TOPIC_ID = 100


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_an_unknown_topic_id_is_told_in_every_version_that_can_ask_for_one(peer: Peer, version: int) -> None:
    (topic,) = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\7" * 16, name=None)]), version).topics
    assert (topic.error_code, topic.name) == (UNKNOWN_TOPIC_ID, None if version >= 12 else "")


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_name_as_long_as_a_name_can_be_is_refused_in_words_that_fit(peer: Peer, version: int) -> None:
    answer = produce(peer, "x" * 32_767, batch(b"v"), version=version)
    assert answer.error_code == UNKNOWN_TOPIC


def test_an_offset_kept_for_longer_than_there_is_time_is_kept(peer: Peer, name: str) -> None:
    create(peer, name)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=INT64_MAX, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=name, partitions=[part])]
    asked = OffsetCommitRequest(group_id="patient", retention_time_ms=INT64_MAX, topics=topics)
    assert peer.ask(asked, 2).topics[0].partitions[0].error_code == 0


def test_a_client_that_hangs_up_at_once_leaves_no_warning(broker: RunningBroker, name: str) -> None:
    """Both frames come in one read: the second, whose length cannot be, ends the connection in the same turn."""
    with Peer(broker) as peer:
        create(peer, name)
    frame = b"".join(request_frame(produce_request(name, batch(b"v")), 9, correlation_id=1, client_id=None))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with socket.create_connection(("127.0.0.1", broker.port)) as gone:
            gone.sendall(frame + struct.pack("!i", -1))
            while gone.recv(1000):
                pass
        broker.wait_until(lambda node: any(each.at.topic == name and each.high_watermark for each in node.partitions))
    assert [each for each in told if "never awaited" in str(each.message)] == []
