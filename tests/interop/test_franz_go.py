"""franz-go: records, groups of both protocols, administration through kadm. It is idempotent unless told otherwise, and
its groups are cooperative unless told otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.comings_and_goings import PARTITIONS, come_and_go
from tests.interop.confluent import CODECS, read_from_start, send, values_of
from tests.interop.facts import new_name, until
from tests.interop.foreign_client import ForeignClient, ForeignMember, Refused

pytestmark = pytest.mark.slow
BASE_MS = 1_700_000_000_000
PROTOCOLS = ("classic", "consumer")


def admin(franz: ForeignClient, call: str, **arguments: object) -> Any:  # noqa: ANN401 - each call has its own
    return franz.ask("admin", name=call, **arguments)


def new_topic(franz: ForeignClient, *, partitions: int = 1, **configs: str) -> str:
    """Settings have `_` for each dot."""
    topic = new_name("go-topic")
    named = {key.replace("_", "."): value for key, value in configs.items()}
    assert admin(franz, "CreateTopic", topic=topic, partitions=partitions, configs=named) == partitions
    return topic


def open_reader(franz: ForeignClient, topic: str, **how: object) -> str:
    name = new_name("reader")
    franz.ask("open", name=name, topic=topic, **how)
    return name


def values_read(franz: ForeignClient, topic: str, count: int, *, commit: bool = False, **how: object) -> list[Any]:
    name = open_reader(franz, topic, **how)
    records = franz.receive(name, count)
    if commit:
        franz.ask("commit", name=name)
    franz.ask("close", name=name)
    return [each["value"] for each in records]


def timed_topic(franz: ForeignClient) -> str:
    """Ten messages, a second apart."""
    topic = new_topic(franz)
    records = [{"value": str(number), "timestamp": BASE_MS + 1_000 * number} for number in range(10)]
    franz.ask("produce", topic=topic, records=records)
    return topic


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(
    broker: BrokerProcess, franz: ForeignClient, codec: str
) -> None:
    topic = new_topic(franz)
    values = [f"order {number} " + "x" * 50 for number in range(200)]
    kept = franz.ask("produce", topic=topic, records=[{"value": value} for value in values], codec=codec)
    assert kept == [[0, number] for number in range(200)]
    assert values_read(franz, topic, 200) == values
    assert values_of(read_from_start(broker, topic, 200)) == [value.encode() for value in values]
    send(broker, topic, [b"from librdkafka " * 20] * 20, compression_type=codec, linger_ms=50)
    assert values_read(franz, topic, 20, offset=200) == ["from librdkafka " * 20] * 20


def test_headers_timestamps_and_missing_keys_and_values_are_kept(franz: ForeignClient) -> None:
    topic = new_topic(franz)
    sent: list[dict[str, Any]] = [
        {"key": "key", "value": "value", "headers": [{"key": "h", "value": "\x00\xff"}], "timestamp": BASE_MS},
        {"key": "gone", "value": None, "timestamp": BASE_MS + 5},
        {"key": None, "value": "alone", "timestamp": BASE_MS + 3},
    ]
    franz.ask("produce", topic=topic, records=sent, acks=1)
    found = franz.receive(open_reader(franz, topic), 3)
    assert found[0]["headers"] == sent[0]["headers"]
    for field in ("key", "value", "timestamp"):
        assert [each[field] for each in found] == [each[field] for each in sent]


def test_a_message_of_900_kilobytes_passes_and_one_too_large_for_its_topic_does_not(franz: ForeignClient) -> None:
    topic, small = new_topic(franz), new_topic(franz, max_message_bytes="1000")
    franz.ask("produce", topic=topic, records=[{"value": "x" * 900_000}])
    assert values_read(franz, topic, 1) == ["x" * 900_000]
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        franz.ask("produce", topic=small, records=[{"value": "x" * 2_000}])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_stopped(franz: ForeignClient, protocol: str) -> None:
    topic, group = timed_topic(franz), new_name("group")
    whole = [str(number) for number in range(10)]
    assert values_read(franz, topic, 10, group=group, protocol=protocol, commit=True) == whole
    franz.ask("produce", topic=topic, records=[{"value": "new"}])
    assert values_read(franz, topic, 1, group=group, protocol=protocol) == ["new"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_while_messages_flow(
    broker: BrokerProcess, franz: ForeignClient, protocol: str, record_property: Callable[[str, object], None]
) -> None:
    topic = new_topic(franz, partitions=PARTITIONS)
    settings = {"group": new_name("group"), "protocol": protocol}
    happened = come_and_go(broker, topic, lambda name, story: ForeignMember(franz, name, topic, story, settings))
    record_property("figure", f"franz-go, {protocol}: {happened.figures()}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_are_listed_described_moved_and_deleted(franz: ForeignClient, protocol: str) -> None:
    topic, group = timed_topic(franz), new_name("group")
    name = open_reader(franz, topic, group=group, protocol=protocol)
    franz.receive(name, 10)
    franz.ask("commit", name=name)
    describe = "DescribeGroups" if protocol == "classic" else "DescribeConsumerGroups"
    assert admin(franz, describe, group=group) == {"state": "Stable", "members": 1}
    assert admin(franz, "ListGroups", group=group) == "Stable"
    assert admin(franz, "FetchOffsets", group=group, topic=topic) == 10
    if protocol == "classic":  # kadm describes groups of the other protocol elsewhere, and not for their lag
        assert admin(franz, "Lag", group=group) == 0
    with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
        admin(franz, "DeleteGroup", group=group)
    franz.ask("close", name=name)
    for _ in until(lambda: admin(franz, "ListGroups", group=group) == "Empty", what="the group is empty"):
        pass
    admin(franz, "CommitOffsets", group=group, topic=topic, offset=8)
    assert values_read(franz, topic, 2, group=group, protocol=protocol) == ["8", "9"]
    admin(franz, "DeleteGroup", group=group)


def test_topics_are_administered(franz: ForeignClient) -> None:
    topic = timed_topic(franz)
    admin(franz, "CreatePartitions", topic=topic, partitions=2)
    assert admin(franz, "ListTopics", topic=topic) == 3
    assert admin(franz, "ListOffsetsAfterMilli", topic=topic, timestamp=BASE_MS + 7_500) == 8
    assert admin(franz, "DeleteRecords", topic=topic, offset=4) == 4
    admin(franz, "AlterTopicConfigs", topic=topic, configs={"retention.ms": "1234567"})
    assert admin(franz, "DescribeTopicConfigs", topic=topic)["retention.ms"] == "1234567"
    admin(franz, "DeleteTopics", topic=topic)
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin(franz, "DeleteTopics", topic=topic)
