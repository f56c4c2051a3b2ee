"""The same work by four clients: sending many at once, sending one by one, reading one by one, reading in batches.

Each way sends to, or reads from, partition 0 of a topic, waits for every acknowledgement (of all replicas, as
idempotently as the client can), and counts what it read. Clients are used as their documents show, with settings for
throughput.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition

from bench.client.works import AIOKAFKA, CONFLUENT, ITERATE, KAFKA_PYTHON, MILLPOND, POLL, SEND, SEND_MANY
from millpond.client import Consumer, Producer, TopicPartition

MESSAGE: Final = b"x" * 100
CHUNK: Final = 10_000
SECONDS_MAX: Final = 300.0
Way = Callable[[str, str, int], None]
"""From address, topic and number of messages."""


def on_a_loop(work: Callable[[str, str, int], Coroutine[Any, Any, None]]) -> Way:
    """On uvloop, for the clients that can choose."""

    def run(address: str, topic: str, count: int) -> None:
        uvloop.run(work(address, topic, count))

    return run


# Millpond


async def millpond_send_many(address: str, topic: str, count: int) -> None:
    async with Producer(address) as producer:
        await producer.send_many(topic, [MESSAGE] * count, partition=0)


async def millpond_send(address: str, topic: str, count: int) -> None:
    async with Producer(address) as producer:
        for _ in range(count):
            await producer.send_soon(topic, MESSAGE, partition=0)


async def millpond_iterate(address: str, topic: str, count: int) -> None:
    async with Consumer(address) as consumer:
        await consumer.assign(TopicPartition(topic, 0))
        async for _ in consumer:
            count -= 1
            if not count:
                return


async def millpond_poll(address: str, topic: str, count: int) -> None:
    async with Consumer(address) as consumer:
        await consumer.assign(TopicPartition(topic, 0))
        while count > 0:
            count -= len(await consumer.poll(CHUNK))


# confluent-kafka

_CONFLUENT_PRODUCER: Final[dict[str, str | int | float | bool]] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
_CONFLUENT_CONSUMER: Final[dict[str, str | int | float | bool]] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 5,
}


def confluent_send_many(address: str, topic: str, count: int) -> None:
    producer = ConfluentProducer({"bootstrap.servers": address, **_CONFLUENT_PRODUCER})
    messages = [{"value": MESSAGE}] * CHUNK
    for first in range(0, count, CHUNK):
        producer.produce_batch(topic, messages[: count - first], partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def confluent_send(address: str, topic: str, count: int) -> None:
    producer = ConfluentProducer({"bootstrap.servers": address, **_CONFLUENT_PRODUCER})
    for number in range(count):
        producer.produce(topic, MESSAGE, partition=0)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0


def confluent_iterate(address: str, topic: str, count: int) -> None:
    consumer = _confluent_consumer(address, topic)
    while count > 0:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.value() is not None
        count -= 1
    consumer.close()


def confluent_poll(address: str, topic: str, count: int) -> None:
    consumer = _confluent_consumer(address, topic)
    while count > 0:
        count -= len(consumer.consume(num_messages=min(count, CHUNK), timeout=SECONDS_MAX))
    consumer.close()


def _confluent_consumer(address: str, topic: str) -> ConfluentConsumer:
    consumer = ConfluentConsumer({"bootstrap.servers": address, **_CONFLUENT_CONSUMER})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    return consumer


# aiokafka


async def aiokafka_send_many(address: str, topic: str, count: int) -> None:
    """By batches that the caller fills, which is its fastest way."""
    async with _aiokafka_producer(address) as producer:
        futures, batch = [], producer.create_batch()
        for _ in range(count):
            if batch.append(key=None, value=MESSAGE, timestamp=None) is None:
                futures.append(await producer.send_batch(batch, topic, partition=0))
                batch = producer.create_batch()
                batch.append(key=None, value=MESSAGE, timestamp=None)
        futures.append(await producer.send_batch(batch, topic, partition=0))
        await asyncio.gather(*futures)


async def aiokafka_send(address: str, topic: str, count: int) -> None:
    async with _aiokafka_producer(address) as producer:
        for _ in range(count):
            await producer.send(topic, MESSAGE, partition=0)
        await producer.flush()


def _aiokafka_producer(address: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, max_batch_size=500_000, linger_ms=5
    )


async def aiokafka_iterate(address: str, topic: str, count: int) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False) as consumer:
        consumer.assign([AioPartition(topic, 0)])
        await consumer.seek_to_beginning()
        async for _ in consumer:
            count -= 1
            if not count:
                return


async def aiokafka_poll(address: str, topic: str, count: int) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False) as consumer:
        consumer.assign([AioPartition(topic, 0)])
        await consumer.seek_to_beginning()
        while count > 0:
            found = await consumer.getmany(timeout_ms=1_000, max_records=CHUNK)
            count -= sum(map(len, found.values()))


# kafka-python


def kafka_python_send(address: str, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all", batch_size=500_000, linger_ms=5)
    for _ in range(count):
        producer.send(topic, MESSAGE, partition=0)
    producer.flush()
    producer.close()


def kafka_python_iterate(address: str, topic: str, count: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    consumer.assign([KafkaPartition(topic, 0)])
    consumer.seek_to_beginning()
    for _ in consumer:
        count -= 1
        if not count:
            break
    consumer.close()


def kafka_python_poll(address: str, topic: str, count: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    consumer.assign([KafkaPartition(topic, 0)])
    consumer.seek_to_beginning()
    while count > 0:
        count -= sum(map(len, consumer.poll(timeout_ms=1_000, max_records=CHUNK).values()))
    consumer.close()


WAYS: Final[dict[str, dict[str, Way]]] = {
    SEND_MANY: {
        MILLPOND: on_a_loop(millpond_send_many),
        CONFLUENT: confluent_send_many,
        AIOKAFKA: on_a_loop(aiokafka_send_many),
        KAFKA_PYTHON: kafka_python_send,
    },
    SEND: {
        MILLPOND: on_a_loop(millpond_send),
        CONFLUENT: confluent_send,
        AIOKAFKA: on_a_loop(aiokafka_send),
        KAFKA_PYTHON: kafka_python_send,
    },
    ITERATE: {
        MILLPOND: on_a_loop(millpond_iterate),
        CONFLUENT: confluent_iterate,
        AIOKAFKA: on_a_loop(aiokafka_iterate),
        KAFKA_PYTHON: kafka_python_iterate,
    },
    POLL: {
        MILLPOND: on_a_loop(millpond_poll),
        CONFLUENT: confluent_poll,
        AIOKAFKA: on_a_loop(aiokafka_poll),
        KAFKA_PYTHON: kafka_python_poll,
    },
}
