"""aiokafka's admin client, which speaks the oldest versions, from a topic's birth to its end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError

from tests.api.brokers import NODE_ID, RunningBroker


@asynccontextmanager
async def started(broker: RunningBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def run(broker: RunningBroker, scenario: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with started(broker) as admin:
            await scenario(admin)

    asyncio.run(main())


async def create(admin: AIOKafkaAdminClient, name: str, partitions: int = 1) -> int:
    answer = await admin.create_topics([NewTopic(name, partitions, 1)])
    code: int = answer.topic_errors[0][1]
    return code


def test_topics_are_created_listed_described_grown_and_deleted(broker: RunningBroker, name: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        assert await create(admin, name, 2) == 0
        assert await create(admin, name) == 36
        assert await create(admin, "no topic!") == 17
        assert name in await admin.list_topics()
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        grown = await admin.create_partitions({name: NewPartitions(3)})
        assert grown.topic_errors[0][1] == 0
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: NewPartitions(1)})
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
        assert (await admin.delete_topics([name])).topic_error_codes[0][1] == 3
        assert (await admin.describe_cluster())["brokers"][0]["node_id"] == NODE_ID

    run(broker, scenario)


def test_settings_are_described_and_altered(broker: RunningBroker, name: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        await create(admin, name)
        changed = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "1000"})
        (altered,) = await admin.alter_configs([changed])
        assert altered.resources[0][0] == 0
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        configs = {each[0]: each[1] for each in answer.resources[0][4]}
        assert configs["retention.ms"] == "1000"

    run(broker, scenario)


def test_records_are_deleted(broker: RunningBroker, name: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        await create(admin, name)
        producer = AIOKafkaProducer(bootstrap_servers=broker.address)
        await producer.start()
        try:
            for number in range(5):
                await producer.send_and_wait(name, b"%d" % number, partition=0)
        finally:
            await producer.stop()
        at = TopicPartition(name, 0)
        assert await admin.delete_records({at: RecordsToDelete(before_offset=3)}) == {at: 3}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({at: RecordsToDelete(before_offset=6)})

    run(broker, scenario)
