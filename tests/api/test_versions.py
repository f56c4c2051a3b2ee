"""Every API in every version it is served in, and what happens to a peer that asks for anything else."""

import struct
from collections.abc import Callable

import pytest

from millpond.api.kafka.served import SERVED
from millpond.protocol.messages import (
    alter_configs,
    describe_quorum,
    describe_topic_partitions,
    incremental_alter_configs,
)
from millpond.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millpond.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millpond.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from millpond.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest
from millpond.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millpond.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from millpond.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from millpond.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from millpond.protocol.messages.fields import NO_ID, Message
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.list_config_resources import ListConfigResourcesRequest
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.api.asking import BY_NAME, batch, create, fetch_request, produce, produce_request
from tests.api.brokers import NODE_ID, Answer, Peer, RunningBroker

Ask = Callable[[str, bytes, int], Message]
"""A plausible request about a topic with one record, from its name, its id and the version."""

PLAUSIBLE: dict[int, Ask] = {
    0: lambda name, topic_id, version: produce_request(name, batch(b"more"), topic_id=topic_id),
    1: lambda name, topic_id, version: fetch_request(name if version <= BY_NAME else "", 0, topic_id=topic_id),
    2: lambda name, topic_id, version: ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    ),
    3: lambda name, topic_id, version: MetadataRequest(topics=[MetadataRequestTopic(name=name)]),
    18: lambda name, topic_id, version: ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    19: lambda name, topic_id, version: CreateTopicsRequest(
        topics=[CreatableTopic(name=f"{name}-new", num_partitions=1, replication_factor=1)]
    ),
    20: lambda name, topic_id, version: DeleteTopicsRequest(
        topic_names=[name] if version < 6 else [],
        topics=[DeleteTopicState(name=name, topic_id=NO_ID)] if version >= 6 else [],
    ),
    21: lambda name, topic_id, version: DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])]
    ),
    22: lambda name, topic_id, version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    23: lambda name, topic_id, version: OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])]
    ),
    32: lambda name, topic_id, version: DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)]
    ),
    33: lambda name, topic_id, version: alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="retention.ms", value="1000")],
            )
        ]
    ),
    35: lambda name, topic_id, version: DescribeLogDirsRequest(topics=None),
    37: lambda name, topic_id, version: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None)]
    ),
    43: lambda name, topic_id, version: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=name, partitions=[0])]
    ),
    44: lambda name, topic_id, version: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", value="1000")],
            )
        ]
    ),
    55: lambda name, topic_id, version: describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.TopicRequest(
                topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionRequest(partition_index=0)]
            )
        ]
    ),
    45: lambda name, topic_id, version: AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=[NODE_ID])])]
    ),
    46: lambda name, topic_id, version: ListPartitionReassignmentsRequest(topics=None),
    60: lambda name, topic_id, version: DescribeClusterRequest(),
    61: lambda name, topic_id, version: DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0])]
    ),
    74: lambda name, topic_id, version: ListConfigResourcesRequest(),
    75: lambda name, topic_id, version: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name)]
    ),
}
NOT_NEEDED = 84
EVERY = [(key, version) for key in PLAUSIBLE for version in range(SERVED[key].version_min, SERVED[key].version_max + 1)]


def error_codes(answer: Answer) -> list[int]:
    """All there are in a response, at any depth."""
    codes: list[int] = []
    if isinstance(answer, list):
        return [code for each in answer for code in error_codes(each)]
    for field in getattr(answer, "__slots__", ()):
        value = getattr(answer, field)
        codes += [value] if field == "error_code" else error_codes(value)
    return codes


@pytest.mark.parametrize(("key", "version"), EVERY, ids=str)
def test_every_served_version_answers_a_plausible_request(peer: Peer, name: str, key: int, version: int) -> None:
    topic_id = create(peer, name)
    produce(peer, name, batch(b"first"))
    answer = peer.ask(PLAUSIBLE[key](name, topic_id, version), version)
    assert set(error_codes(answer)) <= ({0, NOT_NEEDED} if key == 43 else {0})
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0


NAMED = ApiVersionsRequest(client_software_name="a.b-c", client_software_version="1.0")


@pytest.mark.parametrize(("name", "number"), [("", "1"), ("a", ""), ("-", "1"), ("a", "one two")])
def test_a_client_says_which_it_is_in_letters_and_digits(peer: Peer, name: str, number: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    answer = peer.ask(request, 3)
    assert (answer.error_code, answer.api_keys) == (42, [])
    assert peer.ask(request, 2).error_code == 0, "before that, it says nothing"


def test_what_is_advertised_is_what_is_served(peer: Peer) -> None:
    advertised = {each.api_key: (each.min_version, each.max_version) for each in peer.ask(NAMED).api_keys}
    served = {key: (api.version_min, api.version_max) for key, api in SERVED.items()}
    assert advertised == {**served, 0: (0, served[0][1])}
    assert advertised.keys() >= PLAUSIBLE.keys()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(peer: Peer, version: int) -> None:
    body_nobody_knows = b"\0" + bytes(range(200, 220))  # behind the header's own tags
    peer.send_bytes(framed(struct.pack("!hhih", 18, version, 7, -1) + body_nobody_knows))
    frame = peer.receive_frame()
    answer, end = decode(ApiVersionsResponse, frame, 0, 4)
    assert bytes(frame[:4]) == struct.pack("!i", 7)
    assert end == len(frame)
    assert answer.error_code == 35
    assert {each.api_key for each in answer.api_keys} == SERVED.keys()
    assert peer.ask(NAMED, 3).error_code == 0  # the same connection goes on


def header(key: int, version: int) -> bytes:
    return struct.pack("!hhih", key, version, 1, -1)


def framed(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


OFFENCES = {
    "an API nobody has": framed(header(9999, 0)),
    "an API that is not served": framed(header(4, 0)),
    "a negative API": framed(header(-1, 0)),
    "a version too new": framed(header(3, 14) + b"\0\0"),
    "a version too old": framed(header(1, 3)),
    "a produce version that is advertised only": framed(header(0, 2)),
    "a negative version": framed(header(3, -1)),
    "an empty frame": framed(b""),
    "a header cut short": framed(b"\0\3\0"),
    "a client id beyond the frame": framed(struct.pack("!hhih", 3, 1, 1, 500)),
    "a client id that is not text": framed(struct.pack("!hhih", 3, 1, 1, 2) + b"\xff\xfe"),
    "a body cut short": framed(header(3, 1) + struct.pack("!ih", 1, 10) + b"abc"),
    "more topics than bytes": framed(header(3, 1) + struct.pack("!i", 2**31 - 1)),
    "garbage": framed(bytes(range(256)) * 4),
    "a negative frame length": struct.pack("!i", -2),
    "a frame of two gigabytes": struct.pack("!i", 2**31 - 1) + header(3, 1),
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("offence", OFFENCES)
def test_an_offender_is_closed_and_nobody_else_notices(broker: RunningBroker, peer: Peer, offence: str) -> None:
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
    with Peer(broker) as offender:
        offender.send_bytes(OFFENCES[offence])
        assert offender.wait_closed() == b""
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0


def test_what_was_asked_before_an_offence_is_answered(broker: RunningBroker) -> None:
    with Peer(broker) as offender:
        offender.send(DescribeClusterRequest(), 0)
        offender.send_bytes(OFFENCES["garbage"])
        assert offender.receive(60, 0).error_code == 0
        assert offender.wait_closed() == b""


def test_a_peer_that_leaves_in_the_middle_of_a_frame_disturbs_nobody(broker: RunningBroker, peer: Peer) -> None:
    with Peer(broker) as leaver:
        leaver.send_bytes(struct.pack("!i", 100) + header(3, 1))
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
