"""Three brokers, each with an HTTP door: any of them answers for what any of them leads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.three_brokers import NODES, Three

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with Three(tmp_path_factory.mktemp("three")) as started:
        while any(len(started.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        yield started


def make(three: Three, topic: str) -> dict[int, int]:
    """Known to all, and led by all; the leaders by partition."""
    three.door(1).done("POST", "/api/v1/topics", {"name": topic, "partitions": 3, "replication_factor": 3})
    for node in NODES:
        while three.door(node).get(f"/api/v1/topics/{topic}").status != 200:
            pass
    found = three.door(1).done("GET", f"/api/v1/topics/{topic}")
    leaders = {each["partition"]: each["leader"] for each in found["partitions"]}
    assert set(leaders.values()) == set(NODES)
    return leaders


def test_every_broker_takes_and_gives_what_any_of_them_leads(three: Three) -> None:
    leaders = make(three, "everywhere")
    for partition in leaders:
        for offset, node in enumerate(NODES):
            message = {"topic": "everywhere", "value": f"by {node}", "partition": partition}
            assert three.door(node).done("POST", "/produce", message) == {"partition": partition, "offset": offset}
    for partition in leaders:
        for node in NODES:
            found = three.door(node).done("GET", f"/consume?topic=everywhere&partition={partition}&offset=0")
            assert [each["value"] for each in found["messages"]] == ["by 1", "by 2", "by 3"]
            assert found["next_offset"] == 3
            ends = three.door(node).done("GET", f"/consume?topic=everywhere&partition={partition}&offset=latest")
            assert ends == {"messages": [], "next_offset": 3}
            refused = three.door(node).get(f"/consume?topic=everywhere&partition={partition}&offset=4")
            assert (refused.status, refused.code) == (416, "offset_out_of_range")


def test_an_array_goes_to_all_leaders_at_once(three: Three) -> None:
    make(three, "array")
    wanted = [{"topic": "array", "value": str(number), "partition": number % 3} for number in range(30)]
    answered = three.door(2).done("POST", "/produce", wanted)
    assert answered == [{"partition": number % 3, "offset": number // 3} for number in range(30)]


def test_whoever_waits_at_another_broker_is_answered_when_something_comes(three: Three) -> None:
    leaders = make(three, "awaited")
    elsewhere = next(node for node in NODES if node != leaders[0])
    found: list[int] = []
    path = "/consume?topic=awaited&partition=0&offset=0&wait_ms=30000"
    waiting = threading.Thread(target=lambda: found.append(three.door(elsewhere).done("GET", path)["next_offset"]))
    waiting.start()
    three.door(leaders[0]).done("POST", "/produce", {"topic": "awaited", "partition": 0, "value": "x"})
    waiting.join()
    assert found == [1]


def test_a_member_may_ask_any_broker(three: Three) -> None:
    make(three, "roaming")
    wanted = [{"topic": "roaming", "value": str(number), "partition": number % 3} for number in range(9)]
    three.door(1).done("POST", "/produce", wanted)
    joined = three.door(1).done("POST", "/subscribe", {"group": "roamers", "topics": ["roaming"]})
    me = {"group": "roamers", "member_id": joined["member_id"], "member_epoch": joined["member_epoch"]}
    values: set[str] = set()
    positions: list[dict[str, Any]] = []
    for turn in range(60):
        node = NODES[turn % 3]
        found = three.door(node).done("POST", "/fetch", {**me, "positions": positions, "wait_ms": 1_000})
        values |= {each["value"] for each in found["messages"]}
        positions, me["member_epoch"] = found["positions"], found["member_epoch"]
        if len(values) == 9:
            break
    assert values == {str(number) for number in range(9)}
    assert three.door(2).done("POST", "/commit", {**me, "offsets": positions}) == {"committed": 3}
    for node in NODES:
        door = three.door(node)
        assert {"group": "roamers", "protocol": "consumer", "state": "Stable"} in door.done("GET", "/api/v1/groups")[
            "groups"
        ]
        assert door.done("GET", "/api/v1/groups/roamers/lag")["messages"] == 0


def test_when_a_leader_stops_the_others_answer_for_what_it_led(tmp_path: Path) -> None:
    with Three(tmp_path) as three:
        leaders = make(three, "outlives")
        gone = leaders[0]
        here, there = (node for node in NODES if node != gone)
        message = {"topic": "outlives", "value": "before", "partition": 0}
        assert three.door(here).done("POST", "/produce", message)["offset"] == 0
        three.stop_one(gone)
        message["value"] = "after"
        assert three.door(here).done("POST", "/produce", message)["offset"] == 1
        for node in (here, there):
            found = three.door(node).done("GET", "/consume?topic=outlives&partition=0&offset=0&wait_ms=10000")
            assert [each["value"] for each in found["messages"]] == ["before", "after"]
