"""The consumer against a real broker."""

import asyncio
from collections.abc import Collection

import pytest
from confluent_kafka import OFFSET_STORED
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from millpond.client import Consumer, Message, Producer, TopicPartition
from millpond.model.errors import ClientClosed, InvalidSetting, OffsetOutOfRange, UnknownTopicOrPartition, WrongUse
from millpond.testing.broker import InProcessBroker
from tests.client.conftest import run

ORDERS = TopicPartition("orders", 0)


async def fill(broker: InProcessBroker, count: int, *, topic: str = "orders", partition: int | None = None) -> None:
    async with Producer(broker.bootstrap) as producer:
        for number in range(count):
            await producer.send_soon(topic, b"%d" % number, partition=partition, timestamp=1_000 + number)


async def take(consumer: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < count:
        taken += await consumer.poll(count - len(taken))
    return taken


async def committed(consumer: Consumer, offset: int) -> None:
    """Asks until it is."""
    while await consumer.committed(ORDERS) != {ORDERS: offset}:
        pass


def values(messages: list[Message]) -> list[int]:
    return [int(each.value or b"") for each in messages]


def test_everything_is_read_in_order_from_the_start(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_bytes=300) as producer:
            for partition in range(3):
                await producer.send_many("orders", [b"%d" % number for number in range(100)], partition=partition)
            where = await producer.send("orders", b"100", key=b"k", headers={"h": b"x"}, partition=1)
        async with Consumer(broker.bootstrap, topics=["orders"]) as consumer:
            messages = await take(consumer, 301)
            assert await consumer.poll(10, timeout=0.01) == []
            for partition in range(3):
                mine = [each for each in messages if each.partition == partition]
                assert values(mine) == list(range(101 if partition == 1 else 100))
                assert [each.offset for each in mine] == list(range(len(mine)))
            (last,) = [each for each in messages if each.key]
            assert last == Message(where.offset, where.timestamp, b"k", b"100", (("h", b"x"),), "orders", 1)
            assert await consumer.lag() == {TopicPartition("orders", number): 0 for number in range(3)}

    run(scenario())


def test_messages_can_be_taken_one_by_one_and_some_together(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 20)
        async with Consumer(broker.bootstrap, topics="orders") as consumer:
            seen: list[Message] = []
            async for message in consumer:
                seen.append(message)
                assert consumer.position(ORDERS) == message.offset + 1
                if len(seen) == 5:
                    break
            seen += await consumer.poll(3)
            seen.append(await anext(consumer))
            seen += await take(consumer, 11)
            assert values(seen) == list(range(20))

    run(scenario())


async def poll_nothing_until_placed(consumer: Consumer) -> None:
    async with asyncio.timeout(30):
        while consumer.position(ORDERS) is None:
            assert await consumer.poll(1, timeout=0.05) == []


def test_reading_can_begin_anywhere(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 50)
        async with Consumer(broker.bootstrap) as consumer:
            await consumer.assign(ORDERS)
            consumer.seek(ORDERS, 30)
            assert values(await consumer.poll(2)) == [30, 31]
            consumer.seek_to_time(1_010, ORDERS)
            assert values(await consumer.poll(1)) == [10]
            consumer.seek_to_time(9_999)
            await poll_nothing_until_placed(consumer)
            assert consumer.position(ORDERS) == 50
            consumer.seek_to_start()
            assert values(await consumer.poll(3)) == [0, 1, 2]
            consumer.seek_to_end()
            await poll_nothing_until_placed(consumer)
            async with Producer(broker.bootstrap) as producer:
                await producer.send("orders", b"50")
            assert values(await take(consumer, 1)) == [50]
        async with Consumer(broker.bootstrap, topics=["orders"], reset="latest") as late:
            await poll_nothing_until_placed(late)
            assert late.position(ORDERS) == 51

    run(scenario())


def test_paused_partitions_wait_and_lose_nothing(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    other = TopicPartition("orders", 1)

    async def scenario() -> None:
        for partition in range(2):
            await fill(broker, 10, partition=partition)
        async with Consumer(broker.bootstrap, topics=["orders"]) as consumer:
            first = await anext(consumer)
            consumer.pause(first.at)
            rest = await take(consumer, 10)
            assert {each.at for each in rest} == {ORDERS, other} - {first.at}
            assert await consumer.poll(1, timeout=0.01) == []
            consumer.resume()
            assert values(await take(consumer, 9)) == list(range(1, 10))

    run(scenario())


def test_a_group_goes_on_where_it_stopped(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 30)
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as first:
            assert values(await take(first, 10)) == list(range(10))
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen", auto_commit=False) as second:
            assert values(await take(second, 10)) == list(range(10, 20))
            await second.commit()
            assert await second.committed() == {ORDERS: 20}
            assert values(await take(second, 5)) == list(range(20, 25))
            third_last = (await second.poll(1))[0]
            await second.commit(third_last)
            assert await second.committed(ORDERS) == {ORDERS: 26}
            await second.commit({ORDERS: 23})
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as third:
            assert values(await take(third, 7)) == list(range(23, 30))

    run(scenario())


def test_messages_of_a_block_that_failed_are_read_again(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 10)

        async def stumble() -> None:
            async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
                async for message in consumer:
                    assert 1 / (message.offset - 4) < 1

        with pytest.raises(ZeroDivisionError):
            await stumble()
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            assert values(await take(consumer, 6)) == list(range(4, 10))

    run(scenario())


def test_automatic_commits_say_what_is_dealt_with_and_no_more(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 10)
        options = {"topics": ["orders"], "group": "kitchen", "auto_commit_seconds": 0.01}
        async with Consumer(broker.bootstrap, **options) as consumer:  # type: ignore[arg-type]
            await take(consumer, 4)
            await committed(consumer, 0)
            message = (await consumer.poll(1))[0]
            await committed(consumer, message.offset)
            message = await anext(consumer)
            await committed(consumer, message.offset)

    run(scenario())


def test_members_share_partitions_and_hand_over_without_reading_twice(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=4)
    seen: list[tuple[int, int]] = []
    changes: list[tuple[str, int]] = []

    def listener(what: str) -> object:
        def note(places: Collection[TopicPartition]) -> None:
            changes.append((what, len(places)))

        return note

    async def read(consumer: Consumer, until: int) -> None:
        while len(seen) < until:
            seen.extend((each.partition, each.offset) for each in await consumer.poll(7, timeout=0.02))

    async def scenario() -> None:
        for partition in range(4):
            await fill(broker, 100, partition=partition)
        first = Consumer(
            broker.bootstrap,
            topics=["orders"],
            group="kitchen",
            on_assigned=listener("+"),  # type: ignore[arg-type]
            on_revoked=listener("-"),  # type: ignore[arg-type]
        )
        async with first:
            await read(first, 50)
            assert len(first.assignment) == 4
            async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as second:
                first.pause()
                while len(second.assignment) < 2:
                    assert await first.poll(1, timeout=0.01) == []
                    seen.extend((each.partition, each.offset) for each in await second.poll(1, timeout=0.01))
                first.resume()
                await asyncio.gather(read(first, 250), read(second, 250))
                assert len(first.assignment) == 2
                assert not first.assignment & second.assignment
            await read(first, 400)
            assert len(first.assignment) == 4

    run(scenario())
    assert len(set(seen)) == len(seen) == 400
    assert changes[:2] == [("+", 4), ("-", 2)]


def test_a_consumer_can_leave_and_subscribe_to_something_else(broker: InProcessBroker) -> None:
    for topic in ("orders", "bills"):
        broker.create_topic(topic)

    async def scenario() -> None:
        for topic in ("orders", "bills"):
            await fill(broker, 5, topic=topic)
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            assert values(await take(consumer, 2)) == [0, 1]
            await consumer.unsubscribe()
            assert consumer.assignment == frozenset()
            assert await consumer.poll(1, timeout=0.01) == []
            assert await consumer.committed(ORDERS) == {ORDERS: 2}
            await consumer.subscribe("bills")
            assert {each.topic for each in await take(consumer, 5)} == {"bills"}
            await consumer.subscribe("orders")
            assert values(await take(consumer, 3)) == [2, 3, 4]

    run(scenario())


def test_a_pattern_finds_topics_that_come_later(broker: InProcessBroker) -> None:
    broker.create_topic("orders-1")

    async def scenario() -> None:
        await fill(broker, 3, topic="orders-1")
        async with Consumer(broker.bootstrap, pattern="orders-.*", group="kitchen") as consumer:
            assert len(await take(consumer, 3)) == 3
            broker.create_topic("orders-2")
            await fill(broker, 3, topic="orders-2")
            assert {each.topic for each in await take(consumer, 3)} == {"orders-2"}

    run(scenario())


def test_a_static_member_finds_its_partitions_kept(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)

    async def scenario() -> None:
        for partition in range(2):
            await fill(broker, 5, partition=partition)
        options = {"topics": ["orders"], "group": "kitchen"}
        async with Consumer(broker.bootstrap, **options) as other:  # type: ignore[arg-type]
            async with Consumer(broker.bootstrap, instance_id="a", **options) as first:  # type: ignore[arg-type]
                while (len(first.assignment), len(other.assignment)) != (1, 1):  # not both to whoever came first
                    await first.poll(1, timeout=0.01)
                    await other.poll(1, timeout=0.01)
                had = first.assignment
            async with Consumer(broker.bootstrap, instance_id="a", **options) as again:  # type: ignore[arg-type]
                while not again.assignment:
                    await again.poll(1, timeout=0.01)
                assert again.assignment == had

    run(scenario())


def test_what_librdkafka_wrote_is_read_and_the_other_way_round(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    theirs = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        theirs.produce("orders", b"%d" % number, key=b"k", headers=[("h", b"1")])
    assert theirs.flush(30) == 0

    async def scenario() -> None:
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            messages = await take(consumer, 100)
            assert values(messages) == list(range(100))
            assert messages[0].headers == (("h", b"1"),)
        async with Producer(broker.bootstrap) as producer:
            await producer.send("orders", b"100", key=b"k", headers={"h": b"2"})

    run(scenario())
    reader = ConfluentConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "kitchen"})
    reader.assign([ConfluentPartition("orders", 0, OFFSET_STORED)])
    try:
        message = reader.poll(30)
        assert message is not None
        assert (message.offset(), message.value(), message.headers()) == (100, b"100", [("h", b"2")])
    finally:
        reader.close()


def test_a_group_without_an_offset_may_be_told_to_say_so(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 3)
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen", reset="error") as consumer:
            with pytest.raises(OffsetOutOfRange, match="has committed no offset of orders-0"):
                await take(consumer, 1)
            consumer.seek(ORDERS, 1)
            assert values(await take(consumer, 1)) == [1]
            consumer.seek(ORDERS, 99)
            with pytest.raises(OffsetOutOfRange, match="orders-0 has no offset 99"):
                await take(consumer, 1)
        async with Consumer(broker.bootstrap, topics=["orders"]) as lenient:
            lenient.seek(ORDERS, 99)
            assert values(await take(lenient, 1)) == [0]

    run(scenario())


def test_a_slow_application_is_not_drowned(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_bytes=10_000) as producer:
            await producer.send_many("orders", [b"%0100d" % number for number in range(5_000)])
        consumer = Consumer(
            broker.bootstrap,
            topics=["orders"],
            buffer_bytes=30_000,
            partition_bytes_max=20_000,
            fetch_bytes_max=20_000,
        )
        async with consumer:
            seen = 0
            while seen < 5_000:
                seen += len(await consumer.poll(10))
                assert consumer._positions.buffered_bytes <= 30_000 + 20_000

    run(scenario())


def test_wrong_use_of_a_consumer_is_explained(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        consumer = Consumer(broker.bootstrap, metadata_seconds_max=0.1)
        with pytest.raises(ClientClosed, match="async with"):
            await consumer.poll()
        async with consumer:
            with pytest.raises(WrongUse, match="there is no orders-3"):
                await consumer.assign(TopicPartition("orders", 3))
            with pytest.raises(WrongUse, match="assign was given 'orders'; it takes partitions"):
                await consumer.assign("orders")  # type: ignore[arg-type]
            with pytest.raises(UnknownTopicOrPartition, match="topic nowhere"):
                await consumer.subscribe("nowhere")
            with pytest.raises(WrongUse, match="orders-0 is not assigned"):
                consumer.seek(ORDERS, 1)
            with pytest.raises(WrongUse, match="kept for groups"):
                await consumer.commit()
            with pytest.raises(WrongUse, match="a pattern needs a group"):
                await consumer.subscribe(pattern="a.*")
        async with Consumer(broker.bootstrap, group="kitchen", topics=["orders"]) as member:
            with pytest.raises(WrongUse, match="its group assigns"):
                await member.assign(ORDERS)

    run(scenario())
    with pytest.raises(InvalidSetting, match="reset is 'first'; it is earliest, latest or error"):
        Consumer(reset="first")
    with pytest.raises(InvalidSetting, match="group is 5; it is a text"):
        Consumer(group=5)
    with pytest.raises(InvalidSetting, match="there is no option 'group_id'; there are assignor, auto_commit"):
        Consumer(group_id="kitchen")
    with pytest.raises(InvalidSetting, match="topics has 5; names of topics are text"):
        Consumer(topics=[5])  # type: ignore[list-item]
