"""KafkaJS: records, groups and administration. It has the classic protocol only, and gives all up at each rebalance."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.comings_and_goings import PARTITIONS, come_and_go
from tests.interop.confluent import CODECS, read_from_start, send, values_of
from tests.interop.facts import new_name
from tests.interop.foreign_client import ForeignClient, ForeignMember, Refused

pytestmark = pytest.mark.slow
BASE_MS = 1_700_000_000_000
TOPIC = 2
"""Among the kinds of things that have settings."""


def admin(kafkajs: ForeignClient, call: str, argument: object = None) -> Any:  # noqa: ANN401 - each call has its own
    return kafkajs.ask("admin", call=call, argument=argument)


def new_topic(kafkajs: ForeignClient, *, partitions: int = 1) -> str:
    topic = new_name("js-topic")
    assert admin(kafkajs, "createTopics", {"topics": [{"topic": topic, "numPartitions": partitions}]}) is True
    return topic


def produce(kafkajs: ForeignClient, topic: str, values: list[str], **how: object) -> list[list[int]]:
    kept: list[list[int]] = kafkajs.ask("produce", topic=topic, records=[{"value": each} for each in values], **how)
    return kept


def join(kafkajs: ForeignClient, topic: str, *, group: str | None = None, **how: object) -> str:
    """A member's name; it has its partitions already."""
    name = new_name("member")
    kafkajs.ask("open", name=name, topic=topic, settings={"groupId": group or new_name("group")}, **how)
    return name


def values_read(kafkajs: ForeignClient, topic: str, count: int, *, group: str | None = None) -> list[Any]:
    name = join(kafkajs, topic, group=group)
    records = kafkajs.receive(name, count)
    kafkajs.ask("close", name=name)
    return [each["value"] for each in records]


def timed_topic(kafkajs: ForeignClient) -> str:
    """Ten messages, a second apart."""
    topic = new_topic(kafkajs)
    records = [{"value": str(number), "timestamp": BASE_MS + 1_000 * number} for number in range(10)]
    kafkajs.ask("produce", topic=topic, records=records)
    return topic


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(
    broker: BrokerProcess, kafkajs: ForeignClient, codec: str, idempotent: bool
) -> None:
    topic = new_topic(kafkajs)
    values = [f"order {number} " + "x" * 50 for number in range(500)]
    assert produce(kafkajs, topic, values, codec=codec, idempotent=idempotent) == [[0, 0]]
    assert values_read(kafkajs, topic, 500) == values
    assert values_of(read_from_start(broker, topic, 500)) == [value.encode() for value in values]


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_client_compressed_is_read(broker: BrokerProcess, kafkajs: ForeignClient, codec: str) -> None:
    topic = new_topic(kafkajs)
    send(broker, topic, [b"from librdkafka " * 20] * 20, compression_type=codec, linger_ms=50)
    assert set(values_read(kafkajs, topic, 20)) == {"from librdkafka " * 20}


def test_headers_timestamps_and_missing_keys_and_values_are_kept(kafkajs: ForeignClient) -> None:
    topic = new_topic(kafkajs)
    records: list[dict[str, Any]] = [
        {"key": "key", "value": "value", "headers": {"h": ["\x00", "\xff"], "empty": [""]}, "timestamp": BASE_MS},
        {"key": "gone", "value": None, "timestamp": BASE_MS + 5},
        {"key": None, "value": "alone", "timestamp": BASE_MS + 3},
    ]
    kafkajs.ask("produce", topic=topic, records=records)
    name = join(kafkajs, topic)
    found = kafkajs.receive(name, 3)
    kafkajs.ask("close", name=name)
    assert found[0]["headers"] == {"h": ["\x00", "\xff"], "empty": ""}
    for field in ("key", "value", "timestamp"):
        assert [each[field] for each in found] == [each[field] for each in records]


def test_a_message_of_900_kilobytes_passes_and_one_too_large_does_not(kafkajs: ForeignClient) -> None:
    topic = new_topic(kafkajs)
    produce(kafkajs, topic, ["x" * 900_000])
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        produce(kafkajs, topic, ["x" * 2_000_000])
    assert values_read(kafkajs, topic, 1) == ["x" * 900_000]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_each_level_of_acks_delivers(kafkajs: ForeignClient, acks: int) -> None:
    topic = new_topic(kafkajs)
    produce(kafkajs, topic, ["a", "b"], acks=acks)
    assert values_read(kafkajs, topic, 2) == ["a", "b"]


def test_a_topic_is_made_when_it_is_first_written_to(kafkajs: ForeignClient) -> None:
    topic = new_name("js-unmade")
    assert produce(kafkajs, topic, ["first"]) == [[0, 0]]
    assert values_read(kafkajs, topic, 1) == ["first"]


def test_a_consumer_seeks_to_a_time(kafkajs: ForeignClient) -> None:
    topic = timed_topic(kafkajs)
    name = join(kafkajs, topic)
    kafkajs.receive(name, 10)
    (found,) = kafkajs.ask("offsets_by_time", topic=topic, timestamp=BASE_MS + 7_500)
    assert found == {"partition": 0, "offset": "8"}
    kafkajs.ask("seek", name=name, topic=topic, partition=0, offset=8)
    assert [each["value"] for each in kafkajs.receive(name, 2)] == ["8", "9"]
    kafkajs.ask("close", name=name)


def test_members_come_and_go_while_messages_flow(
    broker: BrokerProcess, kafkajs: ForeignClient, record_property: Callable[[str, object], None]
) -> None:
    topic = new_topic(kafkajs, partitions=PARTITIONS)
    settings = {"groupId": new_name("group")}
    happened = come_and_go(broker, topic, lambda name, story: ForeignMember(kafkajs, name, topic, story, settings))
    record_property("figure", f"KafkaJS: {happened.figures()}")


def test_a_group_goes_on_where_it_stopped(kafkajs: ForeignClient) -> None:
    topic, group = timed_topic(kafkajs), new_name("group")
    first = join(kafkajs, topic, group=group)
    kafkajs.receive(first, 10)
    kafkajs.ask("commit", name=first, offsets=[{"topic": topic, "partition": 0, "offset": "7", "metadata": "half way"}])
    kafkajs.ask("close", name=first)
    assert values_read(kafkajs, topic, 3, group=group) == ["7", "8", "9"]
    (kept,) = admin(kafkajs, "fetchOffsets", {"groupId": group, "topics": [topic]})
    assert kept["partitions"] == [{"partition": 0, "offset": "7", "metadata": "half way"}]


def test_a_member_commits_by_itself_where_asked(kafkajs: ForeignClient) -> None:
    topic, group = timed_topic(kafkajs), new_name("group")
    first = join(kafkajs, topic, group=group, autoCommit=True)
    kafkajs.receive(first, 10)
    kafkajs.ask("close", name=first)
    produce(kafkajs, topic, ["new"])
    assert values_read(kafkajs, topic, 1, group=group) == ["new"]


def test_topics_are_found_by_a_pattern(kafkajs: ForeignClient) -> None:
    topic = timed_topic(kafkajs)
    name = new_name("member")
    kafkajs.ask("open", name=name, pattern=f"^{topic}$", settings={"groupId": new_name("group")})
    kafkajs.receive(name, 10)
    kafkajs.ask("close", name=name)


def test_groups_are_listed_described_and_deleted(kafkajs: ForeignClient) -> None:
    topic, group = timed_topic(kafkajs), new_name("group")
    name = join(kafkajs, topic, group=group)
    assert {"groupId": group, "protocolType": "consumer"} in admin(kafkajs, "listGroups")["groups"]
    (seen,) = admin(kafkajs, "describeGroups", [group])["groups"]
    assert (seen["state"], seen["protocol"], len(seen["members"])) == ("Stable", "RoundRobinAssigner", 1)
    with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
        admin(kafkajs, "deleteGroups", [group])
    kafkajs.ask("close", name=name)
    admin(kafkajs, "deleteGroups", [group])
    assert group not in {each["groupId"] for each in admin(kafkajs, "listGroups")["groups"]}


def test_an_administrator_sets_the_offsets_of_an_idle_group(kafkajs: ForeignClient) -> None:
    """The client joins the group for that, and takes five seconds to leave it again."""
    topic, group = timed_topic(kafkajs), new_name("group")
    admin(kafkajs, "setOffsets", {"groupId": group, "topic": topic, "partitions": [{"partition": 0, "offset": "8"}]})
    assert values_read(kafkajs, topic, 2, group=group) == ["8", "9"]


def test_topics_are_administered(broker: BrokerProcess, kafkajs: ForeignClient) -> None:
    topic = timed_topic(kafkajs)
    (node,) = admin(kafkajs, "describeCluster")["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.address
    admin(kafkajs, "createPartitions", {"topicPartitions": [{"topic": topic, "count": 3}]})
    (seen,) = admin(kafkajs, "fetchTopicMetadata", {"topics": [topic]})["topics"]
    assert sorted(each["partitionId"] for each in seen["partitions"]) == [0, 1, 2]
    with pytest.raises(Refused, match="INVALID_PARTITIONS"):
        admin(kafkajs, "createPartitions", {"topicPartitions": [{"topic": topic, "count": 2}]})
    admin(kafkajs, "fetchTopicOffsets", topic)  # without it, the client does not know whom to ask to delete
    admin(kafkajs, "deleteTopicRecords", {"topic": topic, "partitions": [{"partition": 0, "offset": "4"}]})
    ends = {each["partition"]: (each["low"], each["high"]) for each in admin(kafkajs, "fetchTopicOffsets", topic)}
    assert ends == {0: ("4", "10"), 1: ("0", "0"), 2: ("0", "0")}
    admin(kafkajs, "deleteTopics", {"topics": [topic]})
    assert topic not in admin(kafkajs, "listTopics")
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin(kafkajs, "deleteTopics", {"topics": [topic]})


def test_settings_of_a_topic_change(kafkajs: ForeignClient) -> None:
    topic = new_topic(kafkajs)
    entries = [{"name": "retention.ms", "value": "1234567"}]
    asked = [{"type": TOPIC, "name": topic, "configEntries": entries}]
    admin(kafkajs, "alterConfigs", {"resources": asked, "validateOnly": False})
    wanted = [{"type": TOPIC, "name": topic, "configNames": ["retention.ms"]}]
    (seen,) = admin(kafkajs, "describeConfigs", {"resources": wanted, "includeSynonyms": False})["resources"]
    assert [(each["configName"], each["configValue"]) for each in seen["configEntries"]] == [
        ("retention.ms", "1234567")
    ]
