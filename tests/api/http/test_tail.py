"""The tail of a topic, as server-sent events."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import SECONDS_MAX, Door


class Tail:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        assert self.line() == ": tailing"

    def line(self) -> str:
        while not (line := self._response.readline().decode().rstrip("\n")):
            pass
        return line

    def event(self) -> tuple[str, dict[str, Any]]:
        number, data = self.line(), self.line()
        return number.removeprefix("id: "), json.loads(data.removeprefix("data: "))


@contextmanager
def tail(door: Door, path: str, **headers: str) -> Iterator[Tail]:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", path, headers={"accept": "text/event-stream", **headers})
        response = connection.getresponse()
        assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
        yield Tail(response)
    finally:
        connection.close()


def produce(door: Door, topic: str, value: str, partition: int = 0) -> None:
    door.done("POST", "/produce", {"topic": topic, "value": value, "partition": partition})


def test_messages_are_told_as_they_come(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("told", partitions=2)
    produce(door, "told", "before")
    with tail(door, "/api/v1/topics/told/tail") as events:
        for partition, value in ((0, "a"), (1, "b"), (0, "c")):
            produce(door, "told", value, partition)
            number, message = events.event()
            assert (message["value"], message["topic"], message["partition"]) == (value, "told", partition)
            assert number == f"{partition}:{message['offset']}"


def test_whoever_comes_back_goes_on_where_it_was(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("back")
    for value in "abc":
        produce(door, "back", value)
    with tail(door, "/api/v1/topics/back/tail?partition=0&offset=earliest") as events:
        assert [events.event()[1]["value"] for _ in range(2)] == ["a", "b"]
    with tail(door, "/api/v1/topics/back/tail?partition=0", **{"last-event-id": "0:1"}) as events:
        assert events.event()[1]["value"] == "c"


def test_a_tail_ends_with_its_topic(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("ending")
    with tail(door, "/api/v1/topics/ending/tail") as events:
        door.done("DELETE", "/api/v1/topics/ending")
        assert events.line() == "event: problem"


def test_a_tail_of_nothing_is_refused(door: Door) -> None:
    assert door.get("/api/v1/topics/nothing/tail").code == "unknown_topic_or_partition"


def test_a_broker_that_stops_ends_its_tails() -> None:
    with InProcessBroker(http=True) as broker:
        broker.create_topic("stopped")
        door = Door(broker.broker.http_port)
        with tail(door, "/api/v1/topics/stopped/tail") as events:
            broker.stop()
            assert events._response.read().strip() == b""
