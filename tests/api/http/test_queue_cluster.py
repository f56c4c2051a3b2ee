"""Three brokers: each answers for queues whose partitions any of them leads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.http.asking import Answered
from tests.api.three_brokers import NODES, Three

pytestmark = pytest.mark.slow

GROUP = "workers"


class Asker:
    """One queue, by way of one broker."""

    def __init__(self, three: Three, topic: str, node: int) -> None:
        self.door = three.door(node)
        self.path = f"/api/v1/queues/{topic}"

    def receive(self, **rest: object) -> list[dict[str, Any]]:
        found: dict[str, Any] = self.door.done("POST", f"{self.path}/receive", {"group": GROUP, **rest})
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    def say(self, what: str, messages: list[dict[str, Any]], **rest: object) -> Answered:
        receipts = [each["receipt"] for each in messages]
        return self.door.post(f"{self.path}/{what}", {"group": GROUP, "receipts": receipts, **rest})

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.door.done("GET", f"{self.path}/stats?group={GROUP}")
        return found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with Three(tmp_path_factory.mktemp("queues")) as started:
        while any(len(started.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        yield started


def make(three: Three, topic: str, *, partitions: int = 3) -> dict[int, int]:
    """Known to all; the leaders by partition."""
    node = min(three.brokers)
    three.door(node).done(
        "POST", "/api/v1/topics", {"name": topic, "partitions": partitions, "replication_factor": len(three.brokers)}
    )
    for each in three.brokers:
        while three.door(each).get(f"/api/v1/topics/{topic}").status != 200:
            pass
    found = three.door(node).done("GET", f"/api/v1/topics/{topic}")
    return {each["partition"]: each["leader"] for each in found["partitions"]}


def produce(three: Three, topic: str, partition: int, *values: str) -> None:
    messages = [{"topic": topic, "partition": partition, "value": each} for each in values]
    three.door(min(three.brokers)).done("POST", "/produce", messages)


def values(messages: list[dict[str, Any]]) -> set[str]:
    return {each["value"] for each in messages}


def test_whoever_is_asked_lists_groups_that_only_ever_came_by_http(three: Three) -> None:
    make(three, "unjoined")
    produce(three, "unjoined", 0, "a")
    wish = {"group": "strangers", "max": 1, "wait_ms": 10_000}
    three.door(min(NODES)).done("POST", "/api/v1/queues/unjoined/receive", wish)
    for node in three.brokers:
        listed = three.door(node).done("GET", "/api/v1/groups")["groups"]
        assert [each for each in listed if each["group"] == "strangers"] == [
            {"group": "strangers", "protocol": "share", "state": "Empty"}
        ]
        assert three.door(node).done("GET", "/api/v1/groups/strangers")["protocol"] == "share"
    assert three.door(max(NODES)).done("DELETE", "/api/v1/groups/strangers") == {"deleted": "strangers"}
    for node in three.brokers:
        assert three.door(node).get("/api/v1/groups/strangers").code == "group_not_found"


def test_whoever_is_asked_hands_out_and_settles_what_any_of_them_leads(three: Three) -> None:
    leaders = make(three, "everywhere")
    assert set(leaders.values()) == set(NODES)
    for partition in leaders:
        produce(three, "everywhere", partition, *(f"{partition}-{number}" for number in range(10)))
    one, two, last = (Asker(three, "everywhere", node) for node in NODES)
    got: list[dict[str, Any]] = []
    while len(got) < 30:
        got += one.receive(max=7, wait_ms=10_000)
    assert values(got) == {f"{partition}-{number}" for partition in leaders for number in range(10)}
    stats = last.stats()
    assert (stats["ready"], stats["in_flight"], len(stats["partitions"])) == (0, 30, 3)
    assert two.say("extend", got, visibility_ms=60_000).json == {"settled": 30}
    assert two.say("ack", got[:20]).json == {"settled": 20}
    refused = one.say("ack", got)
    assert (refused.status, refused.code) == (409, "lease_lost")
    assert [each.get("code") for each in refused.json["results"]] == ["lease_lost"] * 20 + [None] * 10
    assert last.stats()["in_flight"] == 0
    assert last.receive() == []


def test_what_was_given_back_to_one_comes_again_from_another(three: Three) -> None:
    leaders = make(three, "back")
    for partition in leaders:
        produce(three, "back", partition, str(partition))
    got: list[dict[str, Any]] = []
    while len(got) < 3:
        got += Asker(three, "back", 1).receive(wait_ms=10_000)
    assert Asker(three, "back", 2).say("nack", got, delay_ms=0, error="no milk").json == {"settled": 3}
    again: list[dict[str, Any]] = []
    while len(again) < 3:
        again += Asker(three, "back", 3).receive(wait_ms=10_000)
    assert [each["attempt"] for each in again] == [2, 2, 2]


def test_a_receive_waits_for_what_others_lead(three: Three) -> None:
    leaders = make(three, "waiting")
    for partition, leader in leaders.items():
        asker = Asker(three, "waiting", next(node for node in NODES if node != leader))
        assert asker.receive() == []
        got: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda to=got, by=asker: to.extend(by.receive(wait_ms=20_000)))
        waiting.start()
        produce(three, "waiting", partition, f"late {partition}")
        waiting.join(30)
        assert values(got) == {f"late {partition}"}
        assert asker.say("ack", got).status == 200


def test_no_leader_is_forgotten_behind_a_busy_one(three: Three) -> None:
    leaders = make(three, "busy")
    for partition in leaders:
        produce(three, "busy", partition, *(f"{partition}-{number}" for number in range(200)))
    asker = Asker(three, "busy", 1)
    seen = {each["partition"] for _ in range(60) for each in asker.receive(max=1)}
    assert seen == set(leaders)


def test_leases_outlive_the_broker_that_gave_them(tmp_path: Path) -> None:
    with Three(tmp_path) as three:
        _check_failover(three)


def _check_failover(three: Three) -> None:
    while any(len(three.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
        pass
    leaders = make(three, "failover")
    for partition in leaders:
        produce(three, "failover", partition, f"{partition}-a", f"{partition}-b")
    stays, goes = 1, 3
    asker = Asker(three, "failover", stays)
    got: list[dict[str, Any]] = []
    while len(got) < 6:
        got += asker.receive(wait_ms=10_000, visibility_ms=600_000)
    done, held = (
        [each for each in got if each["value"].endswith("a")],
        [each for each in got if each["value"].endswith("b")],
    )
    assert asker.say("ack", done).status == 200
    three.stop_one(goes)
    assert asker.say("nack", held, delay_ms=0).json == {"settled": 3}
    again: list[dict[str, Any]] = []
    while len(again) < 3:
        again += asker.receive(wait_ms=10_000)
    assert values(again) == {f"{partition}-b" for partition in leaders}
    assert asker.say("ack", again).status == 200
    assert asker.receive() == []
