"""kafka-python's admin client, from a topic's birth to its end."""

import warnings
from collections.abc import Iterator

import pytest

from tests.api.brokers import NODE_ID, RunningBroker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka import KafkaProducer, TopicPartition
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
    from kafka.errors import (
        InvalidPartitionsError,
        InvalidTopicError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


def create(admin: KafkaAdminClient, name: str, partitions: int = 1) -> None:
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})


def fill(broker: RunningBroker, name: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address)
    sent = [producer.send(name, b"%d" % number, partition=0) for number in range(count)]
    producer.flush()
    assert [each.get(timeout=10).offset for each in sent] == list(range(count))
    producer.close()


def test_topics_are_created_listed_described_and_deleted(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name, partitions=2)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2
    paged = admin.describe_topic_partitions([name], response_partition_limit=1)
    assert paged["next_cursor"] == {"topic_name": name, "partition_index": 1}
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_topics_that_cannot_be_are_refused(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name)
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, name)
    with pytest.raises(InvalidTopicError):
        create(admin, "no topic!")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([f"{name}-not"])


def test_settings_are_described_and_altered(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name)

    def retention() -> object:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        described = admin.describe_configs([resource], include_synonyms=True, config_filter="all")
        return described["topic"][name]["retention.ms"]["value"]

    assert retention() == "604800000"
    one = {"retention.ms": (AlterConfigOp.SET, "1000"), "cleanup.policy": (AlterConfigOp.APPEND, "compact")}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, one)])
    assert retention() == "1000"
    whole = ConfigResource(ConfigResourceType.TOPIC, name, {"segment.bytes": "2000000"})
    admin.alter_configs([whole], incremental=False)
    assert retention() == "1000"  # the client sends along what it was
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, ["retention.ms"])])
    assert retention() == "604800000"


def test_topics_grow(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name)
    admin.create_partitions({name: 3})
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 3
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: 2})


def test_records_are_deleted(admin: KafkaAdminClient, broker: RunningBroker, name: str) -> None:
    create(admin, name)
    fill(broker, name, 10)
    at = TopicPartition(name, 0)
    assert admin.delete_records({at: 4})[at]["low_watermark"] == 4
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({at: 11})


def test_producers_sizes_and_resources_are_told(admin: KafkaAdminClient, broker: RunningBroker, name: str) -> None:
    create(admin, name)
    fill(broker, name, 3)
    at = TopicPartition(name, 0)
    (producer,) = admin.describe_producers([at])[at].active_producers
    assert producer.last_sequence == 2
    (directory,) = admin.describe_log_dirs([name])
    assert directory["log_dirs"][0]["topics"][0]["partitions"][0]["partition_size"] > 0
    resources = admin.list_config_resources(["TOPIC", "BROKER"])
    assert name in resources["topic"]
    assert resources["broker"] == [str(NODE_ID)]


def test_no_election_is_needed(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name)
    answer = admin.elect_leaders(0, {name: [0]})
    assert answer.replica_election_results[0].partition_result[0].error_code == 84
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {name: [7]})
    assert admin.describe_cluster()["brokers"][0]["broker_id"] == NODE_ID
