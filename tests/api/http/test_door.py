"""The HTTP door: what it answers to those who ask well and to those who do not."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from millpond.api.http.server import CONNECTIONS_MAX, HEAD_BYTES_MAX
from millpond.app.broker_settings import BrokerSettings
from millpond.testing.broker import InProcessBroker

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(http=True) as started:
        yield started


def port_of(broker: InProcessBroker) -> int:
    port = broker.broker.http_port
    assert port is not None
    return port


def ask(
    broker: InProcessBroker, method: str, path: str, body: bytes | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(broker), timeout=SECONDS_MAX)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def send(broker: InProcessBroker, content: bytes) -> bytes:
    """All that comes back, until the broker closes."""
    with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=SECONDS_MAX) as connection:
        connection.sendall(content)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def test_metrics_are_prometheus_text(broker: InProcessBroker) -> None:
    response, body = ask(broker, "GET", "/metrics")
    assert (response.status, response.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert response.headers["date"]
    assert b"# TYPE millpond_requests_total counter\n" in body


def test_a_healthy_broker_is_live_and_ready(broker: InProcessBroker) -> None:
    response, body = ask(broker, "GET", "/health")
    assert (response.status, json.loads(body)) == (200, {"live": True, "ready": True, "why_not": []})
    response, body = ask(broker, "GET", "/health/live")
    assert (response.status, json.loads(body)) == (200, {"live": True})


def test_a_broker_that_is_not_ready_says_why() -> None:
    with InProcessBroker(http=True) as broker:
        broker.create_topic("orders")

        async def fail() -> None:
            partition = broker.broker.node.partitions.named("orders", 0)
            assert partition is not None
            partition.log.refuse(OSError("planted"))

        broker.run(fail)
        response, body = ask(broker, "GET", "/health")
        health = json.loads(body)
        assert (response.status, health["live"], health["ready"]) == (503, True, False)
        (reason,) = health["why_not"]
        assert reason.startswith("orders-0: ")
        assert "planted" in reason
        assert ask(broker, "GET", "/health/live")[0].status == 200


def test_a_broker_that_stops_is_no_longer_ready() -> None:
    with InProcessBroker(http=True) as broker:
        broker.broker.node.is_stopping = True
        response, body = ask(broker, "GET", "/health")
        assert (response.status, json.loads(body)["why_not"]) == (503, ["the broker is stopping"])


@pytest.mark.parametrize("path", ["/", "/nothing", "/metrics/", "/health/live/more", "//metrics", "/%00"])
def test_a_path_that_is_not_there_is_told_which_are(broker: InProcessBroker, path: str) -> None:
    response, body = ask(broker, "GET", path)
    assert response.status == 404
    assert json.loads(body)["error"] == "nothing is at this path; there are /health, /health/live, /metrics"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"])
def test_a_method_that_is_not_there_is_told_which_are(broker: InProcessBroker, method: str) -> None:
    response, body = ask(broker, method, "/metrics", b"x" * 100_000)
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")
    assert json.loads(body)["error"] == "this path takes GET, HEAD"


def test_head_is_get_without_a_body(broker: InProcessBroker) -> None:
    response, body = ask(broker, "HEAD", "/metrics")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["content-length"]) > 1000


def test_a_head_without_end_is_refused(broker: InProcessBroker) -> None:
    head = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (4 * HEAD_BYTES_MAX)
    assert send(broker, head).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("content", [b"\x00\x00\x00\x10nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
def test_what_is_no_request_is_refused_and_others_go_on(broker: InProcessBroker, content: bytes) -> None:
    assert send(broker, content).startswith(b"HTTP/1.1 400 ")
    assert ask(broker, "GET", "/health")[0].status == 200


def test_connections_beyond_the_bound_are_told_to_come_later(broker: InProcessBroker) -> None:
    address = ("127.0.0.1", port_of(broker))
    idle = [socket.create_connection(address, timeout=SECONDS_MAX) for _ in range(CONNECTIONS_MAX)]
    try:
        while ask(broker, "GET", "/health")[0].status != 503:  # until all of them have been accepted
            pass
    finally:
        for connection in idle:
            connection.close()
    while ask(broker, "GET", "/health")[0].status != 200:
        pass


def test_a_bug_is_answered_and_told() -> None:
    broker = InProcessBroker(http=True)
    broker.start()
    try:
        broker.broker.node.groups.facts = None  # type: ignore[assignment]
        assert ask(broker, "GET", "/metrics")[0].status == 500
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
            port = port_of(broker)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
