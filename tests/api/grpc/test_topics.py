"""The Topics service."""

from base64 import b64decode

import grpc

from millpond.api.grpc.proto.millpond.v1 import topics_pb2 as wire
from millpond.client.blocking import Admin
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused


def test_a_topic_is_created_described_listed_and_deleted(door: Door) -> None:
    wanted = wire.CreateTopicRequest(name="life", partitions=3, configs={"retention.ms": "60000"})
    created = door.topics.CreateTopic(wanted, timeout=SECONDS_MAX)
    assert (created.name, [each.partition for each in created.partitions]) == ("life", [0, 1, 2])
    assert (created.partitions[0].leader, list(created.partitions[0].in_sync)) == (1, [1])
    assert created.configs["retention.ms"] == wire.TopicConfig(value="60000", is_default=False)
    assert created.configs["cleanup.policy"].is_default
    assert door.topics.DescribeTopic(wire.DescribeTopicRequest(name="life"), timeout=SECONDS_MAX) == created
    listed = door.topics.ListTopics(wire.ListTopicsRequest(), timeout=SECONDS_MAX).topics
    assert wire.TopicSummary(name="life", partitions=3, replication_factor=1) in listed
    door.topics.DeleteTopic(wire.DeleteTopicRequest(name="life"), timeout=SECONDS_MAX)
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic_or_partition", naming="life"):
        door.topics.DescribeTopic(wire.DescribeTopicRequest(name="life"), timeout=SECONDS_MAX)


def test_a_topics_id_is_written_as_kafkas_tools_write_it(door: Door, broker: InProcessBroker) -> None:
    made = door.topics.CreateTopic(wire.CreateTopicRequest(name="known-by-id"), timeout=SECONDS_MAX)
    with Admin(broker.bootstrap) as admin:
        assert b64decode(made.topic_id + "==", altchars=b"-_") == admin.describe_topic("known-by-id").topic_id
    assert len(made.topic_id) == 22


def test_what_cannot_be_created_is_refused(door: Door) -> None:
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for wish, code in (
        (wire.CreateTopicRequest(name="a b"), "invalid_topic_name"),
        (wire.CreateTopicRequest(name="zero", partitions=0), "invalid_field"),
        (wire.CreateTopicRequest(name="copies", replication_factor=3), "invalid_replication_factor"),
        (wire.CreateTopicRequest(name="odd", configs={"retention.ms": "soon"}), "invalid_setting"),
    ):
        with refused(invalid, code):
            door.topics.CreateTopic(wish, timeout=SECONDS_MAX)
    door.topics.CreateTopic(wire.CreateTopicRequest(name="twice"), timeout=SECONDS_MAX)
    with refused(grpc.StatusCode.ALREADY_EXISTS, "topic_already_exists", naming="twice"):
        door.topics.CreateTopic(wire.CreateTopicRequest(name="twice"), timeout=SECONDS_MAX)
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic_or_partition"):
        door.topics.DeleteTopic(wire.DeleteTopicRequest(name="nowhere"), timeout=SECONDS_MAX)
