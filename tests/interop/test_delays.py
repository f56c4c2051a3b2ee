"""Delayed messages with stock clients: whoever sends one, and whoever reads, it is seen when due and not before.

Consumers must go past the control batches in which messages are parked, whatever isolation they ask for, and past a log
that ends in one.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import KafkaException, Message, TopicPartition
from confluent_kafka.cimpl import NewTopic

from millpond.client.consumer import Consumer as OwnConsumer
from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import CODECS, new_admin, new_consumer, new_producer, read_from_start
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until
from tests.interop.foreign_client import ForeignClient
from tests.interop.test_aiokafka import consuming as aiokafka_consuming
from tests.interop.test_aiokafka import producing as aiokafka_producing
from tests.interop.test_aiokafka import run
from tests.interop.test_kafka_python import consuming as kafka_python_consuming
from tests.interop.test_kafka_python import producing as kafka_python_producing

pytestmark = pytest.mark.slow
DELAY_MS = 1_000
ISOLATIONS = ("read_uncommitted", "read_committed")
Read = Callable[[BrokerProcess, str, int, str], list[tuple[str, float]]]
"""So many values, each with the moment at which it was seen."""


def new_topic(broker: BrokerProcess) -> str:
    name = new_name("delayed")
    admin = new_admin(broker)
    admin.create_topics([NewTopic(name, 1, 1, config={"millpond.delay": "on"})])[name].result(FACT_SECONDS_MAX)
    return name


class Sender:
    """One idempotent producer for all messages of a test, so that they follow one another quickly."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._producer = new_producer(broker, enable_idempotence=True)
        self._topic = topic
        self._offsets: list[int] = []

    def send(self, value: str, delay_ms: int | None = None) -> int:
        headers: dict[str, str | bytes | None] = {} if delay_ms is None else {"millpond-delay-ms": str(delay_ms)}
        self._producer.produce(
            self._topic, value.encode(), partition=0, headers=headers, on_delivery=self._note_delivery
        )
        assert self._producer.flush(FACT_SECONDS_MAX) == 0
        return self._offsets[-1]

    def _note_delivery(self, error: object, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        self._offsets.append(offset)


def read_by_librdkafka(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []
    with closing(new_consumer(broker, isolation_level=isolation)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in until(lambda: len(seen) >= count, what=f"{count} messages"):
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                seen.append(((message.value() or b"").decode(), time.time()))
    return seen


def read_by_aiokafka(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []

    async def read() -> None:
        async with aiokafka_consuming(broker, topic, isolation_level=isolation) as consumer:
            while len(seen) < count:
                seen.append(((await consumer.getone()).value.decode(), time.time()))

    run(read)
    return seen


def read_by_kafka_python(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []
    with kafka_python_consuming(broker, topic, isolation_level=isolation) as consumer:
        for _ in until(lambda: len(seen) >= count, what=f"{count} messages"):
            for part in consumer.poll(timeout_ms=100).values():
                seen.extend((record.value.decode(), time.time()) for record in part)
    return seen


def read_by_millpond(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []

    async def read() -> None:
        async with OwnConsumer(broker.address, topics=[topic], group=new_name("group")) as consumer:
            async for message in consumer:
                seen.append(((message.value or b"").decode(), time.time()))
                if len(seen) == count:
                    return

    async def bounded() -> None:
        await asyncio.wait_for(read(), FACT_SECONDS_MAX)

    asyncio.run(bounded())
    return seen


READERS = (read_by_librdkafka, read_by_aiokafka, read_by_kafka_python, read_by_millpond)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("read", READERS, ids=lambda each: each.__name__)
def test_every_consumer_sees_it_when_it_is_due_and_not_before(
    broker: BrokerProcess, read: Read, isolation: str
) -> None:
    topic = new_topic(broker)
    sender = Sender(broker, topic)
    sender.send("first")
    began = time.time()
    assert sender.send("later", DELAY_MS) == 1
    assert sender.send("second") == 2
    assert sender.send("never", 3_600_000) == 3  # the log ends in a control batch
    seen = read(broker, topic, 3, isolation)
    assert [value for value, _ in seen] == ["first", "second", "later"]
    assert seen[-1][1] >= began + DELAY_MS / 1000
    # And from the start again, with what came behind.
    sender.send("third")
    assert [value for value, _ in read(broker, topic, 4, isolation)] == ["first", "second", "later", "third"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("read", READERS, ids=lambda each: each.__name__)
def test_every_consumer_goes_past_what_was_put_aside_of_a_batch(
    broker: BrokerProcess, read: Read, isolation: str
) -> None:
    """At its start, in its middle and at its end."""
    topic = new_topic(broker)
    producer = new_producer(broker, linger_ms=200, enable_idempotence=True)
    never: dict[str, str | bytes | None] = {"millpond-delay-ms": "3600000"}
    for number in range(9):
        producer.produce(topic, b"%d" % number, partition=0, headers=never if number in (0, 1, 4, 7, 8) else {})
    assert producer.flush(FACT_SECONDS_MAX) == 0
    assert [value for value, _ in read(broker, topic, 4, isolation)] == ["2", "3", "5", "6"]
    Sender(broker, topic).send("next")
    assert [value for value, _ in read(broker, topic, 5, isolation)] == ["2", "3", "5", "6", "next"]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_librdkafka_are_looked_into_whatever_their_codec(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker, linger_ms=200, compression_type=codec, enable_idempotence=True)
    told: dict[bytes | None, int | None] = {}
    for number in range(50):
        delay: dict[str, str | bytes | None] = {"millpond-delay-ms": str(DELAY_MS + number)}
        producer.produce(
            topic,
            b"%d" % number,
            partition=0,
            headers=delay if number % 2 else {},
            on_delivery=lambda _, message: told.update({message.value(): message.offset()}),
        )
    assert producer.flush(FACT_SECONDS_MAX) == 0
    seen = read_by_librdkafka(broker, topic, 50, "read_uncommitted")
    expected = [*range(0, 50, 2), *range(1, 50, 2)]
    assert [int(value) for value, _ in seen] == expected
    for message in read_from_start(broker, topic, 50):
        headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
        place = headers.get("millpond-message-id", b"%s/0/%d" % (topic.encode(), message.offset() or 0))
        assert place == b"%s/0/%d" % (topic.encode(), told[message.value()] or 0)


def test_aiokafka_and_kafka_python_send_delayed_messages(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    header = ("millpond-delay-ms", str(DELAY_MS).encode())

    async def produce() -> None:
        async with aiokafka_producing(broker, enable_idempotence=True) as producer:
            assert (await producer.send_and_wait(topic, b"aiokafka", partition=0, headers=[header])).offset == 0

    run(produce)
    with kafka_python_producing(broker) as producer:
        sent = producer.send(topic, b"kafka-python", partition=0, headers=[header])
        assert sent.get(FACT_SECONDS_MAX).offset == 1
    Sender(broker, topic).send("now")
    assert {value for value, _ in read_by_librdkafka(broker, topic, 3, "read_committed")} == {
        "now",
        "aiokafka",
        "kafka-python",
    }


def test_a_delay_beyond_the_cap_is_refused_with_the_reason(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    failures: list[object] = []
    producer = new_producer(broker)
    producer.produce(
        topic, b"x", headers=[("millpond-delay-ms", b"99999999999999")], on_delivery=lambda e, _: failures.append(e)
    )
    assert producer.flush(FACT_SECONDS_MAX) == 0
    assert [each.name() for each in failures] == ["INVALID_RECORD"]  # type: ignore[attr-defined]


def test_a_topic_is_delayed_or_compacted_and_not_both(broker: BrokerProcess) -> None:
    admin = new_admin(broker)
    name = new_name("both")
    asked = admin.create_topics([NewTopic(name, 1, 1, config={"millpond.delay": "on", "cleanup.policy": "compact"})])
    with pytest.raises(KafkaException, match="allowed is one of them"):
        asked[name].result(FACT_SECONDS_MAX)


def test_the_java_consumer_goes_past_parked_messages(broker: BrokerProcess, java: ForeignClient) -> None:
    topic = new_topic(broker)
    sender = Sender(broker, topic)
    sender.send("first")
    later = {"value": "later", "headers": [["millpond-delay-ms", str(DELAY_MS)]]}
    assert java.ask("produce", topic=topic, records=[later], settings={}) == [[0, 1]]
    sender.send("second")
    sender.send("never", 3_600_000)
    never = {"value": "never", "headers": [["millpond-delay-ms", "3600000"]]}
    java.ask("produce", topic=topic, records=[never, {"value": "third"}, never], settings={"linger.ms": "200"})
    for isolation in ISOLATIONS:
        name = new_name("reader")
        java.ask("open", name=name, settings={"isolation.level": isolation})
        java.ask("assign", name=name, partitions=[[topic, 0]])
        java.ask("seek", name=name, offsets=[[topic, 0, 0]])
        assert [each["value"] for each in java.receive(name, 4)] == ["first", "second", "third", "later"]
        java.ask("close", name=name)
