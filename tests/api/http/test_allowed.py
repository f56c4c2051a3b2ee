"""What does not fit its type is refused with its value and what is allowed, in words."""

import pytest

from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door

INT32 = "a whole number from 0 to 2147483647"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/produce", 5, "the body is 5; allowed is an object"),
        ("/produce", {"topic": 5, "value": 1}, "topic is 5; allowed is a text"),
        (
            "/produce",
            {"topic": "a", "value": 1, "partition": "x"},
            f'partition is "x"; allowed is {INT32} or null',
        ),
        ("/produce", {"topic": "a", "value": 1, "headers": 7}, "headers is 7; allowed is a list or an object"),
        ("/produce", [{"topic": "a", "value": 1, "partition": -1}], f"[0].partition is -1; allowed is {INT32} or null"),
        (
            "/api/v1/topics",
            {"name": "a", "configs": {"retention.ms": []}},
            "configs[...] is not right; allowed is a text or true or false or a whole number or a number or null",
        ),
        ("/subscribe", {"group": "", "topics": ["a"]}, 'group is ""; allowed is a text of 1 to 249 characters'),
        ("/subscribe", {"group": "g", "topics": []}, "topics is []; allowed is a list of 1 to 1000 items"),
        (
            "/api/v1/groups/g/offsets",
            {"to": "nowhere"},
            'to is "nowhere"; allowed is one of earliest, latest, offsets, shift, timestamp',
        ),
        (
            "/api/v1/queues/q/ack",
            {"group": "g", "receipts": []},
            "receipts is []; allowed is a list of at least 1 items",
        ),
        (
            "/api/v1/queues/q/messages",
            [{"value": "a", "priority": "urgent"}],
            '[0].priority is "urgent"; allowed is one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, high, low, normal or null',
        ),
    ],
)
def test_a_body_that_does_not_fit(door: Door, path: str, body: object, said: str) -> None:
    answered = door.post(path, body)
    assert (answered.status, answered.code, answered.json["detail"]) == (400, "invalid_field", said)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/v1/topics", {"name": "a", "partitons": 1}, "allowed are configs, name, partitions, replication_factor"),
        ("/produce", [{"topic": "a", "value": 1, "headers": [{"nam": "b"}]}], "allowed are name, value"),
        (
            "/api/v1/queues/q/messages",
            [{"valeu": 1}],
            "allowed are delay_ms, deliver_at, headers, key, priority, ttl_ms, value",
        ),
    ],
)
def test_a_name_that_means_nothing_is_answered_with_those_that_do(
    door: Door, path: str, body: object, said: str
) -> None:
    answered = door.post(path, body)
    assert (answered.status, answered.code) == (400, "unknown_field")
    assert answered.json["detail"].endswith(said)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("partition=x", f'partition is "x"; allowed is {INT32}'),
        ("count=10001", 'count is "10001"; allowed is a whole number from 1 to 10000'),
        ("offset=-5", 'offset is "-5"; allowed is an offset, or earliest, or latest'),
        ("timestamp=now", 'timestamp is "now"; allowed is a whole number from 0 to 9223372036854775807'),
    ],
)
def test_a_query_that_does_not_fit(door: Door, query: str, said: str) -> None:
    answered = door.get(f"/consume?topic=a&{query}")
    assert (answered.status, answered.code, answered.json["detail"]) == (400, "invalid_field", said)


def test_a_long_value_is_cut_short_and_a_long_body_is_not_shown(broker: InProcessBroker, door: Door) -> None:
    cut = door.post("/produce", {"topic": "a", "value": 1, "partition": "x" * 1_000}).json["detail"]
    assert cut.startswith('partition is "xxx')
    assert len(cut) < 200
    hidden = door.post("/produce", {"topic": "a", "partition": "x" * 100_000, "value": 1}).json["detail"]
    assert hidden == f"partition is not right; allowed is {INT32} or null"
    assert door.post("/produce", b'{"topic": 5').json["detail"].startswith("topic is not right; allowed is a text")
