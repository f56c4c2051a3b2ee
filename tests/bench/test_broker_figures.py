"""Ratios, and how answers are counted, which all figures of the broker's benchmark rest on."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.broker.driving import MARK, MESSAGE, MarkCounter, drive
from bench.broker.figures import LEAST_CPU, PRODUCE, WAITING, Durability, Figure, combined, ratios
from bench.broker.peers.amqp import Confirms


def produced(system: str, durability: Durability, workload: str, messages_per_s: float) -> Figure:
    values = {"messages_per_s": messages_per_s, "client_cores": 1.0, "server_cores": 0.5, "server_us_per_message": 1.0}
    return Figure(section=PRODUCE.name, system=system, durability=durability, workload=workload, values=values)


def waited(system: str, p50_us: float) -> Figure:
    values = {"requests_per_s": 10.0, "p50_us": p50_us, "p99_us": 900.0, "server_us_per_request": 40.0}
    durability = Durability.SYNCED
    return Figure(section=WAITING.name, system=system, durability=durability, workload="1 connection", values=values)


def test_a_peer_is_compared_with_the_same_client_where_there_is_one_and_with_the_best_otherwise() -> None:
    ours = [
        produced("Millpond", Durability.SYNCED, "kcat", 1_000),
        produced("Millpond", Durability.SYNCED, "confluent-kafka", 2_000),
        produced("Millpond", Durability.NOT_SYNCED, "kcat", 4_000),
    ]
    same = produced("Kafka", Durability.NOT_SYNCED, "kcat", 500)
    other = produced("Redis", Durability.SYNCED, "pipelined", 500)
    figures = [*ours, same, other]
    assert {label: each["messages_per_s"] for label, each in ratios(same, figures, PRODUCE).items()} == {
        "group": 2,
        "none": 8,
    }
    assert ratios(other, figures, PRODUCE)["group"]["messages_per_s"] == 4


def test_what_slows_the_machine_for_a_round_leaves_the_ratio_alone() -> None:
    rounds = [[waited("Millpond", 100 * slow), waited("Kafka", 200 * slow)] for slow in (1, 50, 3)]
    ours, theirs = combined(rounds)
    assert ours.values["p50_us"] == 300
    assert theirs.times["group"]["p50_us"] == 2


def test_what_a_request_takes_at_least_is_told_beside_the_median() -> None:
    rounds = [
        [replace(waited("Millpond", 100), values={"server_us_per_request": us, LEAST_CPU.quantity: us})]
        for us in (50.0, 36.0, 44.0)
    ]
    (ours,) = combined(rounds)
    assert ours.values == {"server_us_per_request": 44.0, LEAST_CPU.quantity: 36.0}


def test_half_the_time_is_twice_as_good() -> None:
    ours, theirs = waited("Millpond", 100), waited("Kafka", 200)
    assert ratios(theirs, [ours, theirs], WAITING)["group"]["p50_us"] == 2
    assert ratios(ours, [ours, theirs], WAITING) == {}


@pytest.mark.parametrize("size", [1, 7, 10, 11, 12, 99, 100, 101, 1_000])
def test_messages_are_counted_wherever_the_stream_is_cut(size: int) -> None:
    stream = b"head" + MESSAGE * 7 + MARK[:-1]
    counter = MarkCounter()
    for at in range(0, len(stream), size):
        counter.add(stream[at : at + size])
    assert counter.count == 7


def test_confirms_are_counted_once_whatever_order_they_come_in() -> None:
    confirms = Confirms()
    stream = confirm(1) + confirm(4) + confirm(3, multiple=True) + confirm(6) + confirm(7, multiple=True)
    assert sum(confirms.add(stream[at : at + 5]) for at in range(0, len(stream), 5)) == 7


def confirm(tag: int, *, multiple: bool = False) -> bytes:
    payload = b"\0\x3c\0\x50" + tag.to_bytes(8, "big") + bytes([multiple])
    return b"\x01\0\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"


class Echo:
    """A conversation with somebody who gives back what is sent."""

    requests = b"ab" * 100
    request_bytes = 2

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._half = 0

    def answered(self, data: bytes) -> int:
        whole, self._half = divmod(self._half + len(data), 2)
        return whole


@pytest.fixture
def echo() -> Iterator[Echo]:
    near, far = socket.socketpair()

    def give_back() -> None:
        while data := far.recv(3):
            far.sendall(data)

    thread = threading.Thread(target=give_back)
    thread.start()
    yield Echo(near)
    near.close()
    thread.join()
    far.close()


def test_every_request_that_was_sent_is_answered_when_driving_ends(echo: Echo) -> None:
    driven = drive([echo], window=7, seconds=60, requests_max=1_000)
    assert 1_000 <= driven.requests < 1_007
    assert driven.ascending_seconds == []


def test_with_one_under_way_each_is_timed(echo: Echo) -> None:
    driven = drive([echo], window=1, seconds=60, requests_max=50)
    assert len(driven.ascending_seconds) == driven.requests == 50
    assert driven.microseconds(0.5) <= driven.microseconds(0.99)
