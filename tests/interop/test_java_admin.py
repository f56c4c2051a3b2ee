"""The Java client's administrator: topics, settings, offsets and records, log directories, producers, elections."""

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.facts import new_name
from tests.interop.foreign_client import ForeignClient, Refused
from tests.interop.test_java_records import BASE_MS, new_topic, produce, timed_topic

pytestmark = pytest.mark.slow


def test_a_topic_is_created_described_grown_and_deleted(java: ForeignClient) -> None:
    topic = new_name("java-topic")
    partitions, replicas, identity = java.ask("create_topic", topic=topic, partitions=2)
    assert (partitions, replicas) == (2, 1)
    java.ask("create_partitions", topic=topic, partitions=5)
    seen = java.ask("describe_topic", topic=topic)
    assert (seen["id"], seen["internal"]) == (identity, False)
    assert [each["partition"] for each in seen["partitions"]] == list(range(5))
    assert {(each["replicas"], each["isr"]) for each in seen["partitions"]} == {(1, 1)}
    assert java.ask("describe_topic_by_id", id=identity) == topic
    assert topic in java.ask("list_topics")
    java.ask("delete_topic", topic=topic)
    assert topic not in java.ask("list_topics")
    for verb in ("describe_topic", "delete_topic"):
        with pytest.raises(Refused, match="UnknownTopicOrPartitionException"):
            java.ask(verb, topic=topic)
    with pytest.raises(Refused, match="UnknownTopicIdException"):
        java.ask("describe_topic_by_id", id=identity)


def test_what_cannot_be_done_to_a_topic_is_refused_by_its_name(java: ForeignClient) -> None:
    topic = new_topic(java, partitions=2)
    with pytest.raises(Refused, match="TopicExistsException"):
        java.ask("create_topic", topic=topic, partitions=2)
    with pytest.raises(Refused, match="InvalidTopicException"):
        java.ask("create_topic", topic="no spaces", partitions=1)
    with pytest.raises(Refused, match="InvalidPartitionsException"):
        java.ask("create_partitions", topic=topic, partitions=1)
    with pytest.raises(Refused, match="InvalidConfigurationException"):
        java.ask("create_topic", topic=new_name("java-topic"), partitions=1, configs={"retention.ms": "soon"})
    only_checked = new_name("java-topic")
    java.ask("create_topic", topic=only_checked, partitions=1, validate_only=True)
    assert only_checked not in java.ask("list_topics")


def test_the_cluster_is_described(broker: BrokerProcess, java: ForeignClient) -> None:
    seen = java.ask("describe_cluster")
    assert seen["nodes"] == [broker.address]
    assert seen["id"]


def test_settings_of_a_topic_change_item_by_item(java: ForeignClient) -> None:
    topic = new_name("java-topic")
    java.ask("create_topic", topic=topic, partitions=1, configs={"cleanup.policy": "delete"})
    changes = [["SET", "retention.ms", "1234567"], ["APPEND", "cleanup.policy", "compact"]]
    java.ask("alter_configs", topic=topic, changes=changes, validate_only=True)
    assert java.ask("describe_configs", topic=topic)["retention.ms"][1] == "DEFAULT_CONFIG"
    java.ask("alter_configs", topic=topic, changes=changes)
    found = java.ask("describe_configs", topic=topic)
    assert found["retention.ms"] == ["1234567", "DYNAMIC_TOPIC_CONFIG"]
    assert found["cleanup.policy"] == ["delete,compact", "DYNAMIC_TOPIC_CONFIG"]
    java.ask(
        "alter_configs", topic=topic, changes=[["DELETE", "retention.ms"], ["SUBTRACT", "cleanup.policy", "delete"]]
    )
    found = java.ask("describe_configs", topic=topic)
    assert found["retention.ms"] == ["604800000", "DEFAULT_CONFIG"]
    assert found["cleanup.policy"] == ["compact", "DYNAMIC_TOPIC_CONFIG"]
    with pytest.raises(Refused, match="InvalidConfigurationException"):
        java.ask("alter_configs", topic=topic, changes=[["SET", "retention.ms", "soon"]])
    with pytest.raises(Refused, match="UnknownTopicOrPartitionException"):
        java.ask("alter_configs", topic=new_name("unmade"), changes=[["SET", "retention.ms", "1"]])


def test_settings_of_brokers_are_described_and_resources_listed(java: ForeignClient) -> None:
    topic = new_name("java-topic")
    java.ask("create_topic", topic=topic, partitions=1, configs={"retention.ms": "5000"})
    broker_id = java.ask("describe_topic", topic=topic)["partitions"][0]["leader"]
    assert "log.retention.ms" in java.ask("describe_configs", broker=str(broker_id))
    assert f"TOPIC {topic}" in java.ask("list_config_resources")


@pytest.mark.parametrize(
    ("at", "found"),
    [
        ("earliest", [2, -1]),
        ("latest", [10, -1]),
        ("max_timestamp", [9, BASE_MS + 9_000]),
        (BASE_MS + 4_500, [5, BASE_MS + 5_000]),
        (BASE_MS + 9_001, [-1, -1]),
        ("earliest_local", [2, -1]),
    ],
)
def test_offsets_are_listed(java: ForeignClient, at: str | int, found: list[int]) -> None:
    topic = timed_topic(java)
    assert java.ask("delete_records", partitions=[[topic, 0]], before=2) == 2
    assert java.ask("list_offset", partitions=[[topic, 0]], at=at) == found


def test_records_are_deleted_up_to_the_end_and_no_further(java: ForeignClient) -> None:
    topic = timed_topic(java)
    with pytest.raises(Refused, match="OffsetOutOfRangeException"):
        java.ask("delete_records", partitions=[[topic, 0]], before=11)
    assert java.ask("delete_records", partitions=[[topic, 0]], before=-1) == 10
    assert java.ask("list_offset", partitions=[[topic, 0]], at="earliest") == [10, -1]


def test_log_directories_tell_the_size_of_a_partition(java: ForeignClient) -> None:
    topic = new_topic(java)
    produce(java, topic, [{"value": "x" * 10_000}])
    broker_id = java.ask("describe_topic", topic=topic)["partitions"][0]["leader"]
    assert 10_000 < java.ask("log_dirs", broker=broker_id)[f"{topic}-0"] < 20_000


def test_idempotent_producers_are_described(java: ForeignClient) -> None:
    topic = new_topic(java)
    produce(java, topic, [{"value": "x"}] * 5)
    assert java.ask("producers", partitions=[[topic, 0]]) == [[0, 4]]


def test_leaders_are_elected(java: ForeignClient) -> None:
    topic = new_topic(java)
    asked = {"partitions": [[topic, 0], [topic, 7]]}
    assert java.ask("elect_leaders", type="PREFERRED", **asked) == {
        f"{topic}-0": "ElectionNotNeededException",
        f"{topic}-7": "UnknownTopicOrPartitionException",
    }


def test_features_are_told(java: ForeignClient) -> None:
    assert isinstance(java.ask("features"), dict)
