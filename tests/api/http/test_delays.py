"""/api/v1/delays: what waits is listed in order, cancelled, and put off; what cannot be is told."""

import time
from typing import Any

import pytest

from millpond.client.blocking import Producer
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door

HOUR_MS = 3_600_000


def park(broker: InProcessBroker, topic: str, *delays_ms: int, partitions: int = 1) -> list[str]:
    """Their message ids."""
    broker.create_topic(topic, partitions=partitions, configs={"millpond.delay": "on"})
    with Producer(broker.bootstrap) as producer:
        sent = [
            producer.send(
                topic, b"later", headers={"millpond-delay-ms": str(delay).encode()}, partition=number % partitions
            )
            for number, delay in enumerate(delays_ms)
        ]
    return [f"{each.topic}/{each.partition}/{each.offset}" for each in sent]


def listed(door: Door, topic: str, **query: object) -> dict[str, Any]:
    asked = "&".join(f"{name}={value}" for name, value in {"topic": topic, **query}.items())
    found: dict[str, Any] = door.done("GET", f"/api/v1/delays?{asked}")
    return found


def test_what_waits_is_listed_in_order_page_by_page(broker: InProcessBroker, door: Door) -> None:
    ids = park(broker, "paged", *(HOUR_MS * (1 + number * 7 % 5) for number in range(10)), partitions=3)
    whole = listed(door, "paged")
    assert (whole["pending"], whole["next"]) == (10, None)
    assert {each["message_id"] for each in whole["messages"]} == set(ids)
    moments = [each["deliver_at"] for each in whole["messages"]]
    assert moments == sorted(moments)
    pages: list[dict[str, Any]] = []
    following: str | None = ""
    while following is not None:
        page = listed(door, "paged", limit=3, after=following)
        pages += page["messages"]
        following = page["next"]
    assert pages == whole["messages"]
    assert len(listed(door, "paged", partition=1)["messages"]) == 3


def test_a_message_is_put_off_and_another_cancelled(broker: InProcessBroker, door: Door) -> None:
    first, second = park(broker, "changed", HOUR_MS, 2 * HOUR_MS)
    later = int(time.time() * 1000) + 5 * HOUR_MS
    assert door.done("PATCH", f"/api/v1/delays/{first}", {"deliver_at": later})["deliver_at"] == later
    assert [each["message_id"] for each in listed(door, "changed")["messages"]] == [second, first]
    assert door.done("DELETE", f"/api/v1/delays/{second}") == {"cancelled": second}
    assert [each["deliver_at"] for each in listed(door, "changed")["messages"]] == [later]
    assert door.ask("DELETE", f"/api/v1/delays/{second}").status == 404
    door.done("PATCH", f"/api/v1/delays/{first}", {"deliver_at": 1})
    found = door.done("GET", "/consume?topic=changed&wait_ms=5000")
    assert [each["value"] for each in found["messages"]] == ["later"]
    assert listed(door, "changed")["pending"] == 0


def test_an_id_may_be_one_part_of_the_path_and_a_list_may_be_of_all_topics(broker: InProcessBroker, door: Door) -> None:
    first, second = park(broker, "encoded", 7 * HOUR_MS, 8 * HOUR_MS)
    encoded = first.replace("/", "%2F")
    assert door.done("PATCH", f"/api/v1/delays/{encoded}", {"delay_ms": 9 * HOUR_MS})["message_id"] == first
    found = door.done("GET", "/api/v1/delays")
    assert found["pending"] >= 2
    assert [each["message_id"] for each in found["messages"] if each["message_id"] in {first, second}] == [
        second,
        first,
    ]
    assert door.done("DELETE", f"/api/v1/delays/{encoded}") == {"cancelled": first}
    assert door.done("DELETE", f"/api/v1/delays/{second}") == {"cancelled": second}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/delays?partition=0", None, 400),
        ("GET", "/api/v1/delays?partition=null", None, 400),
        ("GET", "/api/v1/delays?after=1.0.0", None, 400),
        ("DELETE", "/api/v1/delays/nonsense", None, 404),
        ("PATCH", "/api/v1/delays/refusing/0/0", {"deliver_at": 1, "delay_ms": 1}, 400),
        ("PATCH", "/api/v1/delays/refusing/0/0", {"delay_ms": 10**12}, 400),
        ("GET", "/api/v1/delays?topic=nowhere", None, 404),
        ("GET", "/api/v1/delays?topic=refusing&after=x", None, 400),
        ("GET", "/api/v1/delays?topic=refusing&limit=0", None, 400),
        ("DELETE", "/api/v1/delays/refusing/0/x", None, 400),
        ("DELETE", "/api/v1/delays/refusing/0/99", None, 404),
        ("DELETE", "/api/v1/delays/refusing/7/0", None, 404),
        ("PATCH", "/api/v1/delays/refusing/0/0", {}, 400),
        ("PATCH", "/api/v1/delays/refusing/0/0", {"deliver_at": 9_999_999_999_999}, 400),
    ],
)
def test_what_cannot_be_is_refused(
    broker: InProcessBroker, door: Door, method: str, path: str, body: object, status: int
) -> None:
    if "refusing" not in broker.broker.node.image.topics:
        park(broker, "refusing", HOUR_MS)
    answered = door.ask(method, path, body)
    assert answered.status == status, answered
    assert answered.code
    assert status != 400 or answered.json["field"], "what is wrong is named"


def test_what_is_nowhere_is_not_looked_for(broker: InProcessBroker, door: Door) -> None:
    park(broker, "here", HOUR_MS)
    for path in ("here/7/0", "nowhere/0/0"):
        answered = door.ask("DELETE", f"/api/v1/delays/{path}")
        assert (answered.status, answered.json["code"]) == (404, "unknown_topic_or_partition")
        assert answered.json["field"] in ("partition", "topic"), "told by this broker, which knows all places"


def test_a_topic_without_delays_is_told_apart(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("plain")
    answered = door.get("/api/v1/delays?topic=plain")
    assert "set its millpond.delay to on" in answered.json["detail"]
