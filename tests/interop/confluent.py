"""confluent-kafka with the settings these tests share: no long back-offs, and every error is one."""

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.facts import FACT_SECONDS_MAX, new_name, until

POLL_SECONDS = 0.1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Reachable(Protocol):
    """A broker, or several."""

    @property
    def address(self) -> str: ...


def _settings(broker: Reachable, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "broker.address.family": "v4",
        "log_level": 2,
        **more,
    }


def new_producer(broker: Reachable, **settings: object) -> Producer:
    """`settings` by their names, with `_` for each dot."""
    return Producer(_settings(broker, {"linger.ms": 1, **_dotted(settings)}))


def new_consumer(broker: Reachable, **settings: object) -> Consumer:
    """In a new group, from the start, committing only when told to, unless `settings` say otherwise."""
    defaults = {
        "group.id": new_name("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
    }
    return Consumer(_settings(broker, {**defaults, **_dotted(settings)}))


def new_share_consumer(broker: Reachable, **settings: object) -> ShareConsumer:
    return ShareConsumer(_settings(broker, {"fetch.wait.max.ms": 50, **_dotted(settings)}))


def new_admin(broker: Reachable) -> AdminClient:
    return AdminClient(_settings(broker, {}))


def _dotted(settings: dict[str, object]) -> dict[str, object]:
    as_it_is = {"log_level"}
    return {
        name if callable(value) or name in as_it_is else name.replace("_", "."): value
        for name, value in settings.items()
    }


def new_topic(broker: Reachable, *, partitions: int = 1) -> str:
    name = new_name("topic")
    admin = new_admin(broker)  # held until it was answered: one that nobody holds gives up
    asked = admin.create_topics([NewTopic(name, partitions, 1)])
    asked[name].result(FACT_SECONDS_MAX)
    return name


def send(broker: Reachable, topic: str, values: Sequence[bytes], *, partition: int = 0, **settings: object) -> None:
    producer = new_producer(broker, **settings)
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(FACT_SECONDS_MAX) == 0
    assert failures == []


def receive(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages; more than that is an error too."""
    messages: list[Message] = []
    for _ in until(lambda: len(messages) >= count, what=f"{count} messages received"):
        for message in consumer.consume(count, POLL_SECONDS):
            assert message.error() is None, message.error()
            messages.append(message)
    assert len(messages) == count
    return messages


def read_from_start(broker: Reachable, topic: str, count: int, *, partition: int = 0) -> list[Message]:
    consumer = new_consumer(broker)
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        return receive(consumer, count)
    finally:
        consumer.close()


def values_of(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]
