"""POST /produce: one message or many, in three forms; and all the ways to get it wrong."""

import asyncio
import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Parcel, Producing
from millpond.api.http.limits import HttpLimits
from millpond.api.http.routes.produce import MESSAGES_MAX
from millpond.client.hashing import murmur2
from millpond.model.addresses import Address
from millpond.protocol.records import NewRecord
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import AS_BINARY, AS_JSON, JSON, Door


def read(door: Door, topic: str, *, partition: int = 0, accept: str = AS_BINARY) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = door.get(
        f"/consume?topic={topic}&partition={partition}&offset=0&count=1000", accept=accept
    ).json["messages"]
    return messages


def values(door: Door, topic: str) -> list[bytes | None]:
    found = [each["value"] for each in read(door, topic)]
    return [None if each is None else base64.b64decode(each) for each in found]


def test_one_message_is_answered_with_its_place(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("one")
    for offset in range(3):
        answered = door.post("/produce", {"topic": "one", "key": "k", "value": "v"})
        assert (answered.status, answered.headers["content-type"]) == (200, JSON)
        assert answered.json == {"partition": 0, "offset": offset}


def test_many_are_answered_in_their_order(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("many", partitions=3)
    wanted = [{"topic": "many", "value": str(number), "partition": number % 3} for number in range(9)]
    answered = door.post("/produce", wanted)
    assert answered.json == [{"partition": number % 3, "offset": number // 3} for number in range(9)]
    for partition in range(3):
        found = [each["value"] for each in read(door, "many", partition=partition, accept=JSON)]
        assert found == [str(number) for number in range(partition, 9, 3)]
    assert door.post("/produce", []).json == []


def test_headers_may_stand_in_an_object_too(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("headed")
    as_object = {"topic": "headed", "value": "v", "headers": {"waiter": "Ada", "none": None}}
    as_list = [{"name": "waiter", "value": "Ada"}, {"name": "none", "value": None}]
    door.done("POST", "/produce", as_object)
    assert read(door, "headed", accept=JSON)[0]["headers"] == as_list


def test_a_message_for_later_waits_in_a_topic_that_was_never_told_to_delay(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("for-later", partitions=2)
    now = broker.clock.wall_ms()
    wanted = [
        {"topic": "for-later", "value": "now", "partition": 0},
        {"topic": "for-later", "value": "soon", "partition": 0, "delay_ms": 60_000},
        {"topic": "for-later", "value": "then", "partition": 1, "deliver_at": now + 90_000},
    ]
    placed = door.done("POST", "/produce", wanted)
    waiting = door.done("GET", "/api/v1/delays?topic=for-later")["messages"]
    assert [each["message_id"] for each in waiting] == [
        f"for-later/{each['partition']}/{each['offset']}" for each in placed[1:]
    ]
    assert [each["deliver_at"] for each in waiting] == [now + 60_000, now + 90_000]
    assert [each["value"] for each in read(door, "for-later", accept=JSON)] == ["now"]


def test_messages_for_later_without_keys_are_told_from_those_for_now(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("mixed")
    wanted = [{"topic": "mixed", "value": "b", "delay_ms": 1000}, {"topic": "mixed", "value": "a"}]
    placed = door.done("POST", "/produce", wanted)
    (found,) = read(door, "mixed", accept=JSON)
    assert (found["value"], found["offset"]) == ("a", placed[1]["offset"])
    assert door.done("GET", "/api/v1/delays?topic=mixed")["pending"] == 1


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": 10**14}, "delay_ms"),
        ({"deliver_at": "soon"}, "deliver_at"),
        ({"delay_ms": 1, "deliver_at": 1}, "deliver_at"),
    ],
)
def test_a_moment_that_cannot_be_is_refused_and_no_topic_is_made_for_it(
    door: Door, asked: dict[str, Any], field: str
) -> None:
    message = {"topic": "never-made", "value": "v", **asked}
    refused = door.post("/produce", message)
    assert (refused.status, refused.json["field"]) == (400, field)
    assert door.post("/produce", [message]).json["field"] == f"[0].{field}"
    assert door.get("/api/v1/topics/never-made").status == 404


def test_a_topic_that_was_told_not_to_delay_refuses_a_message_for_later(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("at-once", configs={"millpond.delay": "off"})
    refused = door.post("/produce", {"topic": "at-once", "value": "v", "delay_ms": 1000})
    assert (refused.status, refused.json["code"], refused.json["field"]) == (400, "delays_are_off", "delay_ms")
    assert read(door, "at-once") == []


def test_a_large_array_goes_in_several_batches(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("large")
    answered = door.post("/produce", [{"topic": "large", "value": "x" * 200_000} for _ in range(20)])
    assert answered.json == [{"partition": 0, "offset": number} for number in range(20)]


@pytest.mark.parametrize(
    ("content_type", "given", "kept"),
    [
        (JSON, "grüße", "grüße".encode()),
        (JSON, {"a": [1, 2]}, b'{"a": [1, 2]}'),
        (JSON, 7, b"7"),
        (JSON, None, None),
        (f"{JSON}; charset=utf-8", "x", b"x"),
        (AS_JSON, "text", b'"text"'),
        (AS_JSON, {"a": None}, b'{"a": null}'),
        (AS_JSON, None, None),
        (AS_BINARY, "AAH/", b"\x00\x01\xff"),
        (AS_BINARY, "", b""),
        (AS_BINARY, None, None),
    ],
)
def test_the_content_type_says_what_a_value_is(
    broker: InProcessBroker, door: Door, content_type: str, given: object, kept: bytes | None
) -> None:
    topic = f"forms-{abs(hash((content_type, str(given))))}"
    broker.create_topic(topic)
    message = {"topic": topic, "key": given, "value": given, "headers": [{"name": "h", "value": given}]}
    assert door.post("/produce", message, content_type=content_type).status == 200
    assert values(door, topic) == [kept]
    (found,) = read(door, topic)
    (header,) = found["headers"]
    assert found["key"] == found["value"] == header["value"]
    assert header["name"] == "h"


def test_headers_and_time_are_kept(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("whole")
    message = {
        "topic": "whole",
        "key": "k",
        "value": "v",
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "b"}],
        "timestamp": broker.clock.wall_ms() - 5,
    }
    door.done("POST", "/produce", message)
    (found,) = read(door, "whole", accept=JSON)
    assert found["timestamp"] == message["timestamp"]
    assert found["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "b", "value": None}]


def test_a_key_goes_where_kafkas_clients_send_it(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("keyed", partitions=7)
    for key in ("a", "table 4", "ключ"):
        expected = (murmur2(key.encode()) & 0x7FFF_FFFF) % 7
        assert door.done("POST", "/produce", {"topic": "keyed", "key": key, "value": "v"})["partition"] == expected


def test_a_topic_that_is_not_there_is_made_by_many_at_once(door: Door) -> None:
    answered: list[int] = []
    senders = [
        threading.Thread(target=lambda: answered.append(door.post("/produce", {"topic": "made", "value": "v"}).status))
        for _ in range(8)
    ]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert answered == [200] * 8
    assert len(values(door, "made")) == 8


def test_a_topic_that_is_not_there_is_not_made_where_that_is_off() -> None:
    with InProcessBroker(http=True, configs={"auto.create.topics.enable": "false"}) as broker:
        answered = Door(broker.broker.http_port).post("/produce", {"topic": "nothing", "value": "v"})
        assert (answered.status, answered.code) == (404, "unknown_topic_or_partition")


GOOD = b'{"topic":"bad","value":"x"}'


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"", 400, "invalid_json", None),
        (b"{", 400, "invalid_json", None),
        (b"nonsense", 400, "invalid_json", None),
        (b"7", 400, "invalid_field", None),
        (GOOD + b"x", 400, "invalid_json", None),
        (b'{"topic":"bad","value":"\xff"}', 400, "invalid_utf8", "value"),
        (b'{"topic":"bad","value":{"a":"\xff"}}', 400, "invalid_utf8", "a"),
        (b'{"topic":"bad","value":"\\ud800"}', 400, "invalid_json", None),
        (b'{"topic":"bad","value":' + b"[" * 100_000, 400, "nested_too_deeply", None),
        (b'{"topic":"bad"}', 400, "missing_field", "value"),
        (b'{"value":"x"}', 400, "missing_field", "topic"),
        (b'{"topic":7,"value":"x"}', 400, "invalid_field", "topic"),
        (b'{"topic":"bad","value":"x","valeu":1}', 400, "unknown_field", "valeu"),
        (b'{"topic":"bad","value":"x","partition":"0"}', 400, "invalid_field", "partition"),
        (b'{"topic":"bad","value":"x","partition":-1}', 400, "invalid_field", "partition"),
        (b'{"topic":"bad","value":"x","partition":1}', 404, "unknown_topic_or_partition", "partition"),
        (b'{"topic":"bad","value":"x","partition":99999999999999999999}', 400, "invalid_field", "partition"),
        (b'{"topic":"bad","value":"x","timestamp":1.5}', 400, "invalid_field", "timestamp"),
        (b'{"topic":"bad","value":"x","timestamp":99999999999999}', 400, "invalid_timestamp", "timestamp"),
        (b'{"topic":"bad","value":"x","headers":7}', 400, "invalid_field", "headers"),
        (b'{"topic":"bad","value":"x","headers":[{"value":"b"}]}', 400, "missing_field", "headers[0].name"),
        (b'{"topic":"bad/name","value":"x"}', 400, "invalid_topic_name", "topic"),
        (b'{"topic":"__consumer_offsets","value":"x","partition":0}', 400, "invalid_topic_name", "topic"),
        (b"[" + GOOD + b',{"topic":"bad","value":"x","x":1}]', 400, "unknown_field", "[1].x"),
        (
            b"[" + GOOD + b',{"topic":"bad","value":"x","partition":5}]',
            404,
            "unknown_topic_or_partition",
            "[1].partition",
        ),
        (b"[" + b",".join([GOOD] * (MESSAGES_MAX + 1)) + b"]", 413, "too_many_messages", None),
    ],
)
def test_what_is_wrong_is_said_with_its_field(
    broker: InProcessBroker, door: Door, body: bytes, status: int, code: str, field: str | None
) -> None:
    if "bad" not in broker.broker.node.image.topics:
        broker.create_topic("bad")
    answered = door.post("/produce", body)
    assert (answered.status, answered.code, answered.json.get("field")) == (status, code, field)
    assert values(door, "bad") == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data"])
def test_a_body_of_another_kind_is_refused(door: Door, content_type: str | None) -> None:
    answered = door.post("/produce", GOOD, content_type=content_type)
    assert (answered.status, answered.code, answered.json["field"]) == (415, "unsupported_media_type", "content-type")


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded"])
def test_a_body_of_which_nothing_is_said_is_text_unless_a_page_in_a_browser_sends_it(
    broker: InProcessBroker, door: Door, content_type: str | None
) -> None:
    if "unsaid" not in broker.broker.node.image.topics:
        broker.create_topic("unsaid")
    before = len(values(door, "unsaid"))
    body = {"topic": "unsaid", "value": "one coffee"}
    assert door.post("/produce", body, content_type=content_type).json == {"partition": 0, "offset": before}
    for origin in ("http://a.site.example", "null"):
        asked = door.ask("POST", "/produce", body, content_type=content_type, headers={"origin": origin})
        assert (asked.status, asked.code) == (415, "unsupported_media_type")
    assert len(values(door, "unsaid")) == before + 1


@pytest.mark.parametrize("value", [7, "no base64", "A", {"a": 1}])
def test_what_is_no_base64_is_refused(broker: InProcessBroker, door: Door, value: object) -> None:
    if "base64" not in broker.broker.node.image.topics:
        broker.create_topic("base64")
    answered = door.post("/produce", {"topic": "base64", "value": value}, content_type=AS_BINARY)
    assert (answered.status, answered.json["field"]) == (400, "value")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(door: Door) -> None:
    answered = door.post("/produce", b" " * (HttpLimits().body_bytes_max + 1))
    assert (answered.status, answered.code) == (413, "body_too_large")


def test_a_message_that_is_too_large_for_its_topic(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "1000"})
    answered = door.post("/produce", {"topic": "small", "value": "x" * 2_000})
    assert (answered.status, answered.code) == (413, "batch_too_large")


def test_of_an_array_each_message_has_its_result(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("plain")
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    wanted = [{"topic": "plain", "value": "a"}, {"topic": "compacted", "value": "without a key"}]
    answered = door.post("/produce", wanted)
    assert (answered.status, answered.code, answered.json["field"]) == (400, "invalid_record", "[1]")
    kept, refused = answered.json["results"]
    assert kept == {"partition": 0, "offset": 0}
    assert refused["code"] == "invalid_record"
    assert "without a key" in refused["detail"]


def test_nobody_suffers_for_anothers_mistake(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("shared", configs={"cleanup.policy": "compact"})
    answered: dict[int, set[int]] = {}

    def work(number: int) -> None:
        key = None if number == 0 else str(number)
        message = {"topic": "shared", "key": key, "value": "v"}
        answered[number] = {door.post("/produce", message).status for _ in range(20)}

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert answered == {0: {400}, **{number: {200} for number in range(1, 8)}}
    assert len(values(door, "shared")) == 140


def test_nobody_is_put_aside_with_anothers_message_for_later(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("strangers", configs={"millpond.delay": "on"})
    wanted: list[dict[str, Any]] = [{"topic": "strangers", "value": str(number)} for number in range(40)]
    for message in wanted[::2]:
        message["delay_ms"] = 3_600_000
    with ThreadPoolExecutor(8) as pool:
        placed = list(pool.map(lambda message: door.done("POST", "/produce", message)["offset"], wanted))
    said = {message["value"]: offset for message, offset in zip(wanted[1::2], placed[1::2], strict=True)}
    assert {each["value"]: each["offset"] for each in read(door, "strangers", accept=JSON)} == said


def test_messages_of_many_requests_share_batches(broker: InProcessBroker) -> None:
    broker.create_topic("gathered")

    async def work() -> tuple[list[int], int]:
        node = broker.broker.node
        partition = node.partitions.named("gathered", 0)
        assert partition is not None
        neighbours = Neighbours(Address("localhost", 1), node.clock, node.rng)
        producing = Producing(node, neighbours, on_error=lambda error: pytest.fail(str(error)))
        waiting: list[asyncio.Future[int]] = []

        def send(value: bytes) -> None:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            waiting.append(future)
            parcel = Parcel([NewRecord(value)], len(value), lambda offsets, _: future.set_result(offsets[0]))
            producing.send(partition.at, parcel)

        for number in range(100):
            send(str(number).encode())
        while not partition.log.appended_batches:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        for number in range(50):  # while the first batch is on its way to disk
            send(str(number).encode())
        return [await each for each in waiting], partition.log.appended_batches

    offsets, batches = broker.run(work)
    assert offsets == list(range(150))
    assert batches == 2
