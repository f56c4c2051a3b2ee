"""@platformatic/kafka on Node.js: records, groups of both protocols, administration. It speaks the newest versions."""

from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import CODECS, read_from_start, send, values_of
from tests.interop.facts import new_name, until
from tests.interop.foreign_client import ForeignClient, Refused

pytestmark = pytest.mark.slow
BASE_MS = 1_700_000_000_000
TOPIC, SET = 2, 0
PROTOCOLS = ("classic", "consumer")


def admin(platformatic: ForeignClient, call: str, **argument: object) -> Any:  # noqa: ANN401 - each call has its own
    return platformatic.ask("admin", call=call, argument=argument)


def new_topic(platformatic: ForeignClient, *, partitions: int = 1) -> str:
    topic = new_name("pf-topic")
    admin(platformatic, "createTopics", topics=[topic], partitions=partitions, replicas=1)
    return topic


def timed_topic(platformatic: ForeignClient) -> str:
    """Ten messages, a second apart."""
    topic = new_topic(platformatic)
    records = [{"value": str(number), "timestamp": BASE_MS + 1_000 * number} for number in range(10)]
    assert platformatic.ask("produce", topic=topic, records=records) == [[0, 0]]
    return topic


def join(
    platformatic: ForeignClient, topic: str, *, group: str | None = None, protocol: str = "classic", **how: object
) -> str:
    name = new_name("member")
    settings = {"groupId": group or new_name("group"), "groupProtocol": protocol}
    platformatic.ask("open", name=name, topic=topic, settings=settings, **how)
    return name


def values_read(platformatic: ForeignClient, topic: str, count: int, **how: Any) -> list[Any]:  # noqa: ANN401
    name = join(platformatic, topic, **how)
    records = platformatic.receive(name, count)
    platformatic.ask("close", name=name)
    return [each["value"] for each in records]


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(
    broker: BrokerProcess, platformatic: ForeignClient, codec: str
) -> None:
    if codec not in platformatic.ask("codecs"):
        pytest.skip(f"this Node.js has no {codec}; install 22.15 or newer")
    topic = new_topic(platformatic)
    values = [f"order {number} " + "x" * 50 for number in range(500)]
    records = [{"value": value} for value in values]
    assert platformatic.ask("produce", topic=topic, records=records, codec=codec) == [[0, 0]]
    assert values_read(platformatic, topic, 500) == values
    assert values_of(read_from_start(broker, topic, 500)) == [value.encode() for value in values]
    send(broker, topic, [b"from librdkafka " * 20] * 20, compression_type=codec, linger_ms=50)
    offsets = [{"topic": topic, "partition": 0, "offset": 500}]
    assert values_read(platformatic, topic, 20, mode="manual", offsets=offsets) == ["from librdkafka " * 20] * 20


def test_headers_timestamps_and_missing_keys_and_values_are_kept(platformatic: ForeignClient) -> None:
    topic = new_topic(platformatic)
    headers = [["h", "\x00\xff"], ["empty", ""]]
    records: list[dict[str, Any]] = [
        {"key": "key", "value": "value", "headers": headers, "timestamp": BASE_MS},
        {"key": "gone", "value": None, "timestamp": BASE_MS + 5},
        {"key": None, "value": "alone", "timestamp": BASE_MS + 3},
    ]
    platformatic.ask("produce", topic=topic, records=records)
    name = join(platformatic, topic)
    found = platformatic.receive(name, 3)
    platformatic.ask("close", name=name)
    assert found[0]["headers"] == headers
    for field in ("key", "value", "timestamp"):
        assert [each.get(field) for each in found] == [each[field] for each in records]


def test_an_idempotent_producer_is_told_its_offsets(platformatic: ForeignClient) -> None:
    topic = new_topic(platformatic)
    records = [{"value": str(number)} for number in range(100)]
    assert platformatic.ask("produce", topic=topic, records=records, idempotent=True) == [[0, 0]]
    assert values_read(platformatic, topic, 100) == [str(number) for number in range(100)]


def test_a_message_of_900_kilobytes_passes_and_one_too_large_does_not(platformatic: ForeignClient) -> None:
    topic = new_topic(platformatic)
    platformatic.ask("produce", topic=topic, records=[{"value": "x" * 900_000}])
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        platformatic.ask("produce", topic=topic, records=[{"value": "x" * 2_000_000}])
    assert values_read(platformatic, topic, 1) == ["x" * 900_000]


def test_a_topic_is_made_when_it_is_first_written_to(platformatic: ForeignClient) -> None:
    topic = new_name("pf-unmade")
    assert platformatic.ask("produce", topic=topic, records=[{"value": "first"}]) == [[0, 0]]


def test_a_consumer_starts_at_a_time(platformatic: ForeignClient) -> None:
    topic = timed_topic(platformatic)
    asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "timestamp": BASE_MS + 7_500}]}]
    (found,) = admin(platformatic, "listOffsets", topics=asked)[0]["partitions"]
    assert (found["offset"], found["timestamp"]) == (8, BASE_MS + 8_000)
    offsets = [{"topic": topic, "partition": 0, "offset": 8}]
    assert values_read(platformatic, topic, 2, mode="manual", offsets=offsets) == ["8", "9"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_members_share_the_partitions_and_one_inherits(platformatic: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(platformatic, partitions=4), new_name("group")
    members = [join(platformatic, topic, group=group, protocol=protocol) for _ in range(2)]
    wait_shares(platformatic, members, [2, 2])
    platformatic.ask("close", name=members[0])
    wait_shares(platformatic, members[1:], [4])
    platformatic.ask("close", name=members[1])


def wait_shares(platformatic: ForeignClient, members: list[str], sizes: list[int]) -> None:
    shares: list[list[int]] = []
    for _ in until(lambda: [len(share) for share in shares] == sizes, what=f"shares of {sizes}"):
        platformatic.ask("poll", name=members[0])
        shares[:] = [platformatic.ask("assignment", name=member) for member in members]
    assert sorted(number for share in shares for number in share) == list(range(sum(sizes)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_stopped(platformatic: ForeignClient, protocol: str) -> None:
    topic, group = timed_topic(platformatic), new_name("group")
    first = join(platformatic, topic, group=group, protocol=protocol)
    platformatic.receive(first, 10)
    offsets = [{"topic": topic, "partition": 0, "offset": 7, "leaderEpoch": 0}]
    platformatic.ask("commit", name=first, offsets=offsets)
    assert platformatic.ask("committed", name=first, topic=topic) == {topic: [7]}
    platformatic.ask("close", name=first)
    assert values_read(platformatic, topic, 3, group=group, protocol=protocol) == ["7", "8", "9"]


def test_groups_are_listed_described_moved_and_deleted(platformatic: ForeignClient) -> None:
    topic, group = timed_topic(platformatic), new_name("group")
    name = join(platformatic, topic, group=group)
    assert admin(platformatic, "listGroups")[group]["state"] == "STABLE"
    seen = admin(platformatic, "describeGroups", groups=[group])[group]
    assert (seen["state"], len(seen["members"])) == ("STABLE", 1)
    with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
        admin(platformatic, "deleteGroups", groups=[group])
    platformatic.ask("close", name=name)
    wanted = [{"name": topic, "partitionOffsets": [{"partition": 0, "offset": 8}]}]
    admin(platformatic, "alterConsumerGroupOffsets", groupId=group, topics=wanted)
    (kept,) = admin(platformatic, "listConsumerGroupOffsets", groups=[group])
    assert [each["committedOffset"] for each in kept["topics"][0]["partitions"]] == [8]
    assert values_read(platformatic, topic, 2, group=group) == ["8", "9"]
    partitions = [{"name": topic, "partitionIndexes": [0]}]
    admin(platformatic, "deleteConsumerGroupOffsets", groupId=group, topics=partitions)
    admin(platformatic, "deleteGroups", groups=[group])
    assert group not in admin(platformatic, "listGroups")


def test_topics_are_administered(platformatic: ForeignClient) -> None:
    topic = timed_topic(platformatic)
    admin(platformatic, "createPartitions", topics=[{"name": topic, "count": 3, "assignments": None}])
    assert platformatic.ask("metadata", topic=topic)["topics"][topic]["partitionsCount"] == 3
    deleted = [{"name": topic, "partitions": [{"partition": 0, "offset": 4}]}]
    (answer,) = admin(platformatic, "deleteRecords", topics=deleted)
    assert answer["partitions"] == [{"partition": 0, "lowWatermark": 4}]
    (seen,) = admin(platformatic, "describeLogDirs", topics=[{"name": topic, "partitions": [0, 1, 2]}])
    assert sorted(each["partitionIndex"] for each in seen["results"][0]["topics"][0]["partitions"]) == [0, 1, 2]
    admin(platformatic, "deleteTopics", topics=[topic])
    assert topic not in admin(platformatic, "listTopics")


def test_settings_of_a_topic_change_item_by_item(platformatic: ForeignClient) -> None:
    topic = new_topic(platformatic)
    configs = [{"name": "retention.ms", "configOperation": SET, "value": "1234567"}]
    resources = [{"resourceType": TOPIC, "resourceName": topic, "configs": configs}]
    admin(platformatic, "incrementalAlterConfigs", resources=resources)
    asked = [{"resourceType": TOPIC, "resourceName": topic, "configurationKeys": ["retention.ms"]}]
    (seen,) = admin(platformatic, "describeConfigs", resources=asked)
    assert [(each["name"], each["value"]) for each in seen["configs"]] == [("retention.ms", "1234567")]
