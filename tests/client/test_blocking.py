"""The blocking face against a real broker: the same as the other, from a thread that waits."""

import threading

import pytest

from millpond.client import TopicPartition
from millpond.client.blocking import Admin, Consumer, Producer
from millpond.model.errors import BrokerUnreachable, ClientClosed, TopicAlreadyExists, WrongUse
from millpond.testing.broker import InProcessBroker

ORDERS = TopicPartition("orders", 0)


def test_a_message_goes_there_and_back(broker: InProcessBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
        with pytest.raises(TopicAlreadyExists):
            admin.create_topic("orders")
        with Producer(broker.bootstrap) as producer:
            assert producer.send("orders", b"0", key=b"k").offset == 0
            futures = [producer.send_soon("orders", b"%d" % number) for number in range(1, 500)]
            producer.flush()
            assert [each.result().offset for each in futures] == list(range(1, 500))
            wrong = producer.send_soon("orders", "text")  # type: ignore[arg-type]
            with pytest.raises(WrongUse):
                wrong.result()
            assert sum(each.count for each in producer.send_many("orders", [b"x"] * 500)) == 500
        with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            seen: list[int] = []
            for message in consumer:
                seen.append(message.offset)
                assert consumer.position(ORDERS) == message.offset + 1
                if len(seen) == 100:
                    break
            assert consumer.lag() == {ORDERS: 900}
            consumer.commit()
            assert consumer.committed() == {ORDERS: 100}
            seen += [each.offset for each in consumer.poll(50)]
            seen.append(next(consumer).offset)
        assert seen == list(range(151))
        assert admin.group_offsets("kitchen") == {ORDERS: 151}


def test_a_block_that_failed_commits_what_it_was_through_with(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    with Producer(broker.bootstrap) as producer:
        producer.send_many("orders", [b"x"] * 20)

    def stumble() -> None:
        with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            for message in consumer:
                assert message.offset < 7

    with pytest.raises(AssertionError):
        stumble()
    with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
        assert next(consumer).offset == 7
        consumer.seek(ORDERS, 3)
        assert next(consumer).offset == 3
        consumer.pause()
        assert consumer.poll(1, timeout=0.01) == []
        consumer.resume()
        assert next(consumer).offset == 4


def test_nothing_is_left_of_a_client_that_is_closed(broker: InProcessBroker) -> None:
    before = set(threading.enumerate())
    with Producer(broker.bootstrap):
        assert any(each.name == "millpond-client" for each in threading.enumerate())
    assert set(threading.enumerate()) == before
    with pytest.raises(BrokerUnreachable), Producer("127.0.0.1:1", connect_seconds_max=0.1):
        pass
    assert set(threading.enumerate()) == before
    with pytest.raises(ClientClosed):
        Producer(broker.bootstrap).send("orders", b"")
