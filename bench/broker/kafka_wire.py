"""Kafka's protocol for the raw driver: topics made, and frames encoded beforehand that Millpond and Kafka both take.

Invariant: every answer is looked at as far as its error code; one that is not zero ends the run.
"""

import socket
import struct
import time

from bench.broker.driving import MESSAGE, connect, receive, repeated
from bench.broker.processes import NotReady
from millpond.model.ids import TimestampMs
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame, response_header_version
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.records import encode_values

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 5
TOPIC_ALREADY_EXISTS = 36
_LENGTH = struct.Struct("!i")
_FETCHED_AT_ONCE = 256
"""So many places are read in turns."""


class KafkaConversation:
    def __init__(self, port: int, requests: bytes, request_bytes: int, *, error_at: int) -> None:
        """`error_at` is where in an answer, its length included, the error code of its one partition is."""
        self.socket = connect(port)
        self.requests = requests
        self.request_bytes = request_bytes
        self._error_at = error_at
        self._rest = b""

    def answered(self, data: bytes) -> int:
        data = self._rest + data if self._rest else data
        position = count = 0
        error_at = self._error_at
        while len(data) - position >= _LENGTH.size:
            end = position + _LENGTH.size + _LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            code = data[position + error_at : position + error_at + 2]
            if code != b"\0\0":
                raise NotReady(f"error {int.from_bytes(code, 'big', signed=True)}")
            position = end
            count += 1
        self._rest = data[position:]
        return count


def producing(port: int, topic: str, *, records: int = 1) -> KafkaConversation:
    """One batch a request, kept as the topic says before it is answered."""
    batch = encode_values([MESSAGE] * records, timestamp=TimestampMs(time.time_ns() // 1_000_000))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    frame = frame_of(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)
    # length 4, correlation 4, tags 1; then one topic 1, its name 1 and more, one partition 1, its number 4
    return KafkaConversation(port, repeated(frame), len(frame), error_at=4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4)


def fetching(port: int, topic: str, *, records: int, wait_ms: int = 500) -> KafkaConversation:
    """One batch a request, from places all over the topic, whose batches have one record each."""
    frames = []
    for number in range(_FETCHED_AT_ONCE):
        offset = number * records // _FETCHED_AT_ONCE
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])]
        )
        frames.append(frame_of(request, FETCH_VERSION))
    assert len({len(frame) for frame in frames}) == 1
    # length 4, correlation 4, tags 1, throttle 4, error 2, session 4; then as above
    error_at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(topic) + 1 + 4
    return KafkaConversation(port, b"".join(frames), len(frames[0]), error_at=error_at)


def make_topic(port: int, name: str, configs: dict[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    with connect(port) as connection:
        response = _created(connection, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    code = response.topics[0].error_code
    if code not in (0, TOPIC_ALREADY_EXISTS):
        raise NotReady(f"error {code}: {response.topics[0].error_message}")
    _check_led(port, name)


def _check_led(port: int, topic: str) -> None:
    """Kafka answers that a topic is made a moment before its partitions can be used."""
    conversation = fetching(port, topic, records=1, wait_ms=0)
    with conversation.socket as connection:
        connection.sendall(conversation.requests[: conversation.request_bytes])
        while not conversation.answered(receive(connection)):
            pass


def _created(connection: socket.socket, request: CreateTopicsRequest) -> CreateTopicsResponse:
    version = CREATE_TOPICS_VERSION
    connection.sendall(frame_of(request, version))
    data = bytearray()
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        data += receive(connection)
    frame = memoryview(bytes(data))[_LENGTH.size :]
    _, position = parse_response_header(frame, header_version=response_header_version(request.api_key, version))
    return decode(CreateTopicsResponse, frame, version, position)[0]


def frame_of(request: Message, version: int) -> bytes:
    return b"".join(request_frame(request, version, correlation_id=1, client_id="bench"))
