"""`millpond queue` against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.testing.broker import InProcessBroker
from tests.api.http.test_queues import configure_group
from tests.cli.calling import Command, as_shown, read_table


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}, http=True) as running:
        yield running


@pytest.fixture
def millpond(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broker: InProcessBroker) -> Command:
    monkeypatch.setenv("MILLPOND_DOOR", f"127.0.0.1:{broker.broker.http_port}")
    return Command(capsys, monkeypatch, broker.bootstrap)


def test_a_message_is_sent_received_and_acknowledged(millpond: Command) -> None:
    assert millpond.ok("queue", "send", "jobs", "--value", "one coffee", "--key", "table 4") == "jobs/0/0\n"
    found = json.loads(millpond.ok("queue", "receive", "jobs", "-g", "kitchen", "-o", "json"))
    (message,) = found["messages"]
    assert (message["value"], message["key"], message["attempt"]) == ("one coffee", "table 4", 1)
    stats = millpond.document("queue", "stats", "jobs", "-g", "kitchen")
    assert (stats["ready"], stats["in_flight"]) == (0, 1)
    columns = ("partition", "ready", "in_flight", "waiting", "dying", "start_offset", "end_offset")
    assert read_table(millpond.ok("queue", "stats", "jobs", "-g", "kitchen")) == as_shown(stats["partitions"], *columns)
    extended = millpond.ok("queue", "extend", "jobs", "-g", "kitchen", "--for", "10m", message["receipt"])
    assert extended == "1 message kept for 10m\n"
    assert millpond.ok("queue", "ack", "jobs", "-g", "kitchen", message["receipt"]) == "1 message acknowledged\n"
    code, out, err = millpond("queue", "ack", "jobs", "-g", "kitchen", message["receipt"])
    assert (code, out) == (5, "")
    assert "the receipt was refused: the lease is not, or no longer, held" in err
    assert millpond.ok("queue", "receive", "jobs", "-g", "kitchen") == "there are no messages now\n"


def test_lines_become_messages_and_a_table_shows_them(millpond: Command, tmp_path: Path) -> None:
    assert millpond.ok("queue", "send", "lines", stdin=b"a\nb\n") == "2 messages to lines\n"
    file = tmp_path / "more.txt"
    file.write_text("c\nd\n")
    assert millpond.ok("queue", "send", "lines", "--file", str(file), "--ttl", "1d", "--priority", "9") == (
        "2 messages to lines\n"
    )
    rows = read_table(millpond.ok("queue", "receive", "lines", "-g", "g", "--max", "10", "--ack"))
    assert [(row["message id"], row["value"]) for row in rows] == [
        (f"lines/0/{offset}", value) for offset, value in ((2, "c"), (3, "d"), (0, "a"), (1, "b"))
    ]
    assert millpond.document("queue", "stats", "lines", "-g", "g")["in_flight"] == 0


def test_bytes_that_are_no_text_pass_and_none_reach_the_terminal(millpond: Command, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\x00\n")
    millpond.ok("queue", "send", "bytes", "--file", str(file))
    millpond.ok("queue", "send", "bytes", stdin=b"caf\xe9\n\x1b[2Jgone\n")
    taken = millpond.ok("queue", "receive", "bytes", "-g", "g", "--max", "10", "-o", "json")
    found = [each.get("value_base64") or each["value"] for each in json.loads(taken)["messages"]]
    assert found == ["/wA=", "Y2Fm6Q==", "\x1b[2Jgone"]
    rows = read_table(millpond.ok("queue", "receive", "bytes", "-g", "other", "--max", "10", "--ack"))
    assert [row["value"] for row in rows] == ["/wA=", "Y2Fm6Q==", "\\x1b[2Jgone"]


def test_what_is_given_back_dies_in_the_end_and_is_redriven(millpond: Command, broker: InProcessBroker) -> None:
    configure_group(broker, "short", {"share.delivery.count.limit": "1"})
    millpond.ok("queue", "send", "bad", "--value", "x", "--value", "y")
    found = json.loads(millpond.ok("queue", "receive", "bad", "-g", "short", "--max", "5", "-o", "json"))
    receipts = "\n".join(each["receipt"] for each in found["messages"]).encode()
    nacked = millpond.ok("queue", "nack", "bad", "-g", "short", "--error", "no milk", "-", stdin=receipts)
    assert nacked == "2 messages given back\n"
    while len(json.loads(millpond.ok("queue", "dlq", "bad", "-o", "json"))["messages"]) < 2:
        pass
    letters = millpond.document("queue", "dlq", "bad")["messages"]
    assert {(each["value"], each["error"], each["attempts"]) for each in letters} == {
        ("x", "no milk", 1),
        ("y", "no milk", 1),
    }
    assert len(read_table(millpond.ok("queue", "dlq", "bad", "-g", "short"))) == 2
    assert millpond.ok("queue", "redrive", "bad", "-g", "short", "--max", "1") == "1 message sent back to bad\n"
    assert millpond.ok("queue", "redrive", "bad", "-g", "short") == "1 message sent back to bad\n"
    again = json.loads(millpond.ok("queue", "receive", "bad", "-g", "short", "--max", "5", "-o", "json"))
    assert {each["value"] for each in again["messages"]} == {"x", "y"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("receive", "nowhere", "-g", "g"), 3, "there is no topic 'nowhere'"),
        (("receive", "bounds", "-g", "g", "--max", "5000"), 2, "max is 5000; allowed are 1 to 1000"),
        (("receive", "bounds", "-g", "g", "--wait", "soon"), 2, "--wait is 'soon'"),
        (("send", "bounds", "--value", "a", "--delay", "9"), 2, "--delay is '9'"),
        (("send", "bounds", "--value", "a", "--file", "b"), 2, "leave one of them out"),
        (("send", "bounds", "--file", "not-there.txt"), 2, "name a file that is there"),
        (("ack", "bounds", "-g", "g", "nonsense"), 5, "the receipt was refused: it is 'nonsense'"),
        (
            ("send", "bounds", "x", "--priority", "urgent"),
            2,
            "--priority is 'urgent'; allowed is high, normal or low, or",
        ),
        (("send", "bounds", "x", "--priority", "12"), 2, "--priority is '12'; allowed is high, normal or low, or"),
        (("send", "bounds", "x", "--priority", "²"), 2, "write for instance --priority high"),
        (("stats", "bounds", "-g", "g", "--http", "127.0.0.1:1"), 4, "no HTTP door answers"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    millpond: Command, broker: InProcessBroker, arguments: tuple[str, ...], code: int, said: str
) -> None:
    millpond.ok("queue", "send", "bounds", "--value", "makes it")
    ended, out, err = millpond("queue", *arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert said in err


def test_a_group_that_only_ever_came_by_http_is_a_group_like_others(millpond: Command) -> None:
    millpond.ok("queue", "send", "orders", "a", "b")
    assert "orders/0/0" in millpond.ok("queue", "receive", "orders", "-g", "waiters", "--ack")
    listed = {"group": "waiters", "state": "Empty", "protocol": "share"}
    assert listed in millpond.document("groups", "list")["groups"]
    found = millpond.document("groups", "describe", "waiters")
    assert (found["state"], found["protocol"], found["members"]) == ("Empty", "share", [])
    assert [(each["topic"], each["committed"], each["lag"]) for each in found["partitions"]] == [("orders", 1, 1)]
    millpond.ok("groups", "reset", "waiters", "--to", "earliest")
    assert millpond.document("queue", "stats", "orders", "-g", "waiters")["ready"] == 2
    assert millpond.ok("groups", "delete", "waiters") == "group waiters is deleted\n"
    assert "waiters" not in [each["group"] for each in millpond.document("groups", "list")["groups"]]
    assert millpond("groups", "describe", "waiters")[0] == millpond("groups", "delete", "waiters")[0] == 3
    assert "orders/0/0" in millpond.ok("queue", "receive", "orders", "-g", "waiters"), "a deleted group begins anew"


def test_what_millpond_redrives_with_is_nobodys_group(millpond: Command, broker: InProcessBroker) -> None:
    millpond.ok("queue", "send", "doomed", "x")
    configure_group(broker, "clumsy", {"share.delivery.count.limit": "2"})
    for _ in range(2):
        found = json.loads(millpond.ok("queue", "receive", "doomed", "-g", "clumsy", "-o", "json"))["messages"]
        millpond.ok("queue", "nack", "doomed", "-g", "clumsy", *(each["receipt"] for each in found))
    while not json.loads(millpond.ok("queue", "dlq", "doomed", "-o", "json"))["messages"]:
        pass
    assert millpond.ok("queue", "redrive", "doomed", "-g", "clumsy") == "1 message sent back to doomed\n"
    names = [each["group"] for each in millpond.document("groups", "list")["groups"]]
    assert "clumsy" in names
    assert not [each for each in names if each.startswith("millpond.")]
