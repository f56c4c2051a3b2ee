"""confluent-kafka: what is produced is what is consumed."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import (
    CODECS,
    new_admin,
    new_consumer,
    new_producer,
    new_topic,
    read_from_start,
    receive,
    send,
    values_of,
)
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until

BASE_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    values = [b"order %d " % number + b"x" * 100 for number in range(1_000)]
    send(broker, topic, values, compression_type=codec)
    assert values_of(read_from_start(broker, topic, len(values))) == values


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_are_kept_side_by_side_in_one_partition(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    values = [b"one " * 50, b"two " * 50, b"three " * 50]
    for each, value in zip(("none", codec, "gzip"), values, strict=True):
        send(broker, topic, [value], compression_type=each)
    assert values_of(read_from_start(broker, topic, 3)) == values


def test_headers_and_missing_keys_and_values_are_kept(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker)
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("trace", b"again"),
        ("empty", b""),
        ("nothing", None),
    ]
    producer.produce(topic, b"value", b"key", headers=headers)
    producer.produce(topic, None, b"gone")
    producer.produce(topic, b"alone", None)
    producer.produce(topic, b"", b"")
    producer.produce(topic, None, None)
    assert producer.flush(FACT_SECONDS_MAX) == 0
    messages = read_from_start(broker, topic, 5)
    assert messages[0].headers() == headers
    assert [(each.key(), each.value()) for each in messages] == [
        (b"key", b"value"),
        (b"gone", None),
        (None, b"alone"),
        (b"", b""),
        (None, None),
    ]
    assert [each.offset() for each in messages] == list(range(5))


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_900_kilobytes_pass(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    values = [bytes([number]) * 900_000 for number in range(4)]
    send(broker, topic, values, compression_type=codec)
    assert values_of(read_from_start(broker, topic, 4)) == values


def test_a_message_too_large_for_its_topic_is_refused_and_the_producer_goes_on(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    outcomes: list[str] = []
    producer = new_producer(broker, message_max_bytes=4_000_000)
    for size in (2_000_000, 10):
        producer.produce(
            topic, b"x" * size, on_delivery=lambda error, _: outcomes.append(error.name() if error else "kept")
        )
        assert producer.flush(FACT_SECONDS_MAX) == 0
    assert outcomes == ["MSG_SIZE_TOO_LARGE", "kept"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_level_of_acks_delivers(broker: BrokerProcess, acks: str) -> None:
    topic = new_topic(broker)
    values = [b"%d" % number for number in range(100)]
    send(broker, topic, values, acks=acks)
    assert values_of(read_from_start(broker, topic, 100)) == values


def test_an_idempotent_producer_is_told_every_offset_in_order(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    told: list[tuple[int | None, bytes | None]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None
        told.append((message.offset(), message.value()))

    producer = new_producer(broker, enable_idempotence=True)
    for number in range(5_000):
        producer.produce(topic, b"%d" % number, on_delivery=on_delivery)
    assert producer.flush(FACT_SECONDS_MAX) == 0
    assert told == [(number, b"%d" % number) for number in range(5_000)]
    assert values_of(read_from_start(broker, topic, 5_000)) == [b"%d" % number for number in range(5_000)]


def _timed_topic(broker: BrokerProcess) -> str:
    """Ten messages, a second apart."""
    topic = new_topic(broker)
    producer = new_producer(broker)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=BASE_MS + 1_000 * number)
    assert producer.flush(FACT_SECONDS_MAX) == 0
    return topic


def test_timestamps_are_kept(broker: BrokerProcess) -> None:
    messages = read_from_start(broker, _timed_topic(broker), 10)
    assert [each.timestamp() for each in messages] == [
        (TIMESTAMP_CREATE_TIME, BASE_MS + 1_000 * number) for number in range(10)
    ]


@pytest.mark.parametrize(
    ("time_ms", "offset"),
    [(0, 0), (BASE_MS + 3_000, 3), (BASE_MS + 3_001, 4), (BASE_MS + 9_000, 9), (BASE_MS + 9_001, -1)],
)
def test_an_offset_is_found_by_time(broker: BrokerProcess, time_ms: int, offset: int) -> None:
    topic = _timed_topic(broker)
    consumer = new_consumer(broker)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=FACT_SECONDS_MAX)
    assert found.error is None
    assert found.offset == offset
    consumer.close()


def test_a_consumer_seeks_to_a_time_and_back(broker: BrokerProcess) -> None:
    topic = _timed_topic(broker)
    consumer = new_consumer(broker)
    consumer.assign(consumer.offsets_for_times([TopicPartition(topic, 0, BASE_MS + 7_500)], timeout=FACT_SECONDS_MAX))
    assert values_of(receive(consumer, 2)) == [b"8", b"9"]
    consumer.seek(TopicPartition(topic, 0, 2))
    assert values_of(receive(consumer, 8))[0] == b"2"
    consumer.close()


def test_watermarks_are_the_first_and_the_next_offset(broker: BrokerProcess) -> None:
    topic = _timed_topic(broker)
    consumer = new_consumer(broker)
    at = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(at, timeout=FACT_SECONDS_MAX) == (0, 10)
    admin = new_admin(broker)
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    for future in deleted.values():
        assert future.result(FACT_SECONDS_MAX).low_watermark == 4
    assert consumer.get_watermark_offsets(at, timeout=FACT_SECONDS_MAX) == (4, 10)
    consumer.assign([at])
    assert values_of(receive(consumer, 6))[0] == b"4"
    consumer.close()


def test_a_consumer_hears_of_the_end_of_a_partition(broker: BrokerProcess) -> None:
    topic = _timed_topic(broker)
    consumer = new_consumer(broker, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, 10)])
    heard: list[Message] = []
    for _ in until(lambda: heard, what="the end of the partition"):
        heard.extend(consumer.consume(1, 0.1))
    error = heard[0].error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    consumer.close()


def test_a_topic_is_made_when_it_is_first_written_to(broker: BrokerProcess) -> None:
    topic = new_name("unmade")
    send(broker, topic, [b"first"], partition=-1)
    assert values_of(read_from_start(broker, topic, 1)) == [b"first"]


def test_keys_spread_over_partitions_and_stay_on_theirs(broker: BrokerProcess) -> None:
    topic = new_topic(broker, partitions=4)
    producer = new_producer(broker, partitioner="murmur2_random")
    for number in range(400):
        producer.produce(topic, b"%d" % number, b"customer %d" % (number % 20))
    assert producer.flush(FACT_SECONDS_MAX) == 0
    consumer = new_consumer(broker)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    messages = receive(consumer, 400)
    homes = {(each.key(), each.partition()) for each in messages}
    assert len(homes) == 20
    assert len({partition for _, partition in homes}) > 1
    consumer.close()


def test_a_transactional_producer_learns_at_once_that_there_are_no_transactions(broker: BrokerProcess) -> None:
    producer = new_producer(broker, transactional_id=new_name("transactions"))
    with pytest.raises(KafkaException, match="transactions are not served") as refused:
        producer.init_transactions(FACT_SECONDS_MAX)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.value.args[0].fatal()
