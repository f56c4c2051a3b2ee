"""Requests that decode and ask for the absurd are answered as Kafka answers them, and disturb nobody."""

import socket
import struct
import warnings
from pathlib import Path

import pytest

from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.headers import request_frame
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millpond.protocol.records import NewRecord, encode_batch
from tests.api.asking import BY_NAME, batch, create, now_ms, produce, produce_request
from tests.api.brokers import Peer, RunningBroker, running

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
INVALID_TOPIC = 17
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


def test_nobody_writes_to_internal_topics(peer: Peer) -> None:
    """What stands there is read at the next start."""
    peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS)]))
    forged = encode_batch([NewRecord(b"v", key=b"\0\1\0\3cut", timestamp=now_ms())])
    assert produce(peer, CONSUMER_OFFSETS, forged).error_code == INVALID_TOPIC


def test_a_fetch_is_answered_with_no_more_than_the_broker_allows(tmp_path: Path, name: str) -> None:
    with running(tmp_path, fetch_max_bytes="10000") as broker, Peer(broker) as peer:
        create(peer, name)
        for _ in range(5):
            produce(peer, name, batch(bytes(3000)))
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=INT32_MAX)
        topics = [FetchTopic(topic=name, partitions=[part] * 20)]
        asked = FetchRequest(max_wait_ms=0, min_bytes=INT32_MAX, max_bytes=INT32_MAX, topics=topics)
        answer = peer.ask(asked, BY_NAME)
        assert 0 < sum(len(each.records or b"") for each in answer.responses[0].partitions) <= 10_000


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
