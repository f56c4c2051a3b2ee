"""`millpond groups` against a real broker and a real member."""

import json

import pytest

from millpond.client.blocking import Consumer
from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, as_shown, read_table

LAG = ("topic", "partition", "committed", "end", "lag", "lag_seconds")


def fill(millpond: Command, topic: str, count: int) -> None:
    """A message a second from 1970 on, each in a batch of its own."""
    for number in range(count):
        line = json.dumps({"value": str(number), "timestamp": number * 1_000}).encode()
        millpond.ok("produce", topic, "--format", "json", stdin=line)


def offsets(millpond: Command, group: str) -> list[tuple[str, int, int]]:
    found = millpond.document("groups", "describe", group)
    return [(each["topic"], each["partition"], each["committed"]) for each in found["partitions"]]


def test_a_group_is_listed_described_moved_and_deleted(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    fill(millpond, "orders", 10)
    with Consumer(broker.bootstrap, topics=["orders"], group="kitchen", client_id="cook") as consumer:
        assert len(consumer.poll(4, timeout=30)) == 4
        consumer.commit()
        listed = {"group": "kitchen", "state": "Stable", "protocol": "consumer"}
        assert listed in millpond.document("groups", "list")["groups"]
        assert listed in read_table(millpond.ok("groups", "list"))
        found = millpond.document("groups", "describe", "kitchen")
        assert (found["state"], found["protocol"]) == ("Stable", "consumer")
        assert [(each["client_id"], each["assigned"]) for each in found["members"]] == [("cook", ["orders-0"])]
        shown = read_table(millpond.ok("groups", "describe", "kitchen"))
        columns = ("member_id", "instance_id", "client_id", "host", "assigned")
        assert shown[0] == as_shown(found["members"], *columns)[0]
        for refused in (("reset", "kitchen", "--to", "latest"), ("delete", "kitchen")):
            code, out, err = millpond("groups", *refused)
            assert (code, out) == (5, "")
            assert "stop them" in err
    assert offsets(millpond, "kitchen") == [("orders", 0, 4)]
    assert millpond.ok("groups", "delete", "kitchen") == "group kitchen is deleted\n"
    assert millpond("groups", "describe", "kitchen")[0] == 3


def test_lag_is_in_messages_and_in_seconds(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("late")
    fill(millpond, "late", 6)
    millpond.ok("consume", "late", "--group", "readers", "--count", "2")
    (row,) = millpond.document("groups", "lag", "readers")["partitions"]
    assert (row["committed"], row["end"], row["lag"]) == (2, 6, 4)
    assert row["lag_seconds"] > 50 * 365 * 86_400  # since 1970
    (shown,) = read_table(millpond.ok("groups", "lag", "readers"))
    assert {**shown, "lag seconds": ""} == {**as_shown([row], *LAG)[0], "lag seconds": ""}
    millpond.ok("consume", "late", "--group", "readers")
    found = millpond.document("groups", "lag", "readers")
    assert (found["lag"], found["lag_seconds"]) == (0, 0.0)
    assert read_table(millpond.ok("groups", "lag", "readers")) == as_shown(found["partitions"], *LAG)


def test_a_partition_without_a_committed_offset_has_no_lag_and_is_shown(
    millpond: Command, broker: InProcessBroker
) -> None:
    """As Kafka's own tool does: where a member will begin, only it knows."""
    broker.create_topic("begun", partitions=2)
    fill(millpond, "begun", 3)
    with Consumer(broker.bootstrap, topics=["begun"], group="beginners") as consumer:
        while len(consumer.assignment) < 2:
            consumer.poll(1, timeout=0.1)
        found = millpond.document("groups", "lag", "beginners")
        assert [(each["committed"], each["lag"], each["lag_seconds"]) for each in found["partitions"]] == [
            (None, None, None)
        ] * 2
        assert sum(each["end"] for each in found["partitions"]) == 3
        shown = millpond.ok("groups", "lag", "beginners")
        assert [each["lag"] for each in read_table(shown)] == ["-", "-"]
        assert "nothing is committed of 2 partitions" in shown
        assert len(millpond.document("groups", "describe", "beginners")["partitions"]) == 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 8),
        (("--to-offset", "3"), 3),
        (("--to-time", "1970-01-01T00:00:05Z"), 5),
        (("--to-time", "1h"), 8),
        (("--shift", "-2"), 4),
        (("--shift", "100"), 8),
    ],
)
def test_a_group_goes_where_it_is_moved_to(
    millpond: Command, broker: InProcessBroker, target: tuple[str, ...], expected: int
) -> None:
    if millpond("topics", "describe", "moved")[0] == 3:
        broker.create_topic("moved", partitions=2)
        for number in range(8):
            line = json.dumps({"value": "x", "timestamp": number * 1_000}).encode()
            millpond.ok("produce", "moved", "--partition", "1", "--format", "json", stdin=line)
    at = ("--topic", "moved:1")
    millpond.ok("groups", "reset", "movers", "--to-offset", "6", *at)
    move = ("groups", "reset", "movers", *target, *at)
    rows = [{"topic": "moved", "partition": 1, "from": 6, "to": expected}]
    assert millpond.document(*move, "--dry-run") == {"group": "movers", "dry_run": True, "partitions": rows}
    assert offsets(millpond, "movers") == [("moved", 1, 6)]
    assert read_table(millpond.ok(*move)) == as_shown(rows, "topic", "partition", "from", "to")
    assert offsets(millpond, "movers") == [("moved", 1, expected)]


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        (("describe", "nobody"), 3, "nobody"),
        (("lag", "nobody"), 3, "nobody"),
        (("delete", "nobody"), 3, "nobody"),
        (("reset", "nobody", "--to", "earliest"), 3, "nobody"),
        (("reset", "nobody"), 2, "0 targets were given"),
        (("reset", "nobody", "--to", "latest", "--shift", "1"), 2, "2 targets were given"),
        (("reset", "nobody", "--to", "middle"), 2, "--to is 'middle'; allowed is earliest or latest"),
        (("reset", "nobody", "--to-time", "x"), 2, "--to-time is 'x'"),
        (("reset", "nobody", "--to-offset", "5", "--topic", "empty"), 2, "empty-0 has 0 to 0"),
        (("reset", "nobody", "--to", "latest", "--topic", "empty:7"), 2, "has partitions 0 to 0"),
        (("reset", "nobody", "--to", "latest", "--topic", "missing"), 3, "missing"),
    ],
)
def test_a_refusal_says_what_is_allowed(
    millpond: Command, arguments: tuple[str, ...], expected: int, said: str
) -> None:
    millpond("topics", "create", "empty", "--if-not-exists")
    code, out, err = millpond("groups", *arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("millpond: ")
    assert said in err
    assert err.count("\n") == 1
