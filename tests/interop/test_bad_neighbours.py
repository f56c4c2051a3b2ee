"""Bytes that are no Kafka, on connections of their own, do not disturb a client that is running."""

import random
import socket
import struct

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import new_consumer, new_producer, new_topic, receive
from tests.interop.facts import FACT_SECONDS_MAX

SEED = 20_260_101
NOISE = random.Random(SEED).randbytes(10_000)
REFUSED = {
    "a frame of two gigabytes": b"\x7f\xff\xff\xff" + b"x" * 1_000,
    "a frame of less than nothing": b"\xff\xff\xff\xff" + b"x" * 1_000,
    "a frame of noise": struct.pack("!i", len(NOISE)) + NOISE,
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + NOISE[:500],
    "an API that is none": struct.pack("!ihhih", 10, 32_000, 0, 1, -1),
    "a request without its body": struct.pack("!ihhih", 10, 1, 11, 1, -1),
    "a frame too short for a header": struct.pack("!i", 1) + b"\x00",
}
HELD = {
    "half a frame": struct.pack("!i", 1_000) + NOISE[:100],
    "a length and nothing more": struct.pack("!i", 100_000_000),
    "nothing": b"",
}


class RunningClient:
    """A producer and a consumer that were there before the neighbour came."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.errors: list[object] = []
        self._topic = new_topic(broker)
        self._producer = new_producer(broker, enable_idempotence=True, error_cb=self.errors.append)
        self._consumer = new_consumer(broker, error_cb=self.errors.append)
        self._consumer.subscribe([self._topic])

    def send_and_receive(self, value: bytes) -> None:
        self._producer.produce(self._topic, value)
        assert self._producer.flush(FACT_SECONDS_MAX) == 0
        (message,) = receive(self._consumer, 1)
        assert message.value() == value
        self._consumer.commit(message=message, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def _connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=FACT_SECONDS_MAX)


def _wait_closed(peer: socket.socket) -> None:
    try:
        while peer.recv(65_536):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize("noise", REFUSED.values(), ids=REFUSED)
def test_bytes_that_are_no_kafka_end_only_their_own_connection(broker: BrokerProcess, noise: bytes) -> None:
    client = RunningClient(broker)
    client.send_and_receive(b"before")
    with _connect(broker) as neighbour:
        neighbour.sendall(noise)
        client.send_and_receive(b"meanwhile")
        _wait_closed(neighbour)
    client.send_and_receive(b"after")
    assert client.errors == []
    client.close()


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
def test_a_neighbour_that_does_not_go_on_keeps_nobody_waiting(broker: BrokerProcess, held: bytes) -> None:
    client = RunningClient(broker)
    client.send_and_receive(b"before")
    with _connect(broker) as neighbour:
        neighbour.sendall(held)
        client.send_and_receive(b"meanwhile")
    client.send_and_receive(b"after")
    assert client.errors == []
    client.close()


def test_a_crowd_of_bad_neighbours_does_not_disturb(broker: BrokerProcess) -> None:
    client = RunningClient(broker)
    chance = random.Random(SEED)
    for number in range(100):
        with _connect(broker) as neighbour:
            neighbour.sendall(chance.randbytes(chance.randrange(1, 200)))
            if number % 10 == 0:
                client.send_and_receive(b"%d" % number)
    assert client.errors == []
    client.close()
