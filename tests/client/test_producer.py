"""The producer against a real broker."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from millpond.client import Delivery, Producer, RecordMetadata
from millpond.model.errors import (
    BatchTooLarge,
    BrokerUnreachable,
    ClientClosed,
    InvalidSetting,
    UnknownTopicOrPartition,
    WrongUse,
)
from millpond.model.ids import Offset
from millpond.testing.broker import InProcessBroker
from tests.client.conftest import run
from tests.client.reading import read_all


def test_a_message_is_where_its_acknowledgement_says(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            where = await producer.send(
                "orders", b"coffee", key=b"table", headers={"a": b"1", "b": None}, partition=2, timestamp=12345
            )
            assert where == RecordMetadata("orders", 2, Offset(0), 12345)  # type: ignore[arg-type]
            assert (await producer.send("orders", None, key=b"table", partition=2)).offset == 1

    run(scenario())
    first, second = read_all(broker, "orders")[2]
    assert (first.key, first.value, first.timestamp) == (b"table", b"coffee", 12345)
    assert first.headers == (("a", b"1"), ("b", None))
    assert second.value is None


def test_deliveries_can_be_awaited_later_and_call_back(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    called: list[int] = []

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            deliveries: list[Delivery] = []
            for number in range(100):
                delivery = await producer.send_soon("orders", b"%d" % number)
                delivery.on_done(lambda done: called.append(done.result().offset))
                deliveries.append(delivery)
            await producer.flush()
            assert all(each.is_done for each in deliveries)
            assert [(await each).offset for each in deliveries] == list(range(100))

    run(scenario())
    assert called == list(range(100))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_messages_arrive_in_order_in_every_compression(broker: InProcessBroker, compression: str) -> None:
    broker.create_topic("orders")
    values = [b"value %d" % number for number in range(20_000)]

    async def scenario() -> None:
        async with Producer(broker.bootstrap, compression=compression, batch_bytes=20_000) as producer:
            written = await producer.send_many("orders", iter(values))
            assert sum(each.count for each in written) == len(values)
            assert [each.offset for each in written[:2]] == [0, written[0].count]
            assert (await producer.send("orders", b"last")).offset == len(values)

    run(scenario())
    assert [each.value for each in read_all(broker, "orders")[0]] == [*values, b"last"]


def test_many_keyed_messages_go_where_their_keys_belong_and_keep_their_order(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=4)
    keys = [b"key %d" % (number % 37) for number in range(5_000)]
    values = [b"%d" % number for number in range(5_000)]

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many("orders", values, keys=keys)
            for key in set(keys):
                await producer.send("orders", b"9999", key=key)

    run(scenario())
    homes: dict[bytes, int] = {}
    for partition, records in read_all(broker, "orders").items():
        numbers: dict[bytes, list[int]] = {}
        for each in records:
            assert each.key is not None
            assert homes.setdefault(each.key, partition) == partition
            numbers.setdefault(each.key, []).append(int(each.value or b""))
        assert all(found == sorted(found) for found in numbers.values())
    assert len(homes) == 37


def test_keys_land_where_librdkafkas_murmur2_puts_them(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=7)
    keys = [b"k" * (number % 9) + b"%d" % number for number in range(300)]
    theirs = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce("orders", b"theirs", key=key)
    assert theirs.flush(30) == 0

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many("orders", [b"ours"] * len(keys), keys=keys)

    run(scenario())
    homes: dict[bytes, set[int]] = {}
    for partition, records in read_all(broker, "orders").items():
        for each in records:
            homes.setdefault(each.key or b"", set()).add(partition)
    assert len(homes) == len(keys)
    assert all(len(found) == 1 for found in homes.values())


def test_messages_without_a_key_are_spread_batch_by_batch(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, batch_bytes=1_000) as producer:
            await producer.send_many("orders", [b"x" * 100] * 100)

    run(scenario())
    assert all(len(records) > 20 for records in read_all(broker, "orders").values())


def test_a_partitioner_of_ones_own(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)

    async def scenario() -> None:
        async with Producer(broker.bootstrap, partitioner=lambda topic, key, partitions: len(key or b"")) as producer:
            assert (await producer.send("orders", b"", key=b"aa")).partition == 2
            with pytest.raises(WrongUse, match="chose partition 5"):
                await producer.send("orders", b"", key=b"aaaaa")

    run(scenario())


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), ("leader", 0), ("none", -1)])
def test_acknowledgements_come_as_they_were_asked_for(broker: InProcessBroker, acks: str, offset: int) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        async with Producer(broker.bootstrap, acks=acks) as producer:
            assert (await producer.send("orders", b"one")).offset == offset
            await producer.send("orders", b"two")

    run(scenario())
    while len(found := read_all(broker, "orders")[0]) < 2:
        pass  # with acks of none the broker may still be at it
    assert [each.value for each in found] == [b"one", b"two"]


def test_a_full_buffer_makes_senders_wait_in_turn(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        async with Producer(broker.bootstrap, buffer_bytes=2_000, batch_bytes=500) as producer:
            outbox = producer._outbox
            most = 0

            async def send(number: int) -> Delivery:
                nonlocal most
                delivery = await producer.send_soon("orders", b"%05d" % number * 20)
                most = max(most, outbox.buffered_bytes)
                return delivery

            deliveries = await asyncio.gather(*(send(number) for number in range(200)))
            await producer.flush()
            assert most <= 2_000 + 61 * 6
            assert [each.result().offset for each in deliveries] == list(range(200))
            await producer.send("orders", b"x" * 5_000)

    run(scenario())


def test_a_topic_is_made_when_it_is_first_sent_to_or_said_not_to_be_there(broker: InProcessBroker) -> None:
    async def scenario() -> None:
        async with Producer(broker.bootstrap, create_topics=False, metadata_seconds_max=0.2) as careful:
            with pytest.raises(UnknownTopicOrPartition, match="topic orders: there is no such topic"):
                await careful.send("orders", b"")
        async with Producer(broker.bootstrap) as producer:
            assert (await producer.send("orders", b"")).offset == 0

    run(scenario())


def test_what_the_broker_refuses_fails_alone(broker: InProcessBroker) -> None:
    broker.create_topic("orders", configs={"max.message.bytes": "1000"})

    async def scenario() -> None:
        async with Producer(broker.bootstrap) as producer:
            deliveries = [await producer.send_soon("orders", b"x" * size) for size in (10, 300, 2_000, 20, 300)]
            with pytest.raises(BatchTooLarge, match="orders-0"):
                await deliveries[2]
            others = [await each for number, each in enumerate(deliveries) if number != 2]
            assert [each.offset for each in others] == [0, 1, 2, 3]
            assert (await producer.send("orders", b"after")).offset == 4

    run(scenario())


def test_a_broker_that_comes_back_is_sent_to_again_and_nothing_is_there_twice(tmp_path: object) -> None:
    with InProcessBroker(data_directory=str(tmp_path)) as first:
        first.create_topic("orders")
        port = first.broker.port

        async def scenario() -> None:
            async with Producer(f"127.0.0.1:{port}") as producer:
                await producer.send("orders", b"0")
                await asyncio.to_thread(first.stop)
                deliveries = [await producer.send_soon("orders", b"%d" % number) for number in range(1, 50)]
                assert not deliveries[0].is_done
                again = InProcessBroker(data_directory=str(tmp_path), port=port)
                await asyncio.to_thread(again.start)
                try:
                    assert [(await each).offset for each in deliveries] == list(range(1, 50))
                finally:
                    found.extend(each.value for each in await asyncio.to_thread(lambda: read_all(again, "orders")[0]))
                    await asyncio.to_thread(again.stop)

        found: list[bytes | None] = []
        run(scenario())
    assert found == [b"%d" % number for number in range(50)]


WRONG_USES: list[tuple[dict[str, Any], str]] = [
    ({"headers": {"waiter": "Ada"}}, "header waiter is of type str; values of headers are bytes"),
    ({"headers": [("waiter", 7)]}, "header waiter is of type int; values of headers are bytes"),
    ({"headers": {b"waiter": b"Ada"}}, "a header's name is b'waiter'; names of headers are text"),
    ({"headers": ["waiter"]}, "headers has 'waiter'; it is pairs of a name and bytes, or a mapping"),
    ({"headers": 7}, "headers is 7; it is pairs of a name and bytes, or a mapping"),
    ({"partition": "0"}, "partition is '0'; it is a whole number"),
    ({"timestamp": 1.5}, "timestamp is 1.5; it is a whole number of milliseconds since 1970"),
    ({"timestamp": 2**63}, "timestamp is 9223372036854775808; it is a whole number"),
    ({"topic": 5}, "topic is 5; it is a text"),
    ({"topic": b"orders"}, "topic is b'orders'; it is a text"),
]


def test_wrong_use_is_explained(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)

    async def scenario() -> None:
        producer = Producer(broker.bootstrap)
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send("orders", b"")
        async with producer:
            with pytest.raises(WrongUse, match="of type str; messages are bytes"):
                await producer.send("orders", "text")  # type: ignore[arg-type]
            with pytest.raises(WrongUse, match="of type str"):
                await producer.send_many("orders", ["text"])  # type: ignore[list-item]
            with pytest.raises(WrongUse, match="partitions 0 to 1; there is no 2"):
                await producer.send("orders", b"", partition=2)
            with pytest.raises(WrongUse, match="1 keys for 2 values"):
                await producer.send_many("orders", [b"", b""], keys=[b"k"])
            for wrong, said in WRONG_USES:
                with pytest.raises(WrongUse, match=said):
                    await producer.send(**{"topic": "orders", "value": b"", **wrong})
            with pytest.raises(WrongUse, match=r"timestamp is 1\.5; it is a whole number of milliseconds since 1970"):
                await producer.send_many("orders", [b""], timestamp=1.5)  # type: ignore[arg-type]
            assert (await producer.send("orders", b"all the same", partition=0)).offset == 0, "nobody else suffers"
        with pytest.raises(ClientClosed):
            await producer.send("orders", b"")

    run(scenario())


def test_nobody_there_is_said_with_the_address() -> None:
    async def scenario() -> None:
        with pytest.raises(BrokerUnreachable, match=r"no broker answers at 127\.0\.0\.1:1 "):
            async with Producer("127.0.0.1:1", connect_seconds_max=0.1):
                pass

    run(scenario())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"acks": "some"}, "acks is 'some'; it is all, leader or none"),
        ({"acks": "leader", "idempotent": True}, "only with acks 'all'"),
        ({"linger_ms": -1}, "linger_ms is -1"),
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"in_flight_max": 6}, "in_flight_max is 6; it is 1 to 5"),
        ({"partitioner": "by-colour"}, "partitioner is 'by-colour'"),
        ({"batch_bytes": "many"}, "batch_bytes is 'many'; it is a number"),
        ({"client_id": 7}, "client_id is 7; it is a text"),
        ({"lingerms": 7}, "there is no option 'lingerms'; there are acks, backoff, batch_bytes"),
    ],
)
def test_settings_are_checked_at_the_door(options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        Producer("localhost:9092", **options)
    with pytest.raises(InvalidSetting, match="a broker is host:port"):
        Producer("localhost:none")
    with pytest.raises(InvalidSetting, match="at least one broker"):
        Producer("")
