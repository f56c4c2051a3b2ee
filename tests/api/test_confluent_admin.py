"""confluent-kafka's AdminClient, from a topic's birth to its end."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from confluent_kafka import ElectionType, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.api.brokers import FACT_SECONDS_MAX, NODE_ID, RunningBroker

T = TypeVar("T")


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, "log_level": 0})


def result(futures: "Mapping[Any, Future[T]]") -> T:
    (future,) = futures.values()
    return future.result(FACT_SECONDS_MAX)


def refusal(ask: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as refused:
        ask()
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    return error.code()


def create(admin: AdminClient, name: str, **options: int) -> None:
    result(admin.create_topics([NewTopic(name, num_partitions=options.get("partitions", 1), replication_factor=1)]))


def replace(admin: AdminClient, name: str, retention_ms: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": retention_ms})
    with pytest.deprecated_call():
        answers = admin.alter_configs([resource])
    result(answers)


def fill(broker: RunningBroker, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(FACT_SECONDS_MAX) == 0


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient, name: str) -> None:
    create(admin, name, partitions=3)
    listed = admin.list_topics(timeout=FACT_SECONDS_MAX)
    assert len(listed.topics[name].partitions) == 3
    assert [*listed.brokers] == [NODE_ID]
    described = result(admin.describe_topics(Topics([name])))
    assert [(each.id, each.leader.id) for each in described.partitions] == [(0, 1), (1, 1), (2, 1)]
    result(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=FACT_SECONDS_MAX).topics


def test_topics_that_cannot_be_are_refused(admin: AdminClient, name: str) -> None:
    create(admin, name)
    assert refusal(lambda: create(admin, name)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(lambda: create(admin, "no topic!")) == KafkaError.TOPIC_EXCEPTION
    wide = NewTopic(f"{name}-wide", num_partitions=1, replication_factor=3)
    assert refusal(lambda: result(admin.create_topics([wide]))) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(lambda: result(admin.delete_topics([f"{name}-not"]))) == KafkaError.UNKNOWN_TOPIC_OR_PART
    result(admin.create_topics([NewTopic(f"{name}-tried", num_partitions=1)], validate_only=True))
    assert f"{name}-tried" not in admin.list_topics(timeout=FACT_SECONDS_MAX).topics


def test_settings_are_described_and_altered(admin: AdminClient, name: str) -> None:
    create(admin, name)

    def retention() -> tuple[str, int]:
        entry = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))["retention.ms"]
        return entry.value, entry.source

    assert retention() == ("604800000", ConfigSource.DEFAULT_CONFIG.value)
    change = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    result(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])]))
    assert retention() == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    replace(admin, name, "2000")
    assert retention() == ("2000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert refusal(lambda: replace(admin, name, "soon")) == KafkaError.INVALID_CONFIG
    of_broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(NODE_ID))]))
    assert of_broker["node.id"].value == str(NODE_ID)
    assert of_broker["node.id"].is_read_only


def test_topics_grow(admin: AdminClient, name: str) -> None:
    create(admin, name)
    result(admin.create_partitions([NewPartitions(name, 4)]))
    assert len(admin.list_topics(timeout=FACT_SECONDS_MAX).topics[name].partitions) == 4
    assert refusal(lambda: result(admin.create_partitions([NewPartitions(name, 2)]))) == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted_and_offsets_listed(admin: AdminClient, broker: RunningBroker, name: str) -> None:
    create(admin, name)
    fill(broker, name, 10)

    def offset(spec: OffsetSpec) -> int:
        at = {TopicPartition(name, 0): spec}
        found: int = result(admin.list_offsets(at, isolation_level=IsolationLevel.READ_UNCOMMITTED)).offset
        return found

    assert offset(OffsetSpec.latest()) == 10  # type: ignore[no-untyped-call]
    assert result(admin.delete_records([TopicPartition(name, 0, 4)])).low_watermark == 4
    assert offset(OffsetSpec.earliest()) == 4  # type: ignore[no-untyped-call]
    beyond = [TopicPartition(name, 0, 11)]
    assert refusal(lambda: result(admin.delete_records(beyond))) == KafkaError.OFFSET_OUT_OF_RANGE
    assert result(admin.delete_records([TopicPartition(name, 0, -1)])).low_watermark == 10


def test_the_cluster_is_described_and_needs_no_election(admin: AdminClient, name: str) -> None:
    create(admin, name)
    cluster = admin.describe_cluster().result(FACT_SECONDS_MAX)
    assert [node.id for node in cluster.nodes] == [NODE_ID]
    answers = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)]).result(FACT_SECONDS_MAX)
    (error,) = answers.values()
    assert error.code() == KafkaError.ELECTION_NOT_NEEDED
