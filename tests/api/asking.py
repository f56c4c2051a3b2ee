"""The questions most tests ask of a broker, in few words."""

import time
from typing import Any

from millpond.model.ids import TimestampMs
from millpond.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.records import decode_batch, encode_values, iter_batches
from tests.api.brokers import Answer, Peer

Option = Any
"""A field of the request, by its name."""

BY_NAME = 12
"""The last version of Produce and Fetch that names topics by name."""


def now_ms() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)


def batch(*values: bytes, **options: Option) -> bytes:
    return encode_values(values, timestamp=options.pop("timestamp", now_ms()), **options)


def create(peer: Peer, name: str, *, partitions: int = 1, **configs: str) -> bytes:
    """Returns the topic's id. Settings have `_` for each dot."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = peer.ask(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == 0, result.error_message
    topic_id: bytes = result.topic_id
    return topic_id


def produce_request(
    name: str, records: bytes | None, *, acks: int = -1, partition: int = 0, topic_id: bytes = NO_ID
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def produce(peer: Peer, name: str, records: bytes | None, *, version: int = BY_NAME, **options: Option) -> Answer:
    """The one partition's answer."""
    response = peer.ask(produce_request(name, records, **options), version)
    return response.responses[0].partition_responses[0]


def fetch_request(name: str, offset: int, **options: Option) -> FetchRequest:
    part = FetchPartition(
        partition=options.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=options.pop("current_leader_epoch", -1),
    )
    topic = FetchTopic(topic=name, topic_id=options.pop("topic_id", NO_ID), partitions=[part])
    return FetchRequest(topics=[topic], **{"max_wait_ms": 0, "min_bytes": 1, **options})


def fetch(peer: Peer, name: str, offset: int = 0, *, version: int = BY_NAME, **options: Option) -> Answer:
    """The one partition's answer."""
    response = peer.ask(fetch_request(name, offset, **options), version)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def values(answer: Answer) -> list[bytes | None]:
    """Of all records in a partition's answer."""
    return [
        record.value
        for position, _ in iter_batches(answer.records or b"")
        for record in decode_batch(answer.records, position)
    ]


def list_offset(peer: Peer, name: str, timestamp: int, *, epoch: int = -1) -> Answer:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part])])
    return peer.ask(request).topics[0].partitions[0]
