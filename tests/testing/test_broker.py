"""The broker for users' tests: real to clients, gone afterwards."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millpond.api.kafka.dispatch import Dispatcher
from millpond.app.refusals import CannotStart
from millpond.model.errors import InvalidSetting, TopicAlreadyExists
from millpond.protocol.messages.fetch import FetchRequest
from millpond.testing import ManualClock, pytest_plugin
from millpond.testing.broker import InProcessBroker
from tests.api.asking import BY_NAME, fetch_request
from tests.api.brokers import Peer

millpond_broker = pytest_plugin.millpond_broker
pytest_plugins = ["pytester"]

SECONDS_MAX = 30


def produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce("t", value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consume_one(bootstrap: str) -> tuple[bytes | None, tuple[int, int]]:
    """The first record of t-0: its value, and whose time it carries and which."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        return message.value(), message.timestamp()
    finally:
        consumer.close()


def test_the_fixture_is_a_broker_that_clients_use(millpond_broker: InProcessBroker) -> None:
    millpond_broker.create_topic("t", partitions=3)
    produce(millpond_broker.bootstrap, b"value")
    assert consume_one(millpond_broker.bootstrap)[0] == b"value"


def test_a_group_forms_while_the_clock_stands_still(millpond_broker: InProcessBroker) -> None:
    millpond_broker.create_topic("t")
    produce(millpond_broker.bootstrap, b"value")
    consumer = Consumer(
        {"bootstrap.servers": millpond_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


def test_the_clock_is_the_tests_to_turn(millpond_broker: InProcessBroker) -> None:
    millpond_broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    millpond_broker.clock.advance(86_400_000)
    produce(millpond_broker.bootstrap, b"tomorrow")
    assert consume_one(millpond_broker.bootstrap)[1][1] == millpond_broker.clock.wall_ms()


def test_what_is_older_than_its_topic_keeps_goes_when_the_clock_is_turned_and_not_before(
    millpond_broker: InProcessBroker,
) -> None:
    millpond_broker.create_topic("t", configs={"retention.ms": "60000"})
    produce(millpond_broker.bootstrap, b"yesterday")
    consumer = Consumer({"bootstrap.servers": millpond_broker.bootstrap, "group.id": "not used"})
    try:
        for ahead_ms, expected in ((0, (0, 1)), (86_400_000, (1, 1))):
            millpond_broker.clock.advance(ahead_ms)
            assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=SECONDS_MAX) == expected
    finally:
        consumer.close()


def test_nothing_is_left_afterwards() -> None:
    before = set(threading.enumerate())
    with InProcessBroker() as broker:
        directory = Path(broker.data_directory)
        assert directory.is_dir()
        assert set(threading.enumerate()) - before
    assert not directory.exists()
    assert set(threading.enumerate()) <= before, "one of somebody else's may have ended meanwhile"


def test_a_data_directory_that_was_given_stays_and_is_opened_again(tmp_path: Path) -> None:
    with InProcessBroker(data_directory=str(tmp_path)) as broker:
        broker.create_topic("t")
        produce(broker.bootstrap, b"kept")
    with InProcessBroker(data_directory=str(tmp_path)) as broker:
        partition = broker.broker.node.partitions.named("t", 0)
        assert partition is not None
        assert partition.log.report.clean
        assert consume_one(broker.bootstrap)[0] == b"kept"


def test_it_can_be_started_again() -> None:
    broker = InProcessBroker()
    for _ in range(3):
        broker.start()
        broker.create_topic("t")
        broker.stop()
        broker.stop()


def test_a_client_that_still_waits_is_answered_at_its_end() -> None:
    broker = InProcessBroker()
    broker.start()
    broker.create_topic("t")
    with Peer(broker.broker) as peer, Peer(broker.broker) as other:
        peer.send(fetch_request("t", 0, max_wait_ms=60_000), BY_NAME)
        other.ask(fetch_request("t", 0), BY_NAME)  # asked later and answered, so the first has been read
        broker.stop()
        assert peer.receive(FetchRequest.api_key, BY_NAME).responses[0].partitions[0].error_code == 0


def test_two_brokers_do_not_share_a_data_directory(tmp_path: Path) -> None:
    with (
        InProcessBroker(data_directory=str(tmp_path)),
        pytest.raises(CannotStart, match="in use by another broker"),
    ):
        InProcessBroker(data_directory=str(tmp_path)).start()


def test_several_run_beside_each_other() -> None:
    with InProcessBroker() as one, InProcessBroker() as other:
        assert one.bootstrap != other.bootstrap
        one.create_topic("t")
        other.create_topic("t")


def test_settings_are_checked_before_anything_runs() -> None:
    before = threading.active_count()
    with pytest.raises(InvalidSetting, match=r"num\.partitions is 'x'"):
        InProcessBroker(configs={"num.partitions": "x"}).start()
    assert threading.active_count() == before


def test_a_topic_that_is_refused_raises(millpond_broker: InProcessBroker) -> None:
    millpond_broker.create_topic("t")
    with pytest.raises(TopicAlreadyExists):
        millpond_broker.create_topic("t")


def test_a_bug_in_the_broker_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Dispatcher, "handle", fail)
    broker = InProcessBroker(clock=ManualClock())
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1000, "log_level": 0})
    while not broker._bugs:
        producer.poll(0.01)
    with pytest.raises(BaseExceptionGroup, match="the broker failed while the test ran"):
        broker.stop()


def test_users_load_the_fixture_by_the_name_of_its_module(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["millpond.testing.pytest_plugin"]')
    pytester.makepyfile('def test_it(millpond_broker): assert ":" in millpond_broker.bootstrap')
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=1)
