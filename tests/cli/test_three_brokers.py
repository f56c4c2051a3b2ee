"""Commands against a cluster of three, and against what is left of it when the first that they name is gone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.three_brokers import NODES, Three
from tests.cli.calling import Command

pytestmark = pytest.mark.slow


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    with Three(tmp_path) as started:
        while any(len(started.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        yield started


def test_every_verb_goes_on_without_the_first_broker(
    three: Three, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [f"127.0.0.1:{three.brokers[node].port}" for node in NODES]
    monkeypatch.setenv("MILLPOND_DOOR", ",".join(f"127.0.0.1:{three.brokers[node].http_port}" for node in NODES))
    millpond = Command(capsys, monkeypatch, ",".join(addresses))
    millpond.ok("topics", "create", "orders", "-p", "3", "-r", "3")
    millpond.ok("topics", "create", "jobs", "-p", "3", "-r", "3", "--set", "millpond.delay=on")

    def shown(*arguments: str) -> Any:  # noqa: ANN401
        return json.loads(millpond.ok(*arguments, "-o", "json"))

    def produced_and_read(start: int) -> None:
        lines = "".join(f"{number}:{number}\n" for number in range(start, start + 12)).encode()
        millpond.ok("produce", "orders", "--key-separator", ":", stdin=lines)
        read = millpond.ok("consume", "orders", "--group", "desk", "--count", "12")
        assert sorted(map(int, read.split())) == list(range(start, start + 12))

    produced_and_read(0)
    three.stop_one(1)
    produced_and_read(12)
    lag = shown("groups", "lag", "desk")
    assert (lag["lag"], sum(each["committed"] for each in lag["partitions"])) == (0, 24)
    assert {each["name"] for each in shown("topics", "list")["topics"]} == {"orders", "jobs"}
    millpond.ok("config", "alter", "--topic", "orders", "--set", "retention.ms=3600000")
    millpond.ok("queue", "send", "jobs", "--value", "now")
    later = millpond.ok("queue", "send", "jobs", "--value", "later", "--delay", "1h").strip()
    (message,) = shown("queue", "receive", "jobs", "-g", "crew", "--wait", "10s")["messages"]
    millpond.ok("queue", "ack", "jobs", "-g", "crew", message["receipt"])
    assert [each["message_id"] for each in shown("delay", "list", "jobs")["messages"]] == [later]
    millpond.ok("delay", "cancel", later)
    assert {each["node_id"] for each in shown("cluster", "status")["brokers"]} >= {2, 3}
