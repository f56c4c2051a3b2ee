"""Metrics of a real broker that stock clients use: what was done is what is counted."""

import itertools
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millpond import __version__
from millpond.broker.operations.lag import LOOK_UP_NS_MAX, LagSurvey
from millpond.telemetry.catalogue import METRICS, PROCESS_METRICS
from millpond.testing.broker import InProcessBroker
from tests.telemetry.scrapes import SECONDS_MAX, Scrape, get, scrape, scrape_until

SILENT = {"log_level": 0}


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(http=True) as started:
        yield started


def produce(broker: InProcessBroker, topic: str, *timestamps_ms: int, partition: int = 0) -> None:
    """Each message in a batch of its own."""
    errors: list[KafkaError] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1, "linger.ms": 0, **SILENT})
    for timestamp in timestamps_ms:
        producer.produce(topic, b"v" * 100, partition=partition, timestamp=timestamp, on_delivery=answered)
    assert producer.flush(SECONDS_MAX) == 0
    assert not errors


def commit(broker: InProcessBroker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **SILENT})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def consume(broker: InProcessBroker, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False, **SILENT})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(consumer.consume(count, timeout=SECONDS_MAX)) == count
    finally:
        consumer.close()


def test_every_metric_of_the_catalogue_is_there_and_no_other(broker: InProcessBroker) -> None:
    found = scrape(broker.http_url)
    named = {metric.name.removesuffix("_total") for metric in (*METRICS, *PROCESS_METRICS)}
    assert found.families.keys() == named
    for metric in METRICS:
        family = found.families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.meaning)
    assert found.value("millpond_ready") == 1
    assert found.value("process_resident_memory_bytes") > 0
    assert found.value("process_open_fds") > 0
    (labels,) = found.all_of("millpond_build_info")
    assert ("version", __version__) in labels


def test_what_is_produced_is_counted_by_topic_and_partition(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    now_ms = broker.clock.wall_ms()
    before = scrape(broker.http_url)
    produce(broker, "orders", now_ms, now_ms, now_ms)
    produce(broker, "orders", now_ms, partition=1)
    after = scrape(broker.http_url)
    assert before.value("millpond_topic_produced_batches_total", topic="orders") == 0
    assert after.value("millpond_topic_produced_batches_total", topic="orders") == 4
    sizes = [after.value("millpond_partition_size_bytes", topic="orders", partition=number) for number in ("0", "1")]
    assert after.value("millpond_topic_produced_bytes_total", topic="orders") == sum(sizes)
    assert sizes[0] == 3 * sizes[1] > 300
    assert after.value("millpond_partition_end_offset", topic="orders", partition="0") == 3
    assert after.value("millpond_partition_end_offset", topic="orders", partition="1") == 1
    assert after.value("millpond_partition_start_offset", topic="orders", partition="0") == 0
    assert after.value("millpond_log_synced_bytes_total") == sum(sizes)
    assert after.value("millpond_log_sync_duration_seconds_count") >= 2
    assert after.value("millpond_requests_total", api="Produce") == 4
    assert after.value("millpond_request_duration_seconds_count", api="Produce") == 4
    assert after.value("millpond_network_received_bytes_total") > sum(sizes)


def test_what_is_fetched_is_counted_once_for_each_time_it_is_sent(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    produce(broker, "orders", *[broker.clock.wall_ms()] * 5)
    for time in (1, 2):
        consume(broker, "orders", 5)
        found = scrape(broker.http_url)
        size = found.value("millpond_partition_size_bytes", topic="orders", partition="0")
        assert found.value("millpond_topic_fetched_messages_total", topic="orders") == 5 * time
        assert found.value("millpond_topic_fetched_bytes_total", topic="orders") == size * time


def test_what_is_deleted_moves_the_start(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    produce(broker, "orders", *[broker.clock.wall_ms()] * 5)

    async def delete() -> None:
        partition = broker.broker.node.partitions.named("orders", 0)
        assert partition is not None
        await partition.log.delete_before(partition.high_watermark)

    broker.run(delete)
    assert scrape(broker.http_url).value("millpond_partition_start_offset", topic="orders", partition="0") == 5


def lag(found: Scrape, group: str) -> tuple[float | None, float | None]:
    labels = {"group": group, "topic": "orders", "partition": "0"}
    return found.find("millpond_group_lag_messages", **labels), found.find("millpond_group_lag_seconds", **labels)


def test_lag_is_told_in_messages_and_in_seconds(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    now_ms = broker.clock.wall_ms()
    produce(broker, "orders", now_ms - 90_000, now_ms - 60_000, now_ms - 30_000)
    assert lag(scrape(broker.http_url), "billing") == (None, None), "a group that committed nothing has no lag"

    commit(broker, "billing", "orders", 0)
    assert lag(scrape(broker.http_url), "billing") == (3, 90)
    commit(broker, "billing", "orders", 2)
    assert lag(scrape(broker.http_url), "billing") == (1, 30)
    broker.clock.advance(5_000)
    assert lag(scrape(broker.http_url), "billing") == (1, 35), "a group that stands still falls behind"
    commit(broker, "billing", "orders", 3)
    assert lag(scrape(broker.http_url), "billing") == (0, 0)
    broker.clock.advance(5_000)
    assert lag(scrape(broker.http_url), "billing") == (0, 0), "a group that has everything does not"
    produce(broker, "orders", now_ms + 10_000)
    assert lag(scrape(broker.http_url), "billing") == (1, 0)


def test_one_survey_of_lag_reads_no_longer_than_it_may_and_the_next_goes_on(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    now_ms = broker.clock.wall_ms()
    offsets = []
    for number in range(3):
        produce(broker, "orders", now_ms - 1_000, partition=number)
        offsets.append(TopicPartition("orders", number, 0))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", **SILENT})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    slow_ns = itertools.count(step=2 * LOOK_UP_NS_MAX)

    async def survey_three_times() -> list[list[int | None]]:
        survey = LagSurvey(broker.broker.node, now_ns=lambda: next(slow_ns))
        return [[lag.ms for _, lags in [each async for each in survey.look()] for lag in lags] for _ in range(3)]

    seen = broker.run(survey_three_times)
    assert [sorted(lags, key=str) for lags in seen] == [[1_000, None, None], [1_000, 1_000, None], [1_000] * 3]


def test_lag_forgets_a_topic_that_was_deleted_and_made_again(broker: InProcessBroker) -> None:
    now_ms = broker.clock.wall_ms()
    for age_ms in (60_000, 10_000):
        broker.create_topic("orders")
        produce(broker, "orders", now_ms - age_ms)
        commit(broker, "billing", "orders", 0)
        assert lag(scrape(broker.http_url), "billing") == (1, age_ms / 1000)
        delete_topic(broker, "orders")  # no scrape here: what it knew of the first topic must not serve for the second
    assert lag(scrape(broker.http_url), "billing") == (None, None)


def delete_topic(broker: InProcessBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **SILENT})
    admin.delete_topics([name])[name].result(SECONDS_MAX)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_states_and_rebalances_of_a_group(broker: InProcessBroker, protocol: str) -> None:
    broker.create_topic("orders")
    produce(broker, "orders", broker.clock.wall_ms())
    settings = {"group.id": "billing", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings, **SILENT})
    consumer.subscribe(["orders"])
    assert consumer.consume(1, timeout=SECONDS_MAX)
    stable = {"group": "billing", "type": protocol, "state": "Stable"}
    found = scrape_until(broker.http_url, lambda seen: seen.find("millpond_group_state", **stable) == 1)
    assert found.value("millpond_group_members", group="billing") == 1
    assert found.value("millpond_group_rebalances_total", group="billing", reason="joined") == 1
    assert found.value("millpond_group_rebalance_duration_seconds_count") == 1
    assert found.value("millpond_group_members_joined_total") >= 1
    consumer.close()
    found = scrape_until(broker.http_url, lambda seen: seen.find("millpond_group_members", group="billing") == 0)
    assert found.value("millpond_group_members_gone_total", reason="left") == 1


def test_errors_are_counted_by_kafkas_name(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "x", "auto.offset.reset": "error", **SILENT}
    )
    try:
        consumer.assign([TopicPartition("orders", 0, 99)])
        (message,) = consumer.consume(1, timeout=SECONDS_MAX)
        assert message.error() is not None
    finally:
        consumer.close()
    found = scrape(broker.http_url)
    assert found.value("millpond_request_errors_total", api="Fetch", error="OFFSET_OUT_OF_RANGE") >= 1


def test_requests_that_want_no_answer_are_counted_and_not_timed(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": 0, **SILENT})
    producer.produce("orders", b"v")
    assert producer.flush(SECONDS_MAX) == 0
    found = scrape_until(broker.http_url, lambda seen: seen.find("millpond_requests_total", api="Produce") == 1)
    assert found.value("millpond_request_duration_seconds_count", api="Produce") == 0
    name, labels = "millpond_partition_end_offset", {"topic": "orders", "partition": "0"}
    scrape_until(broker.http_url, lambda seen: seen.value(name, **labels) == 1)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(struct.pack("!hhih", 0, 9, 1, -1) + b"\xff" * 9, "malformed"), (struct.pack("!hhih", 999, 0, 1, -1), "unserved")],
)
def test_what_cannot_be_handled_is_counted_by_reason(broker: InProcessBroker, frame: bytes, reason: str) -> None:
    with socket.create_connection(("127.0.0.1", broker.broker.port), timeout=SECONDS_MAX) as connection:
        connection.sendall(struct.pack("!i", len(frame)) + frame)
        assert connection.recv(1) == b""
    found = scrape(broker.http_url)
    rejected = {
        dict(labels)["reason"]: count for labels, count in found.all_of("millpond_requests_rejected_total").items()
    }
    assert rejected == {"malformed": 0, "unserved": 0, reason: 1}


def test_connections_are_counted_as_they_come_and_go(broker: InProcessBroker) -> None:
    address = ("127.0.0.1", broker.broker.port)
    connections = [socket.create_connection(address, timeout=SECONDS_MAX) for _ in range(3)]
    found = scrape_until(broker.http_url, lambda seen: seen.value("millpond_connections_open") == 3)
    assert found.value("millpond_connections_accepted_total") == 3
    with connections.pop() as wrong:
        wrong.sendall(struct.pack("!i", -1))
        assert wrong.recv(1) == b""
    found = scrape_until(broker.http_url, lambda seen: seen.value("millpond_connections_open") == 2)
    assert found.value("millpond_connections_closed_total", reason="bad_frame_length") == 1
    for connection in connections:
        connection.close()
    found = scrape_until(broker.http_url, lambda seen: seen.value("millpond_connections_open") == 0)
    assert found.value("millpond_connections_closed_total", reason="peer_closed") == 2
    assert found.value("millpond_connections_accepted_total") == 3


def test_scrapes_under_load_are_whole_and_never_go_back(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    done = threading.Event()
    counts: list[float] = []

    def keep_scraping() -> None:
        while not done.is_set():
            counts.append(scrape(broker.http_url).value("millpond_topic_produced_batches_total", topic="orders"))

    threads = [threading.Thread(target=keep_scraping) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            produce(broker, "orders", *[broker.clock.wall_ms()] * 50)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert scrape(broker.http_url).value("millpond_topic_produced_batches_total", topic="orders") == 1_000
    assert counts
    assert all(0 <= count <= 1_000 for count in counts)


def test_the_delay_of_the_event_loop_is_tried_again_and_again(broker: InProcessBroker) -> None:
    name = "millpond_event_loop_delay_seconds_count"
    first = scrape_until(broker.http_url, lambda seen: seen.value(name) > 0)
    scrape_until(broker.http_url, lambda seen: seen.value(name) > first.value(name))


def test_a_failed_disk_is_seen_in_metrics_and_in_health(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def fail() -> None:
        partition = broker.broker.node.partitions.named("orders", 0)
        assert partition is not None
        partition.log.refuse(OSError("planted"))

    broker.run(fail)
    found = scrape(broker.http_url)
    assert (found.value("millpond_logs_failed"), found.value("millpond_ready")) == (1, 0)
    assert '"live":true' in get(f"{broker.http_url}/health/live")
