"""aiokafka: records, groups and administration, in versions of the protocol that older clients use."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.interop.broker_process import BrokerProcess
from tests.interop.facts import FACT_SECONDS_MAX, new_name

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(FACT_SECONDS_MAX):
            await work()

    asyncio.run(within())


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - aiokafka's clients have no common type
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def producing(broker: BrokerProcess, **settings: object) -> Any:  # noqa: ANN401
    return started(AIOKafkaProducer(bootstrap_servers=broker.address, **settings))


def consuming(broker: BrokerProcess, *topics: str, **settings: object) -> Any:  # noqa: ANN401
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    return started(AIOKafkaConsumer(*topics, bootstrap_servers=broker.address, **{**defaults, **settings}))


def administering(broker: BrokerProcess) -> Any:  # noqa: ANN401
    return started(AIOKafkaAdminClient(bootstrap_servers=broker.address))


async def new_topic(broker: BrokerProcess, *, partitions: int = 1) -> str:
    name = new_name("aio-topic")
    async with administering(broker) as admin:
        answer = await admin.create_topics([NewTopic(name, partitions, 1)])
        assert [error for _, error, *_ in answer.topic_errors] == [0]
    return name


async def receive(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        for part in (await consumer.getmany(timeout_ms=100)).values():
            records += part
    assert len(records) == count
    return records


async def send(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> None:
    async with producing(broker, **settings) as producer:
        sent = [await producer.send(topic, value, partition=0) for value in values]
        await asyncio.gather(*sent)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(
    broker: BrokerProcess, codec: str | None, idempotent: bool
) -> None:
    async def work() -> None:
        topic = await new_topic(broker)
        values = [b"order %d " % number + b"x" * 50 for number in range(500)]
        await send(broker, topic, values, compression_type=codec, enable_idempotence=idempotent)
        async with consuming(broker, topic) as consumer:
            assert [record.value for record in await receive(consumer, 500)] == values

    run(work)


def test_headers_timestamps_and_missing_keys_and_values_are_kept(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker)
        async with producing(broker) as producer:
            await producer.send_and_wait(topic, b"v", b"k", timestamp_ms=BASE_MS, headers=[("h", b"\x00"), ("h", b"")])
            await producer.send_and_wait(topic, None, b"gone", timestamp_ms=BASE_MS + 5)
            await producer.send_and_wait(topic, b"alone", None, timestamp_ms=BASE_MS + 9)
        async with consuming(broker, topic) as consumer:
            records = await receive(consumer, 3)
        assert [(each.offset, each.key, each.value, each.timestamp) for each in records] == [
            (0, b"k", b"v", BASE_MS),
            (1, b"gone", None, BASE_MS + 5),
            (2, None, b"alone", BASE_MS + 9),
        ]
        assert records[0].headers == (("h", b"\x00"), ("h", b""))

    run(work)


def test_a_message_of_900_kilobytes_passes(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker)
        await send(broker, topic, [b"x" * 900_000])
        async with consuming(broker, topic) as consumer:
            assert [len(record.value) for record in await receive(consumer, 1)] == [900_000]

    run(work)


def test_offsets_are_found_by_time_and_at_both_ends(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker)
        at = TopicPartition(topic, 0)
        async with producing(broker) as producer:
            for number in range(5):
                await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=BASE_MS + 1_000 * number)
        async with consuming(broker) as consumer:
            consumer.assign([at])
            assert (await consumer.offsets_for_times({at: BASE_MS + 2_500}))[at].offset == 3
            assert (await consumer.beginning_offsets([at]), await consumer.end_offsets([at])) == ({at: 0}, {at: 5})
            consumer.seek(at, 3)
            assert [record.value for record in await receive(consumer, 2)] == [b"3", b"4"]
            await consumer.seek_to_beginning(at)
            assert (await receive(consumer, 5))[0].value == b"0"

    run(work)


ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_two_members_share_the_partitions(broker: BrokerProcess, assignor: type) -> None:
    async def work() -> None:
        topic, group = await new_topic(broker, partitions=4), new_name("aio-group")
        settings = {"group_id": group, "partition_assignment_strategy": [assignor], "heartbeat_interval_ms": 200}
        async with consuming(broker, topic, **settings) as one, consuming(broker, topic, **settings) as two:
            while sorted((len(one.assignment()), len(two.assignment()))) != [2, 2]:
                await one.getmany(timeout_ms=50)
                await two.getmany(timeout_ms=50)
            assert not one.assignment() & two.assignment()

    run(work)


def test_a_group_goes_on_where_it_stopped(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic, group = await new_topic(broker), new_name("aio-group")
        at = TopicPartition(topic, 0)
        await send(broker, topic, [b"%d" % number for number in range(6)])
        async with consuming(broker, topic, group_id=group) as first:
            await receive(first, 6)
            await first.commit({at: 4})
        async with consuming(broker, topic, group_id=group) as second:
            assert [record.value for record in await receive(second, 2)] == [b"4", b"5"]
            assert await second.committed(at) == 4

    run(work)


def test_a_static_member_comes_back(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic, group = await new_topic(broker), new_name("aio-group")
        await send(broker, topic, [b"a"])
        settings = {"group_id": group, "group_instance_id": "one"}
        for _ in range(2):
            async with consuming(broker, topic, **settings) as member:
                assert [record.value for record in await receive(member, 1)] == [b"a"]

    run(work)


def test_groups_are_listed_and_described(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic, group = await new_topic(broker), new_name("aio-group")
        await send(broker, topic, [b"a"])
        async with consuming(broker, topic, group_id=group) as member, administering(broker) as admin:
            await receive(member, 1)
            await member.commit()
            assert (group, "consumer") in await admin.list_consumer_groups()
            (answer,) = await admin.describe_consumer_groups([group])
            (described,) = answer.groups
            assert described[:3] == (0, group, "Stable")
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition(topic, 0)].offset == 1

    run(work)


def test_topics_are_administered(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker)
        at = TopicPartition(topic, 0)
        await send(broker, topic, [b"a", b"b", b"c"])
        async with administering(broker) as admin:
            assert (await admin.describe_cluster())["brokers"][0]["port"] == broker.port
            await admin.create_partitions({topic: NewPartitions(3)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 3
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "1234567"})
            await admin.alter_configs([resource])
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            configs = {name: value for name, value, *_ in answer.resources[0][4]}
            assert configs["retention.ms"] == "1234567"
            assert await admin.delete_records({at: RecordsToDelete(before_offset=2)}) == {at: 2}
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()

    run(work)
