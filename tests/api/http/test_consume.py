"""GET /consume: from an offset, a time or an end on; waiting; three forms."""

import threading

import pytest

from millpond.client.blocking import Producer
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import AS_BINARY, AS_JSON, JSON, Door


@pytest.fixture(scope="module", autouse=True)
def filled(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("filled", partitions=2)
    now_ms = broker.clock.wall_ms()
    messages = [
        {
            "topic": "filled",
            "key": f"k{number}",
            "value": f"v{number}",
            "partition": 0,
            "timestamp": now_ms - 90 + number,
        }
        for number in range(10)
    ]
    for message in messages:
        door.done("POST", "/produce", message)


def test_messages_from_an_offset_on(broker: InProcessBroker, door: Door) -> None:
    answered = door.get("/consume?topic=filled&partition=0&offset=3&count=2")
    assert (answered.status, answered.headers["content-type"]) == (200, JSON)
    now_ms = broker.clock.wall_ms()
    assert answered.json == {
        "messages": [
            {
                "offset": number,
                "timestamp": now_ms - 90 + number,
                "key": f"k{number}",
                "value": f"v{number}",
                "headers": [],
            }
            for number in (3, 4)
        ],
        "next_offset": 5,
    }


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("", range(10)),
        ("offset=earliest", range(10)),
        ("offset=latest", ()),
        ("offset=10", ()),
        ("offset=9&count=100", (9,)),
        ("partition=1", ()),
    ],
)
def test_where_it_begins(door: Door, query: str, offsets: tuple[int, ...]) -> None:
    found = door.done("GET", f"/consume?topic=filled&{query}")
    assert [each["offset"] for each in found["messages"]] == list(offsets)
    assert found["next_offset"] == (0 if "partition=1" in query else 10)


def test_from_a_time_on(broker: InProcessBroker, door: Door) -> None:
    now_ms = broker.clock.wall_ms()
    found = door.done("GET", f"/consume?topic=filled&timestamp={now_ms - 90 + 7}")
    assert [each["offset"] for each in found["messages"]] == [7, 8, 9]
    assert door.done("GET", f"/consume?topic=filled&timestamp={now_ms + 1}") == {"messages": [], "next_offset": 10}


def test_whoever_waits_is_answered_when_something_comes(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("awaited")
    found: list[object] = []
    waiting = threading.Thread(
        target=lambda: found.append(door.done("GET", "/consume?topic=awaited&offset=0&wait_ms=30000")["next_offset"])
    )
    waiting.start()
    door.done("POST", "/produce", {"topic": "awaited", "value": "x"})
    waiting.join()
    assert found == [1]
    assert door.done("GET", "/consume?topic=awaited&offset=1&wait_ms=1") == {"messages": [], "next_offset": 1}


def test_the_accept_header_says_how_messages_are_shown(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("shown")
    with Producer(broker.bootstrap) as producer:
        for value in (b"text", b'{"a": 1}', b"\xff", None):
            producer.send("shown", value, headers=[("h", b"\xff")])

    def shown(accept: str) -> list[tuple[object, object]]:
        messages = door.get("/consume?topic=shown&offset=0", accept=accept).json["messages"]
        return [(each["value"], each.get("value_base64")) for each in messages]

    assert shown("text/csv, */*") == shown(JSON) == [("text", None), ('{"a": 1}', None), (None, "/w=="), (None, None)]
    assert shown(AS_JSON) == [(None, "dGV4dA=="), ({"a": 1}, None), (None, "/w=="), (None, None)]
    assert shown(AS_BINARY) == [("dGV4dA==", None), ("eyJhIjogMX0=", None), ("/w==", None), (None, None)]
    (header,) = door.get("/consume?topic=shown&offset=0").json["messages"][0]["headers"]
    assert header == {"name": "h", "value": None, "value_base64": "/w=="}


def test_compressed_batches_are_read_and_cut_where_asked(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("packed")
    with Producer(broker.bootstrap, compression="zstd") as producer:
        producer.send_many("packed", [str(number).encode() for number in range(1_000)])
    values, offset = [], 0
    while found := door.done("GET", f"/consume?topic=packed&offset={offset}&count=300")["messages"]:
        values += [each["value"] for each in found]
        offset = found[-1]["offset"] + 1
    assert values == [str(number) for number in range(1_000)]


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ("", 400, "missing_field", "topic"),
        ("topic=nothing", 404, "unknown_topic_or_partition", "topic"),
        ("topic=filled&partition=2", 404, "unknown_topic_or_partition", "partition"),
        ("topic=filled&partition=x", 400, "invalid_field", "partition"),
        ("topic=filled&partition=-1", 400, "invalid_field", "partition"),
        ("topic=filled&offset=-1", 400, "invalid_field", "offset"),
        ("topic=filled&offset=1e3", 400, "invalid_field", "offset"),
        ("topic=filled&offset=11", 416, "offset_out_of_range", "offset"),
        ("topic=filled&count=0", 400, "invalid_field", "count"),
        ("topic=filled&count=10001", 400, "invalid_field", "count"),
        ("topic=filled&wait_ms=30001", 400, "invalid_field", "wait_ms"),
        ("topic=filled&offset=1&timestamp=1", 400, "invalid_field", "timestamp"),
        ("topic=filled&ofset=1", 400, "unknown_field", "ofset"),
        ("topic=filled&topic=filled", 400, "named_twice", "topic"),
        ("topic=%ff", 400, "invalid_utf8", None),
        ("&".join(["a=1"] * 100), 400, "too_many_fields", None),
    ],
)
def test_what_is_wrong_is_said_with_its_field(
    door: Door, query: str, status: int, code: str, field: str | None
) -> None:
    answered = door.get(f"/consume?{query}")
    assert (answered.status, answered.code, answered.json.get("field")) == (status, code, field)


def test_a_form_that_is_not_there_is_refused(door: Door) -> None:
    answered = door.get("/consume?topic=filled", accept="text/html")
    assert (answered.status, answered.code) == (406, "not_acceptable")
