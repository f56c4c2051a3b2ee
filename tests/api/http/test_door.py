"""The HTTP door: how the broker is, and what it answers to those who ask for what is not there."""

import re
import socket

import pytest

from millpond.app.broker_settings import BrokerSettings
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import SECONDS_MAX, Door


def send(door: Door, content: bytes) -> bytes:
    """All that comes back, until the broker closes."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=SECONDS_MAX) as connection:
        connection.sendall(content)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def test_metrics_are_prometheus_text(door: Door) -> None:
    answered = door.get("/metrics")
    assert (answered.status, answered.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert answered.headers["date"].endswith(" GMT")
    assert b"# TYPE millpond_requests_total counter\n" in answered.body


def test_what_is_answered_is_counted(door: Door) -> None:
    assert door.get("/nothing").status == 404
    counted = door.get("/metrics").body
    assert b'millpond_http_requests_total{status="404"} ' in counted
    assert re.search(rb"^millpond_http_connections_open [1-9]", counted, flags=re.MULTILINE)


def test_a_healthy_broker_is_live_and_ready(door: Door) -> None:
    for path in ("/health", "/health/ready"):
        assert door.done("GET", path) == {"live": True, "ready": True, "why_not": []}
    assert door.done("GET", "/health/live") == {"live": True}


def test_a_broker_that_is_not_ready_says_why() -> None:
    with InProcessBroker(http=True) as broker:
        broker.create_topic("orders")
        door = Door(broker.broker.http_port)

        async def fail() -> None:
            partition = broker.broker.node.partitions.named("orders", 0)
            assert partition is not None
            partition.log.refuse(OSError("planted"))

        broker.run(fail)
        answered = door.get("/health")
        assert (answered.status, answered.json["live"], answered.json["ready"]) == (503, True, False)
        (reason,) = answered.json["why_not"]
        assert reason.startswith("orders-0: ")
        assert "planted" in reason
        assert door.get("/health/live").status == 200
        refused = door.post("/produce", {"topic": "orders", "value": "x"})
        assert (refused.status, refused.code) == (503, "disk_failed")


def test_a_broker_that_stops_is_no_longer_ready() -> None:
    with InProcessBroker(http=True) as broker:
        broker.broker.node.is_stopping = True
        answered = Door(broker.broker.http_port).get("/health")
        assert (answered.status, answered.json["why_not"]) == (503, ["the broker is stopping"])


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/health/live/more", "//metrics", "/%00", "/api/v1/topics/"])
def test_a_path_that_is_not_there(door: Door, path: str) -> None:
    answered = door.get(path)
    assert (answered.status, answered.code) == (404, "no_such_path")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_a_method_that_is_not_there_is_told_which_are(door: Door, method: str) -> None:
    answered = door.ask(method, "/metrics", b"x" * 100_000)
    assert (answered.status, answered.headers["allow"], answered.code) == (405, "GET, HEAD", "method_not_allowed")


def test_head_is_get_without_a_body(door: Door) -> None:
    answered = door.ask("HEAD", "/metrics")
    assert (answered.status, answered.body) == (200, b"")
    assert int(answered.headers["content-length"]) > 1000


@pytest.mark.parametrize(
    "content", [b"\x00\x00\x00\x10nonsense\r\n\r\n", b"GET\r\n\r\n", b"NONSENSE / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_refused_and_others_go_on(door: Door, content: bytes) -> None:
    assert send(door, content).startswith(b"HTTP/1.1 400 ")
    assert door.get("/health").status == 200


def test_a_path_that_is_no_utf8(door: Door) -> None:
    answered = door.get("/api/v1/topics/%ff")
    assert (answered.status, answered.code) == (400, "invalid_utf8")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("LOCALHOST:8080", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("evil.example:8080", 421)],
)
def test_a_door_for_this_machine_is_asked_by_its_name(door: Door, host: str, status: int) -> None:
    """A page whose name was given this machine's address gets nothing."""
    answered = door.ask("GET", "/health", headers={"host": host})
    assert answered.status == status
    assert status == 200 or answered.code == "foreign_host"


def test_a_bug_is_answered_and_told() -> None:
    broker = InProcessBroker(http=True)
    broker.start()
    try:
        broker.broker.node.groups.facts = None  # type: ignore[assignment]
        answered = Door(broker.broker.http_port).get("/metrics")
        assert (answered.status, answered.code) == (500, "internal_error")
    finally:
        with pytest.raises(BaseExceptionGroup) as raised:
            broker.stop()
    (bug,) = raised.value.exceptions
    assert isinstance(bug, AttributeError)


def test_the_door_is_shut_unless_asked_for() -> None:
    assert BrokerSettings().http is None
    with InProcessBroker() as broker:
        assert broker.broker.http_port is None


def test_a_door_that_was_hardly_opened_can_be_shut() -> None:
    for _ in range(3):
        with InProcessBroker(http=True) as broker:
            port = Door(broker.broker.http_port).port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
