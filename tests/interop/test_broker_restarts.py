"""The broker is stopped, or killed, under running clients, and comes back: they go on, and nothing kept is gone."""

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import new_consumer, new_producer, new_topic, read_from_start, receive, send, values_of
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    from kafka import KafkaConsumer, KafkaProducer

ENDS: dict[str, Callable[[BrokerProcess], None]] = {"stopped": BrokerProcess.stop, "killed": BrokerProcess.kill}
GROUPS = {
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
MESSAGES = 12_000
POLL_SECONDS = 0.05


class Sending:
    """An idempotent producer in its thread, with as much under way as it likes."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._producer = new_producer(broker, enable_idempotence=True, queue_buffering_max_messages=1_000)
        self._topic = topic
        self.acknowledged: list[bytes | None] = []
        self.errors: list[KafkaError] = []
        self._thread = threading.Thread(target=self._send, name="sending")
        self._thread.start()

    def _send(self) -> None:
        for number in range(MESSAGES):
            while True:
                try:
                    self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._on_delivery)
                    break
                except BufferError:
                    self._producer.poll(POLL_SECONDS)
        self._producer.flush(FACT_SECONDS_MAX)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value())

    def wait_acknowledged(self, count: int) -> None:
        pause = threading.Event()
        for _ in until(lambda: len(self.acknowledged) >= count, what=f"{count} acknowledged"):
            pause.wait(0.001)

    def join(self) -> None:
        self._thread.join(FACT_SECONDS_MAX)
        assert not self._thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_an_idempotent_producer_goes_on_without_a_loss_or_a_duplicate(own_broker: BrokerProcess, end: str) -> None:
    topic = new_topic(own_broker)
    sending = Sending(own_broker, topic)
    for count in (1_000, 5_000):
        sending.wait_acknowledged(count)
        ENDS[end](own_broker)
        assert len(sending.acknowledged) < MESSAGES, "the broker ended before the producer did"
        own_broker.start()
    sending.join()
    assert sending.errors == []
    wanted = [b"%d" % number for number in range(MESSAGES)]
    assert sending.acknowledged == wanted
    assert values_of(read_from_start(own_broker, topic, MESSAGES)) == wanted
    consumer = new_consumer(own_broker)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=FACT_SECONDS_MAX) == (0, MESSAGES)
    consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_member_goes_on_where_it_was(own_broker: BrokerProcess, group: str, end: str) -> None:
    topic = new_topic(own_broker)
    send(own_broker, topic, [b"%d" % number for number in range(10)])
    member = new_consumer(own_broker, **GROUPS[group])
    member.subscribe([topic])
    messages = receive(member, 10)
    member.commit(message=messages[7], asynchronous=False)
    ENDS[end](own_broker)
    own_broker.start()
    (kept,) = member.committed([TopicPartition(topic, 0)], timeout=FACT_SECONDS_MAX)
    assert kept.offset == 8
    send(own_broker, topic, [b"later"])
    last = _receive_through_trouble(member)
    assert last.value() == b"later", "read on, neither again nor past it"
    _commit_through_trouble(member, last)
    member.close()


def _receive_through_trouble(member: Consumer) -> Message:
    """The next message; that the broker was away for a while is told as an error, and is none here."""
    found: list[Message] = []
    for _ in until(lambda: found, what="a message after the broker is back"):
        found.extend(each for each in member.consume(1, POLL_SECONDS) if each.error() is None)
    return found[0]


def _commit_through_trouble(member: Consumer, message: Message) -> None:
    """A member may still be finding its group again."""
    kept: list[TopicPartition] = []
    for _ in until(lambda: kept, what="a commit is kept"):
        try:
            kept.extend(member.commit(message=message, asynchronous=False))
        except KafkaException:
            member.consume(1, POLL_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_aiokafka_clients_go_on(own_broker: BrokerProcess, end: str) -> None:
    topic = new_topic(own_broker)

    async def work() -> list[bytes | None]:
        settings = {"bootstrap_servers": own_broker.address, "retry_backoff_ms": 50}
        producer = AIOKafkaProducer(**settings, enable_idempotence=True)
        consumer = AIOKafkaConsumer(topic, **settings, group_id=new_name("group"), auto_offset_reset="earliest")
        await producer.start()
        await consumer.start()
        seen = []
        try:
            await producer.send_and_wait(topic, b"before")
            seen.append((await consumer.getone()).value)
            await asyncio.to_thread(ENDS[end], own_broker)
            sent = await producer.send(topic, b"meanwhile")
            await asyncio.to_thread(own_broker.start)
            await sent
            await producer.send_and_wait(topic, b"after")
            seen += [(await consumer.getone()).value for _ in range(2)]
        finally:
            await consumer.stop()
            await producer.stop()
        return seen

    assert asyncio.run(asyncio.wait_for(work(), FACT_SECONDS_MAX)) == [b"before", b"meanwhile", b"after"]
    assert values_of(read_from_start(own_broker, topic, 3)) == [b"before", b"meanwhile", b"after"]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning"
)  # kafka-python drops sockets it could not connect
@pytest.mark.parametrize("end", ENDS)
def test_kafka_python_clients_go_on(own_broker: BrokerProcess, end: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="kafka")  # a kept log record holds on to the dropped sockets
    topic = new_topic(own_broker)
    seen = _with_kafka_python(own_broker, topic, ENDS[end])
    gc.collect()  # here, where what it dropped is allowed for
    assert seen == [b"before", b"meanwhile", b"after"]
    assert values_of(read_from_start(own_broker, topic, 3)) == seen


def _with_kafka_python(broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], None]) -> list[bytes | None]:
    settings = {"bootstrap_servers": broker.address, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}
    producer = KafkaProducer(**settings)
    consumer = KafkaConsumer(topic, **settings, group_id=new_name("group"), auto_offset_reset="earliest")
    seen: list[bytes | None] = []

    def read(count: int) -> None:
        for _ in until(lambda: len(seen) >= count, what=f"{count} records received"):
            for part in consumer.poll(timeout_ms=50).values():
                seen.extend(record.value for record in part)

    try:
        producer.send(topic, b"before").get(FACT_SECONDS_MAX)
        read(1)
        end(broker)
        sent = producer.send(topic, b"meanwhile")
        broker.start()
        sent.get(FACT_SECONDS_MAX)
        producer.send(topic, b"after").get(FACT_SECONDS_MAX)
        read(3)
    finally:
        consumer.close()
        producer.close()
    return seen
