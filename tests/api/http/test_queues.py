"""Queues over HTTP: a message's whole life, and all the ways to get it wrong."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from millpond.api.anywhere.receipts import draw_holder, lease_of, receipt, stem
from millpond.broker.drivers.queue_partition import Held, Taken, Want
from millpond.broker.operations.queues import Lease, runs_of
from millpond.client.blocking import Queue as BlockingQueue
from millpond.model.errors import WrongUse
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import AS_BINARY, Answered, Door


class Queue:
    """One queue, as a program with nothing but HTTP sees it."""

    def __init__(self, broker: InProcessBroker, door: Door, name: str, *, group: str = "workers") -> None:
        self.broker = broker
        self.door = door
        self.name = name
        self.group = group
        self.path = f"/api/v1/queues/{name}"

    def send(self, *values: str, **rest: object) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = self.door.done(
            "POST", f"{self.path}/messages", [{"value": each, **rest} for each in values]
        )
        return sent

    def receive(self, **rest: object) -> list[dict[str, Any]]:
        wish = {"group": self.group, **rest}
        messages: list[dict[str, Any]] = self.door.done("POST", f"{self.path}/receive", wish)["messages"]
        return messages

    def say(self, what: str, *messages: dict[str, Any], **rest: object) -> Answered:
        receipts = [each["receipt"] for each in messages]
        return self.door.post(f"{self.path}/{what}", {"group": self.group, "receipts": receipts, **rest})

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.door.done("GET", f"{self.path}/stats?group={self.group}")
        return {name: found[name] for name in ("ready", "in_flight", "waiting", "dying")}

    def configure(self, **settings: str) -> None:
        """Underscores for dots."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        configure_group(self.broker, self.group, given)

    def letters(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.door.done("GET", f"{self.path}/dlq{query}")["messages"]
        return found


def configure_group(broker: InProcessBroker, group: str, settings: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)


@pytest.fixture
def queue(broker: InProcessBroker, door: Door, request: pytest.FixtureRequest) -> Queue:
    """Of one partition, named after the test."""
    name = request.node.name.removeprefix("test_")[:60].replace("[", "-").replace("]", "")
    broker.create_topic(name)
    return Queue(broker, door, name, group=f"workers-{name}")


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in messages]


# A message's life


def test_what_is_sent_is_received_once_and_acknowledged(queue: Queue) -> None:
    sent = queue.send("a", "b", "c", key="k", headers=[{"name": "h", "value": "1"}])
    assert [each["message_id"] for each in sent] == [f"{queue.name}/0/{offset}" for offset in range(3)]
    got = queue.receive(max=2)
    assert values(got) == ["a", "b"]
    assert {"key": "k", "headers": [{"name": "h", "value": "1"}], "attempt": 1, "partition": 0}.items() <= got[
        0
    ].items()
    assert (got[0]["message_id"], got[0]["offset"]) == (f"{queue.name}/0/0", 0)
    assert got[0]["timestamp"] == queue.broker.clock.wall_ms()
    assert queue.stats() == {"ready": 1, "in_flight": 2, "waiting": 0, "dying": 0}
    assert queue.say("ack", *got).json == {"settled": 2}
    assert values(queue.receive()) == ["c"]
    assert queue.receive() == []
    assert queue.stats() == {"ready": 0, "in_flight": 1, "waiting": 0, "dying": 0}


def test_one_message_is_answered_with_its_id(queue: Queue) -> None:
    answered = queue.door.post(f"{queue.path}/messages", {"value": {"a": 1}})
    assert answered.json == {"message_id": f"{queue.name}/0/0", "partition": 0, "offset": 0}
    assert queue.door.post(f"{queue.path}/messages", []).json == []
    assert values(queue.receive()) == ['{"a": 1}']


def test_every_group_gets_every_message(queue: Queue) -> None:
    queue.send("a")
    other = Queue(queue.broker, queue.door, queue.name, group="others")
    assert values(queue.receive()) == values(other.receive()) == ["a"]


def test_what_a_message_asks_of_its_queue_is_in_its_headers(queue: Queue) -> None:
    queue.send("a", priority=9, ttl_ms=60_000)
    (message,) = queue.receive()
    named = {each["name"]: each["value"] for each in message["headers"]}
    assert named == {"millpond-priority": "9", "millpond-ttl-ms": "60000"}


def test_many_are_sent_as_an_object_and_headers_may_be_one(queue: Queue) -> None:
    body = {"messages": [{"value": "a", "headers": {"h": "1", "i": "2"}}, {"value": "b"}]}
    sent = queue.door.done("POST", f"{queue.path}/messages", body)["messages"]
    assert [each["message_id"] for each in sent] == [f"{queue.name}/0/0", f"{queue.name}/0/1"]
    first, second = queue.receive()
    assert first["headers"] == [{"name": "h", "value": "1"}, {"name": "i", "value": "2"}]
    assert (second["value"], second["headers"]) == ("b", [])
    assert queue.door.done("POST", f"{queue.path}/messages", {"messages": []}) == {"messages": []}


def test_what_waits_of_a_batch_leaves_no_gaps_for_consumers(broker: InProcessBroker, door: Door) -> None:
    """A Kafka client puts into one batch what is for now and what is for later."""
    broker.create_topic("gaps", configs={"millpond.delay": "on"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1_000})
    later: dict[str, str | bytes | None] = {"millpond-delay-ms": "3600000"}
    for number in range(6):
        producer.produce("gaps", b"%d" % number, headers=later if number in (0, 1, 3, 5) else None)
    assert producer.flush(30) == 0
    queue = Queue(broker, door, "gaps")
    assert queue.stats()["ready"] == 2
    (first,) = queue.receive(max=1)
    assert (first["value"], queue.stats()["ready"]) == ("2", 1)
    (second,) = queue.receive(max=5)
    assert second["value"] == "4"
    assert queue.receive(max=5) == []
    assert queue.stats() == {"ready": 0, "in_flight": 2, "waiting": 0, "dying": 0}
    queue.say("ack", first, second)
    broker.clock.advance(3_600_000)
    assert sorted(each["value"] for each in queue.receive(max=6, wait_ms=10_000)) == ["0", "1", "3", "5"]


def test_higher_priorities_come_first_without_any_setting(queue: Queue) -> None:
    for priority in ("low", "normal", "high"):
        queue.send(priority, priority=priority)
    queue.send("none at all")
    assert [values(queue.receive(max=1)) for _ in range(4)] == [["high"], ["normal"], ["none at all"], ["low"]]


def test_a_group_is_told_how_to_deliver_over_http(queue: Queue) -> None:
    path = f"/api/v1/groups/{queue.group}"
    changed = queue.door.done("PATCH", path, {"configs": {"millpond.order": "key", "share.delivery.count.limit": "2"}})
    assert changed["configs"]["millpond.order"] == {"value": "key", "is_default": False}
    assert queue.door.done("GET", f"{path}/configs") == changed
    queue.send("a", "b", key="k")
    queue.send("c", key="l")
    assert values(queue.receive()) == ["a", "c"]
    assert queue.door.ask("PATCH", path, {"configs": {"millpond.order": "chance"}}).status == 400
    queue.door.done("PATCH", path, {"configs": {"millpond.order": None}})
    assert values(queue.receive()) == ["b"]


# Delays


def test_a_delay_is_never_passed_over_by_a_topic_that_was_not_told_to_delay(queue: Queue) -> None:
    """Not even where it was made without the setting: it is turned on, unless somebody turned it off."""
    (later,) = queue.send("later", delay_ms=60_000)
    assert queue.receive() == []
    assert queue.stats() == {"ready": 0, "in_flight": 0, "waiting": 0, "dying": 0}
    (listed,) = queue.door.done("GET", f"/api/v1/delays?topic={queue.name}")["messages"]
    assert (listed["message_id"], listed["deliver_at"]) == (later["message_id"], queue.broker.clock.wall_ms() + 60_000)
    queue.broker.create_topic(f"{queue.name}-off", configs={"millpond.delay": "off"})
    off = Queue(queue.broker, queue.door, f"{queue.name}-off")
    assert refused(off, "messages", {"value": "a", "delay_ms": 1}) == (400, "delays_are_off", "delay_ms")
    assert refused(off, "messages", [{"value": "a", "deliver_at": 1}]) == (400, "delays_are_off", "[0].deliver_at")
    assert off.receive() == []


def test_a_cluster_that_was_told_not_to_delay_is_not_talked_into_it() -> None:
    with InProcessBroker(http=True, configs={"millpond.delay": "off"}) as broker:
        broker.create_topic("plain")
        queue = Queue(broker, Door(broker.broker.http_port), "plain")
        assert refused(queue, "messages", {"value": "a", "delay_ms": 1}) == (400, "delays_are_off", "delay_ms")
        with BlockingQueue(broker.bootstrap, "plain") as other, pytest.raises(WrongUse, match="delays no messages"):
            other.send(b"a", delay=1)


def test_a_delayed_message_goes_by_the_id_its_sender_was_told(queue: Queue) -> None:
    moment = datetime.fromtimestamp(queue.broker.clock.wall_ms() / 1000 + 60, tz=UTC)
    (sent,) = queue.send("later", deliver_at=moment.isoformat(), headers={"millpond-message-id": "forged/0/7"})
    queue.send("now", headers={"millpond-message-id": "forged/0/8"})
    (now,) = queue.receive()
    assert now["message_id"] == f"{queue.name}/0/1"
    queue.say("ack", now)
    queue.broker.clock.advance(60_000)
    (got,) = queue.receive(wait_ms=20_000)
    assert (got["value"], got["message_id"]) == ("later", sent["message_id"])
    assert got["offset"] != sent["offset"]
    assert queue.say("ack", got).json == {"settled": 1}


def test_a_queue_is_made_by_sending_to_it(broker: InProcessBroker, door: Door) -> None:
    queue = Queue(broker, door, "made-by-sending")
    assert queue.send("a")[0]["offset"] == 0
    assert values(queue.receive()) == ["a"]


def test_values_that_are_no_text_come_in_base64(queue: Queue) -> None:
    queue.door.post(f"{queue.path}/messages", {"value": "/w=="}, content_type=AS_BINARY)
    assert queue.receive()[0]["value_base64"] == "/w=="


def test_a_receive_waits_for_the_first_message(queue: Queue) -> None:
    got: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: got.extend(queue.receive(wait_ms=20_000)))
    waiting.start()
    queue.send("late")
    waiting.join(30)
    assert values(got) == ["late"]


def test_a_message_nobody_settled_comes_again_and_its_old_receipt_is_worth_nothing(queue: Queue) -> None:
    queue.send("a")
    (first,) = queue.receive(visibility_ms=1_000)
    assert queue.receive() == []
    queue.broker.clock.advance(1_000)
    (second,) = queue.receive()
    assert (second["attempt"], second["message_id"]) == (2, first["message_id"])
    assert second["receipt"] != first["receipt"]
    refused = queue.say("ack", first)
    assert (refused.status, refused.code) == (409, "lease_lost")
    assert queue.say("ack", second).json == {"settled": 1}


def test_a_lease_is_extended_from_now_on(queue: Queue) -> None:
    queue.send("a")
    (message,) = queue.receive(visibility_ms=1_000)
    queue.broker.clock.advance(900)
    assert queue.say("extend", message, visibility_ms=1_000).json == {"settled": 1}
    queue.broker.clock.advance(900)
    assert queue.receive() == []
    assert queue.say("ack", message).status == 200


def test_the_groups_own_lease_is_the_default(queue: Queue) -> None:
    queue.configure(share_record_lock_duration_ms="5000")
    queue.send("a")
    assert len(queue.receive()) == 1
    queue.broker.clock.advance(4_999)
    assert queue.receive() == []
    queue.broker.clock.advance(1)
    assert queue.receive()[0]["attempt"] == 2


def test_what_is_given_back_waits_as_long_as_asked_or_as_the_group_says(queue: Queue) -> None:
    queue.configure(millpond_retry_backoff_ms="2000", millpond_retry_jitter="0")
    queue.send("a")
    (message,) = queue.receive()
    assert queue.say("nack", message, delay_ms=500).json == {"settled": 1}
    assert queue.stats()["waiting"] == 1
    queue.broker.clock.advance(499)
    assert queue.receive() == []
    queue.broker.clock.advance(1)
    (message,) = queue.receive()
    queue.say("nack", message)
    queue.broker.clock.advance(3_999)  # twice as long after the second attempt
    assert queue.receive() == []
    queue.broker.clock.advance(1)
    (message,) = queue.receive()
    queue.say("nack", message, delay_ms=0)
    assert queue.receive()[0]["attempt"] == 4


def test_an_expired_message_is_not_delivered(queue: Queue) -> None:
    queue.send("a", ttl_ms=1_000)
    queue.send("b")
    queue.broker.clock.advance(1_000)
    assert values(queue.receive()) == ["b"]


def wait_for_letters(queue: Queue, count: int) -> list[dict[str, Any]]:
    while len(found := queue.letters()) < count:
        pass
    return found


def test_after_the_last_attempt_a_message_is_a_dead_letter_and_is_sent_back(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="2")
    queue.send("bad", key="k", headers=[{"name": "h", "value": "1"}])
    for attempt in (1, 2):
        (message,) = queue.receive()
        assert message["attempt"] == attempt
        queue.say("nack", message, error="no milk")
    (letter,) = wait_for_letters(queue, 1)
    assert queue.receive() == []
    assert (letter["value"], letter["key"]) == ("bad", "k")
    assert (letter["origin"], letter["attempts"], letter["error"]) == (f"{queue.name}/0/0", 2, "no milk")
    assert letter["group"] == queue.group
    redrive = {"group": queue.group}
    assert queue.door.done("POST", f"{queue.path}/redrive", redrive) == {"redriven": 1}
    assert queue.door.done("POST", f"{queue.path}/redrive", redrive) == {"redriven": 0}
    (again,) = queue.receive()
    assert (again["value"], again["key"], again["attempt"], again["offset"]) == ("bad", "k", 1, 1)
    assert again["headers"] == [{"name": "h", "value": "1"}]


def test_dead_letters_that_were_sent_back_are_none_any_more(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="1")
    queue.send("a", "b", "c")
    queue.send("d", priority="high")
    other = Queue(queue.broker, queue.door, queue.name, group=f"other-{queue.name}")
    other.configure(share_delivery_count_limit="1")
    queue.say("nack", *queue.receive())
    other.say("nack", *other.receive())
    wait_for_letters(queue, 8)
    of_this, of_other = f"?group={queue.group}", f"?group={other.group}"
    before = values(queue.letters(of_this))
    assert queue.door.done("POST", f"{queue.path}/redrive", {"group": queue.group, "max": 2}) == {"redriven": 2}
    assert values(queue.receive()) == sorted(before[:2], key="dabc".index)
    assert values(queue.letters(of_this)) == before[2:]
    assert (len(queue.letters(of_other)), len(queue.letters())) == (4, 6)
    assert queue.door.done("POST", f"{queue.path}/redrive", {}) == {"redriven": 6}
    assert queue.letters() == queue.letters(of_this) == queue.letters(of_other) == []
    found = queue.door.done("GET", f"{queue.path}.dlq/groups")["groups"]
    assert found == [], "Millpond's own are nobody's"


def test_a_queue_with_the_longest_name_has_dead_letters_too(broker: InProcessBroker, door: Door) -> None:
    queues = [Queue(broker, door, "x" * 248 + last, group="long-names") for last in "ab"]
    queues[0].configure(share_delivery_count_limit="1")
    for queue in queues:
        queue.send(queue.name[-1])
        queue.say("nack", *queue.receive())
    for queue in queues:
        assert values(wait_for_letters(queue, 1)) == [queue.name[-1]], "of its own, from the topic that both have"
    assert queues[0].door.done("POST", f"{queues[0].path}/redrive", {}) == {"redriven": 1}
    assert [len(queue.letters()) for queue in queues] == [0, 1]


def test_dead_letters_of_all_groups_are_shown_wherever_they_are(queue: Queue) -> None:
    other = Queue(queue.broker, queue.door, queue.name, group=f"other-{queue.name}")
    queue.configure(share_delivery_count_limit="1")
    other.configure(share_delivery_count_limit="1", millpond_dead_letter_topic="graves")
    queue.send("a", "b")
    queue.say("nack", *queue.receive())
    other.say("nack", *other.receive())
    wait_for_letters(queue, 4)
    seen, after = [], ""
    while after is not None:
        page = queue.door.done("GET", f"{queue.path}/dlq?count=1{after and f'&after={after}'}")
        seen += [each["message_id"] for each in page["messages"]]
        after = page["next"]
    assert seen == [f"{queue.name}.dlq/0/0", f"{queue.name}.dlq/0/1", "graves/0/0", "graves/0/1"]
    assert queue.door.done("POST", f"{queue.path}/redrive", {}) == {"redriven": 4}
    assert queue.letters() == []


def test_a_letter_outlives_its_message_and_a_schedule_does_not_begin_again_with_it(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="1")
    (sent,) = queue.send("tick", ttl_ms=1_000, headers={"millpond-cron": "* * * * *"})
    queue.broker.clock.advance(60_000)
    (message,) = queue.receive(wait_ms=20_000)
    assert queue.door.ask("DELETE", f"/api/v1/delays/{sent['message_id']}").status == 200
    queue.say("nack", message)
    wait_for_letters(queue, 1)
    queue.broker.clock.advance(5_000)
    assert queue.door.done("POST", f"{queue.path}/redrive", {}) == {"redriven": 1}
    (again,) = queue.receive()
    assert (again["value"], again["headers"]) == ("tick", [{"name": "millpond-ttl-ms", "value": "1000"}])
    assert queue.door.done("GET", f"/api/v1/delays?topic={queue.name}")["pending"] == 0


def test_dead_letters_come_in_pages_and_by_group(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="1")
    other = Queue(queue.broker, queue.door, queue.name, group=f"other-{queue.name}")
    other.configure(share_delivery_count_limit="1")
    queue.send(*"abcde")
    queue.say("nack", *queue.receive())
    other.say("nack", other.receive()[0])
    assert len(wait_for_letters(queue, 6)) == 6
    assert values(queue.letters(f"?group={other.group}")) == ["a"]
    page, seen = queue.door.done("GET", f"{queue.path}/dlq?count=4&group={queue.group}"), []
    seen += values(page["messages"])
    page = queue.door.done("GET", f"{queue.path}/dlq?group={queue.group}&after={page['next']}")
    assert page["next"] is None
    assert sorted(seen + values(page["messages"])) == list("abcde")
    assert other.door.done("POST", f"{other.path}/redrive", {"group": other.group}) == {"redriven": 1}
    assert queue.door.done("POST", f"{queue.path}/redrive", {"group": queue.group, "max": 3}) == {"redriven": 3}
    assert queue.door.done("POST", f"{queue.path}/redrive", {"group": queue.group}) == {"redriven": 2}


def test_a_receipt_that_is_given_twice_counts_once(queue: Queue) -> None:
    queue.send("a", "b")
    first, second = queue.receive(max=2)
    assert queue.say("nack", first, first, first).json == {"settled": 1}
    assert queue.say("ack", second, second).json == {"settled": 1}


def test_many_are_settled_at_once_whoever_received_them(queue: Queue) -> None:
    queue.send(*map(str, range(300)))
    got = [message for _ in range(30) for message in queue.receive(max=10)]
    assert len(got) == 300
    assert queue.say("ack", *got[::2]).json == {"settled": 150}
    refused = queue.say("ack", *got)
    assert (refused.status, refused.code, refused.json["field"]) == (409, "lease_lost", "receipts[0]")
    codes = [each.get("code") for each in refused.json["results"]]
    assert codes == ["lease_lost", None] * 150
    assert refused.json["results"][1] == {"receipt": got[1]["receipt"], "message_id": f"{queue.name}/0/1"}
    assert queue.stats() == {"ready": 0, "in_flight": 0, "waiting": 0, "dying": 0}


# Bad input


def refused(queue: Queue, path: str, body: object) -> tuple[int, str, str | None]:
    answered = queue.door.post(f"{queue.path}/{path}", body)
    return answered.status, answered.code, answered.json.get("field")


def test_receipts_of_others_are_worth_nothing(queue: Queue) -> None:
    queue.send("a")
    (message,) = queue.receive()
    stranger = Queue(queue.broker, queue.door, queue.name, group="strangers")
    assert (stranger.say("ack", message).status, stranger.say("nack", message).status) == (409, 409)
    lease = lease_of(message["receipt"])
    assert lease is not None
    for place in (lease._replace(offset=7), lease._replace(partition=9), lease._replace(holder=f"http:{1:032x}")):
        forged = {"receipt": receipt(stem(place.holder, place.partition), place.offset)}
        assert (answered := queue.say("ack", forged)).status == 409, answered
    assert queue.say("ack", message).status == 200


@pytest.mark.parametrize("path", ["ack", "nack", "extend"])
def test_what_is_no_receipt_is_refused_and_named(queue: Queue, path: str) -> None:
    rest = {"visibility_ms": 60_000} if path == "extend" else {}
    queue.send("a")
    (message,) = queue.receive()
    for wrong in ("", "x", message["receipt"] + "A", message["receipt"][:-1] + "!", "A" * 39):
        body = {"group": queue.group, "receipts": [wrong], **rest}
        assert refused(queue, path, body) == (409, "lease_lost", "receipts[0]")
    answered = queue.door.post(
        f"{queue.path}/{path}", {"group": queue.group, "receipts": [message["receipt"], "x"], **rest}
    )
    assert (answered.status, answered.json["field"]) == (409, "receipts[1]")
    assert "is 'x', which is no receipt" in answered.json["detail"]
    assert [each.get("code") for each in answered.json["results"]] == [None, "lease_lost"]
    assert queue.stats()["in_flight"] == (1 if path == "extend" else 0), "the one that is a receipt is settled"


def test_a_wrong_group_is_told_so_and_not_begun(queue: Queue) -> None:
    queue.send("a")
    (message,) = queue.receive()
    stranger = Queue(queue.broker, queue.door, queue.name, group=f"strangers-{queue.name}")
    assert stranger.say("ack", message).status == 409
    assert stranger.stats()["ready"] == 1, "which it would find if it came"
    assert stranger.group not in {each.group for each in queue.broker.broker.node.queues}


def test_the_groups_of_a_queue_are_those_that_came(queue: Queue) -> None:
    asked = f"{queue.path}/groups"
    assert queue.door.done("GET", asked) == {"topic": queue.name, "groups": []}
    other = Queue(queue.broker, queue.door, queue.name, group=f"others-{queue.name}")
    for each in (queue, other):
        assert each.receive() == []
    Queue(queue.broker, queue.door, queue.name, group="strangers").stats()
    assert queue.door.done("GET", asked)["groups"] == [other.group, queue.group]


def test_an_unknown_queue_is_not_found(broker: InProcessBroker, door: Door) -> None:
    queue = Queue(broker, door, "nowhere")
    one = {"group": "g", "receipts": [receipt(stem(f"http:{0:032x}", 0), 0)]}
    for path, body in (
        ("receive", {"group": "g"}),
        ("ack", one),
        ("nack", one),
        ("extend", {**one, "visibility_ms": 1}),
        ("redrive", {"group": "g"}),
    ):
        assert refused(queue, path, body) == (404, "unknown_topic_or_partition", "topic")
    assert {door.get(f"{queue.path}/{path}").status for path in ("dlq", "groups", "stats?group=g")} == {404}
    internal = Queue(broker, door, "__share_group_state")
    assert refused(internal, "receive", {"group": "g"})[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("receive", {"group": "g", "max": 0}, "max"),
        ("receive", {"group": "g", "max": 1_001}, "max"),
        ("receive", {"group": "g", "wait_ms": 60_001}, "wait_ms"),
        ("receive", {"group": "g", "visibility_ms": 12 * 3_600_000 + 1}, "visibility_ms"),
        ("receive", {"group": "g", "visibility_ms": 10**40}, "visibility_ms"),
        ("receive", {"group": ""}, "group"),
        ("receive", {}, "group"),
        ("receive", {"group": "g", "mox": 1}, "mox"),
        ("messages", {"value": "a", "delay_ms": 366 * 86_400_000}, "delay_ms"),
        ("messages", {"value": "a", "ttl_ms": 366 * 86_400_000}, "ttl_ms"),
        ("messages", {"value": "a", "deliver_at": "tomorrow"}, "deliver_at"),
        ("messages", {"value": "a", "delay_ms": 1, "headers": {"millpond-delay-ms": "1"}}, "delay_ms"),
        ("messages", {"value": "a", "headers": {"millpond-delay-ms": "soon"}}, "headers"),
        ("messages", {"value": "a", "headers": {"millpond-delay-ms": str(10**12)}}, "headers"),
        ("messages", {"value": "a", "headers": {"millpond-cron": "61 * * * *"}}, "headers"),
        ("messages", {"messages": [{"value": "a"}, {"value": "a", "ttl_ms": 0}]}, "messages[1].ttl_ms"),
        ("messages", {"messages": [{"value": "a"}], "key": "k"}, "messages"),
        ("messages", {"messages": [{"key": "k"}]}, "messages[0].value"),
        ("messages", {"value": "a", "delay_ms": -1}, "delay_ms"),
        ("messages", {"value": "a", "ttl_ms": 0}, "ttl_ms"),
        ("messages", {"value": "a", "deliver_at": 10**15}, "deliver_at"),
        ("messages", {"value": "a", "deliver_at": 1, "delay_ms": 1}, "deliver_at"),
        ("messages", {"value": "a", "priority": "urgent"}, "priority"),
        ("messages", {"value": "a", "priority": 10}, "priority"),
        ("messages", {"value": "a", "headers": [{"name": "millpond-ttl-ms", "value": "soon"}]}, "headers"),
        ("messages", {"value": "a", "headers": [{"name": "millpond-priority", "value": "1st"}]}, "headers"),
        ("messages", [{"value": "a"}, {"value": "a", "ttl_ms": 0}], "[1].ttl_ms"),
        ("messages", {"key": "a"}, "value"),
        ("ack", {"group": "g", "receipts": []}, "receipts"),
        ("ack", {"group": "g", "receipts": ["x"] * 10_001}, "receipts"),
        ("nack", {"group": "g", "receipts": ["x"], "delay_ms": 8 * 24 * 3_600_000}, "delay_ms"),
        ("extend", {"group": "g", "receipts": ["x"]}, "visibility_ms"),
        ("extend", {"group": "g", "receipts": ["x"], "visibility_ms": 0}, "visibility_ms"),
        ("redrive", {"group": "g", "max": 0}, "max"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_its_field(
    broker: InProcessBroker, door: Door, path: str, body: object, field: str
) -> None:
    queue = Queue(broker, door, "bounds")
    queue.send("makes it")
    status, _, named = refused(queue, path, body)
    assert (status, named) == (400, field)


def test_a_queue_whose_name_is_none_is_refused_as_such(broker: InProcessBroker, door: Door) -> None:
    for name, status in (("a%20b", 400), ("%E2%98%83", 400), ("x" * 250, 400), ("__consumer_offsets", 403)):
        answered = door.post(f"/api/v1/queues/{name}/messages", {"value": "a"})
        assert (answered.status, answered.json["field"]) == (status, "topic"), name


def test_a_value_that_is_too_large_is_named(queue: Queue) -> None:
    large = {"value": "x" * 1_100_000}
    assert refused(queue, "messages", large) == (413, "batch_too_large", "value")
    assert refused(queue, "messages", [{"value": "a"}, large]) == (413, "batch_too_large", "[1].value")
    assert refused(queue, "messages", {"messages": [large]}) == (413, "batch_too_large", "messages[0].value")
    assert values(queue.receive()) == ["a"], "what was not too large was kept"


def test_a_redrive_of_all_needs_no_body(queue: Queue) -> None:
    answered = queue.door.ask("POST", f"{queue.path}/redrive")
    assert (answered.status, answered.json) == (200, {"redriven": 0})


def test_a_value_beyond_its_cap_is_shown_with_what_is_allowed(queue: Queue) -> None:
    answered = queue.door.post(f"{queue.path}/receive", {"group": "g", "max": 5_000})
    assert answered.json["detail"] == "max is 5000; allowed are 1 to 1000"


# Their parts


def test_a_receipt_is_read_as_it_was_written(broker: InProcessBroker) -> None:
    holder = draw_holder(broker.broker.node.rng)
    for partition, offset in ((0, 0), (5, 1), (2**31 - 1, 2**63 - 1)):
        written = receipt(stem(holder, partition), offset)
        assert lease_of(written) == Lease(partition, offset, holder)
        assert len(written) == 39


def test_leases_of_one_holder_side_by_side_are_one_run() -> None:
    leases = [Lease(0, offset, "a") for offset in (3, 1, 2, 7)] + [Lease(0, 4, "b"), Lease(1, 4, "a"), Lease(0, 3, "a")]
    assert runs_of(leases) == {0: [Held(1, 3, "a"), Held(7, 7, "a"), Held(4, 4, "b")], 1: [Held(4, 4, "a")]}


def test_who_takes_nothing_wakes_nobody(queue: Queue) -> None:
    """Two that may have no more would wake each other for ever."""
    queue.configure(share_partition_max_record_locks="1")
    queue.send("a", "b")
    assert len(queue.receive(max=1)) == 1

    async def take() -> tuple[int, Taken, int]:
        (found,) = [each for each in queue.broker.broker.node.queues if each.group == queue.group]
        assert found.ledger.ready == 1
        before = found.mark
        return before, found.take(Want("somebody", count_max=1, bytes_max=1, lock_ms=1)), found.mark

    before, taken, after = queue.broker.run(take)
    assert (taken.deliveries, after) == ([], before)
