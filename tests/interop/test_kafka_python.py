"""kafka-python: records, groups and administration; its producer is idempotent unless it is told otherwise."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    import kafka
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


def producing(broker: BrokerProcess, **settings: object) -> Any:  # noqa: ANN401 - kafka-python has no types
    return closing(KafkaProducer(bootstrap_servers=broker.address, **settings))


def consuming(broker: BrokerProcess, *topics: str, **settings: object) -> Any:  # noqa: ANN401
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    return closing(KafkaConsumer(*topics, bootstrap_servers=broker.address, **{**defaults, **settings}))


def new_topic(admin: KafkaAdminClient, *, partitions: int = 1) -> str:
    name = new_name("kp-topic")
    admin.create_topics([NewTopic(name, partitions, 1)])
    return name


def send(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> list[int]:
    with producing(broker, **settings) as producer:
        sent = [producer.send(topic, value, partition=0) for value in values]
        return [future.get(FACT_SECONDS_MAX).offset for future in sent]


def receive(consumer: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    for _ in until(lambda: len(records) >= count, what=f"{count} records received"):
        for part in consumer.poll(timeout_ms=100).values():
            records.extend(part)
    assert len(records) == count
    return records


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(
    broker: BrokerProcess, admin: KafkaAdminClient, codec: str | None, idempotent: bool
) -> None:
    topic = new_topic(admin)
    values = [b"order %d " % number + b"x" * 50 for number in range(500)]
    offsets = send(broker, topic, values, compression_type=codec, enable_idempotence=idempotent)
    assert offsets == list(range(500))
    with consuming(broker, topic) as consumer:
        assert [record.value for record in receive(consumer, 500)] == values


def test_headers_timestamps_and_missing_keys_and_values_are_kept(
    broker: BrokerProcess, admin: KafkaAdminClient
) -> None:
    topic = new_topic(admin)
    with producing(broker) as producer:
        producer.send(topic, b"v", b"k", headers=[("h", b"\x00"), ("h", b"")], timestamp_ms=BASE_MS)
        producer.send(topic, None, b"gone", timestamp_ms=BASE_MS + 5)
        producer.send(topic, b"alone", None, timestamp_ms=BASE_MS + 9)
        producer.flush(FACT_SECONDS_MAX)
    with consuming(broker, topic) as consumer:
        records = receive(consumer, 3)
    assert [(each.offset, each.key, each.value, each.timestamp) for each in records] == [
        (0, b"k", b"v", BASE_MS),
        (1, b"gone", None, BASE_MS + 5),
        (2, None, b"alone", BASE_MS + 9),
    ]
    assert list(records[0].headers) == [("h", b"\x00"), ("h", b"")]


def test_a_message_of_900_kilobytes_passes(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic = new_topic(admin)
    send(broker, topic, [b"x" * 900_000])
    with consuming(broker, topic) as consumer:
        assert [len(record.value) for record in receive(consumer, 1)] == [900_000]


def test_offsets_are_found_by_time_and_at_both_ends(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic = new_topic(admin)
    at = TopicPartition(topic, 0)
    with producing(broker) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, timestamp_ms=BASE_MS + 1_000 * number)
        producer.flush(FACT_SECONDS_MAX)
    with consuming(broker) as consumer:
        consumer.assign([at])
        assert consumer.offsets_for_times({at: BASE_MS + 2_500})[at].offset == 3
        assert (consumer.beginning_offsets([at]), consumer.end_offsets([at])) == ({at: 0}, {at: 5})
        consumer.seek(at, 3)
        assert [record.value for record in receive(consumer, 2)] == [b"3", b"4"]


def test_two_members_share_the_partitions(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic = new_topic(admin, partitions=4)
    settings = {"group_id": new_name("kp-group"), "heartbeat_interval_ms": 200}
    with consuming(broker, topic, **settings) as one, consuming(broker, topic, **settings) as two:
        for _ in until(lambda: len(one.assignment()) == len(two.assignment()) == 2, what="two partitions each"):
            one.poll(timeout_ms=50)
            two.poll(timeout_ms=50)
        assert not one.assignment() & two.assignment()


def test_a_group_goes_on_where_it_stopped(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic, group = new_topic(admin), new_name("kp-group")
    at = TopicPartition(topic, 0)
    send(broker, topic, [b"%d" % number for number in range(6)])
    with consuming(broker, topic, group_id=group) as first:
        receive(first, 6)
        first.commit({at: kafka.OffsetAndMetadata(4, "half way", -1)})
    with consuming(broker, topic, group_id=group) as second:
        assert [record.value for record in receive(second, 2)] == [b"4", b"5"]
        assert second.committed(at) == 4


def test_a_static_member_comes_back(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic, group = new_topic(admin), new_name("kp-group")
    send(broker, topic, [b"a"])
    for _ in range(2):
        with consuming(broker, topic, group_id=group, group_instance_id="one") as member:
            assert [record.value for record in receive(member, 1)] == [b"a"]


def test_groups_are_listed_described_and_deleted(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic, group = new_topic(admin), new_name("kp-group")
    at = TopicPartition(topic, 0)
    send(broker, topic, [b"a", b"b"])
    with consuming(broker, topic, group_id=group) as member:
        receive(member, 2)
        member.commit()
        assert group in {each["group_id"] for each in admin.list_groups()}
        described = admin.describe_groups([group])[group]
        assert (described["group_state"], len(described["members"])) == ("Stable", 1)
    assert admin.list_group_offsets({group: [at]})[group][at].offset == 2
    assert admin.delete_group_offsets(group, [at])[at].__name__ == "NoError"
    assert at not in admin.list_group_offsets({group: None})[group]
    admin.delete_groups([group])
    assert group not in {each["group_id"] for each in admin.list_groups()}


def test_topics_are_administered(broker: BrokerProcess, admin: KafkaAdminClient) -> None:
    topic = new_topic(admin)
    at = TopicPartition(topic, 0)
    send(broker, topic, [b"a", b"b", b"c"])
    assert admin.describe_cluster()["brokers"][0]["port"] == broker.port
    admin.create_partitions({topic: 3})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "1234567"})])
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "1234567" in str(answer)
    assert admin.delete_records({at: 2})[at]["low_watermark"] == 2
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
