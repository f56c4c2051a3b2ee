"""The admin client against a real broker."""

import pytest

from millpond.client import Admin, Consumer, Producer, TopicPartition
from millpond.client.admin_groups import GroupListing
from millpond.model.errors import (
    ClientClosed,
    GroupNotEmpty,
    GroupNotFound,
    InvalidSetting,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    WrongUse,
)
from millpond.testing.broker import InProcessBroker
from tests.client.conftest import run
from tests.client.test_consumer import fill, take


def test_topics_are_made_looked_at_changed_and_deleted(broker: InProcessBroker) -> None:
    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic("trial", partitions=2, validate_only=True)
            assert await admin.topics() == []
            await admin.create_topic("orders", partitions=2, configs={"retention.ms": "5000"})
            await admin.create_topic("orders", exist_ok=True)
            with pytest.raises(TopicAlreadyExists, match="orders"):
                await admin.create_topic("orders")
            await admin.create_topic("bills")
            assert await admin.topics() == ["bills", "orders"]
            found = await admin.describe_topic("orders")
            assert [(each.partition, each.leader, each.in_sync) for each in found.partitions] == [
                (number, each.leader, each.replicas) for number, each in enumerate(found.partitions)
            ]
            assert len(found.partitions) == 2
            await admin.add_partitions("orders", total=4)
            assert len((await admin.describe_topic("orders")).partitions) == 4
            settings = await admin.topic_configs("orders")
            assert (settings["retention.ms"].value, settings["retention.ms"].is_default) == ("5000", False)
            assert settings["cleanup.policy"].is_default
            await admin.alter_topic("orders", {"retention.ms": None, "cleanup.policy": "compact"})
            settings = await admin.topic_configs("orders")
            assert settings["retention.ms"].is_default
            assert settings["cleanup.policy"].value == "compact"
            with pytest.raises(InvalidSetting, match="retention"):
                await admin.alter_topic("orders", {"retention.ms": "long"})
            with pytest.raises(WrongUse, match=r"retention\.ms is 5; values of settings are text, such as '5'"):
                await admin.alter_topic("orders", {"retention.ms": 5})  # type: ignore[dict-item]
            await admin.delete_topic("bills")
            await admin.delete_topic("bills", missing_ok=True)
            for wrong in (admin.delete_topic("bills"), admin.describe_topic("bills"), admin.topic_configs("bills")):
                with pytest.raises(UnknownTopicOrPartition, match="bills"):
                    await wrong
            assert await admin.topics() == ["orders"]

    run(scenario())


def test_the_cluster_and_its_settings_are_shown(broker: InProcessBroker) -> None:
    async def scenario() -> None:
        async with Admin(broker.bootstrap) as admin:
            cluster = await admin.cluster()
            (only,) = cluster.brokers
            assert f"{only.host}:{only.port}" == broker.bootstrap
            assert cluster.controller == only.node_id
            assert not only.is_fenced
            assert "num.partitions" in await admin.broker_configs(only.node_id)
        with pytest.raises(ClientClosed):
            await admin.cluster()

    run(scenario())


def test_groups_are_listed_described_reset_and_deleted(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    at = TopicPartition("orders", 0)

    async def scenario() -> None:
        await fill(broker, 20)
        async with Admin(broker.bootstrap, retry_seconds_max=2) as admin:
            async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen", client_id="cook") as consumer:
                await take(consumer, 5)
                await consumer.commit()
                assert await admin.groups() == {"kitchen": GroupListing("kitchen", "Stable", "consumer")}
                described = await admin.describe_group("kitchen")
                assert (described.protocol, described.state) == ("consumer", "Stable")
                (member,) = described.members
                assert (member.client_id, member.assigned) == ("cook", [at])
                (lag,) = await admin.group_lag("kitchen")
                assert (lag.at, lag.committed, lag.end, lag.messages) == (at, 5, 20, 15)
                with pytest.raises(GroupNotEmpty, match="stop them"):
                    await admin.reset_group("kitchen", "earliest")
                with pytest.raises(GroupNotEmpty):
                    await admin.delete_group("kitchen")
            reset = admin.reset_group
            assert await reset("kitchen", "latest", dry_run=True) == {at: 20}
            assert await admin.group_offsets("kitchen") == {at: 5}
            assert await reset("kitchen", {"shift": 3}) == {at: 8}
            assert await reset("kitchen", {"shift": 100}) == {at: 20}
            assert await reset("kitchen", {"timestamp": 1_007}) == {at: 7}
            assert await reset("kitchen", {at: 3}) == {at: 3}
            with pytest.raises(OffsetOutOfRange, match="which has 0 to 20"):
                await reset("kitchen", {at: 21})
            assert await admin.group_offsets("kitchen") == {at: 3}
            assert await reset("kitchen", "earliest") == {at: 0}
            assert await admin.group_offsets("kitchen") == {at: 0}
            with pytest.raises(WrongUse, match="to is"):
                await reset("kitchen", {"when": 1})
            with pytest.raises(WrongUse, match="has committed nothing"):
                await reset("cellar", "earliest")
            assert await reset("cellar", "latest", topics=["orders"]) == {at: 20}
            await admin.delete_group("kitchen")
            with pytest.raises(GroupNotFound, match="kitchen"):
                await admin.describe_group("kitchen")
            assert list(await admin.groups()) == ["cellar"]

    run(scenario())


def test_records_are_deleted_up_to_an_offset(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    at = TopicPartition("orders", 0)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_bytes=1) as producer:
            await producer.send_many("orders", [b"%d" % number for number in range(10)])
        async with Admin(broker.bootstrap) as admin:
            assert await admin.delete_records({at: 4}) == {at: 4}
        async with Consumer(broker.bootstrap, topics=["orders"]) as consumer:
            assert [each.offset for each in await take(consumer, 6)] == list(range(4, 10))

    run(scenario())


def test_a_group_is_behind_in_messages_and_in_seconds(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    first, second, third = (TopicPartition("orders", number) for number in range(3))

    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_bytes=1) as producer:
            for number in range(10):
                await producer.send("orders", b"x" * 2_000, partition=0, timestamp=1_000 * number)
                await producer.send("orders", b"x", partition=1, timestamp=1_000 * number)
        async with Consumer(broker.bootstrap, group="kitchen") as consumer:
            await consumer.assign(first, second, third)
            await consumer.commit({first: 3, second: 10, third: 0})
        async with Admin(broker.bootstrap, wall_ms=lambda: 20_000) as admin:
            assert [(each.at, each.messages, each.seconds) for each in await admin.group_lag("kitchen")] == [
                (first, 7, 17.0),
                (second, 0, 0.0),
                (third, 0, 0.0),
            ]
            await admin.reset_group("kitchen", {first: 1, second: 8})
            await admin.delete_records({first: 5})
            behind = [(each.at, each.messages, each.seconds) for each in await admin.group_lag("kitchen")]
            assert behind == [(first, 5, 15.0), (second, 2, 12.0), (third, 0, 0.0)]

    run(scenario())


def test_all_topics_and_where_their_partitions_start_and_end(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.create_topic("bills")
    first, second = (TopicPartition("orders", number) for number in range(2))

    async def scenario() -> None:
        await fill(broker, 5, partition=0)
        async with Admin(broker.bootstrap) as admin:
            found = await admin.describe_topics()
            assert [(each.name, len(each.partitions)) for each in found] == [("bills", 1), ("orders", 2)]
            assert await admin.offsets_at({first: "latest", second: "latest"}) == {first: 5, second: 0}
            assert await admin.offsets_at({first: "earliest"}) == {first: 0}
            assert await admin.offsets_at({first: 1_003}) == {first: 3}

    run(scenario())
