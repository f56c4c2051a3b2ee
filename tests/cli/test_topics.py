"""`millpond topics` against a real broker; table, JSON and YAML say the same."""

import pytest

from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, as_shown, read_table


def test_a_topic_is_made_looked_at_changed_and_deleted(millpond: Command) -> None:
    assert millpond.ok("topics", "create", "life", "-p", "2") == "topic life is made: 2 partitions\n"
    assert millpond.document("topics", "create", "life", "--if-not-exists") == {
        "name": "life",
        "created": False,
        "partitions": 2,
        "replicas": 1,
    }
    assert millpond.ok("topics", "alter", "life", "--set", "retention.ms=5000", "--set", "cleanup.policy=compact")
    assert millpond.document("topics", "describe", "life")["configs"] == {
        "retention.ms": "5000",
        "cleanup.policy": "compact",
    }
    assert millpond.ok("topics", "alter", "life", "--unset", "retention.ms") == "topic life is changed: retention.ms\n"
    assert millpond.document("topics", "describe", "life")["configs"] == {"cleanup.policy": "compact"}
    assert millpond.ok("topics", "add-partitions", "life", "--total", "4") == "topic life has 4 partitions now\n"
    assert len(millpond.document("topics", "describe", "life")["partitions"]) == 4
    assert millpond.ok("topics", "delete", "life") == "topic life is deleted\n"
    assert millpond.document("topics", "delete", "life", "--if-exists") == {"deleted": [], "missing": ["life"]}


def test_the_table_of_topics_says_what_the_documents_say(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("one")
    broker.create_topic("three", partitions=3)
    rows = [each for each in millpond.document("topics", "list")["topics"] if each["name"] in ("one", "three")]
    assert [(each["name"], each["partitions"], each["replicas"]) for each in rows] == [("one", 1, 1), ("three", 3, 1)]
    shown = [each for each in read_table(millpond.ok("topics", "list")) if each["name"] in ("one", "three")]
    assert shown == as_shown(rows, "name", "partitions", "replicas", "leaderless", "under_replicated")


def test_a_topic_shows_where_its_partitions_start_and_end(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("ends", partitions=2, configs={"retention.bytes": "1000000"})
    millpond.ok("produce", "ends", "--partition", "1", stdin=b"a\nb\nc\n")
    found = millpond.document("topics", "describe", "ends")
    assert [(each["start"], each["end"], each["messages"]) for each in found["partitions"]] == [(0, 0, 0), (0, 3, 3)]
    shown = read_table(millpond.ok("topics", "describe", "ends"))
    columns = ("partition", "leader", "replicas", "in_sync", "start", "end", "messages")
    assert shown[:2] == as_shown(found["partitions"], *columns)
    assert shown[2:] == [{"name": "retention.bytes", "value": "1000000"}]


def test_a_dry_run_makes_nothing_but_finds_what_is_wrong(millpond: Command) -> None:
    assert "can be made; nothing was changed" in millpond.ok("topics", "create", "trial", "--dry-run")
    assert millpond("topics", "describe", "trial")[0] == 3
    code, _, err = millpond("topics", "create", "trial", "--dry-run", "--set", "retention.ms=long")
    assert (code, "retention.ms" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        (("create", "taken"), 5, "taken"),
        (("create", "not/a/name"), 2, "not/a/name"),
        (("create", "many", "-r", "5"), 2, "5 replicas"),
        (("create", "zero", "-p", "0"), 2, "--partitions is '0'; allowed is a whole number from 1 on"),
        (("create", "odd", "--set", "retention.ms"), 2, "--set is 'retention.ms'; allowed is NAME=VALUE"),
        (("alter", "taken"), 2, "nothing to change was given"),
        (("alter", "taken", "--set", "a=b", "--unset", "a"), 2, "both set and unset"),
        (("alter", "taken", "--set", "no.such=1"), 2, "no.such"),
        (("add-partitions", "taken", "--total", "1"), 2, "taken"),
        (("describe", "missing"), 3, "missing"),
        (("delete", "missing"), 3, "missing"),
        (("list", "--output", "xml"), 2, "--output is 'xml'; allowed is table, json, yaml"),
    ],
)
def test_a_refusal_is_one_line_with_an_exit_code_of_its_own(
    millpond: Command, broker: InProcessBroker, arguments: tuple[str, ...], expected: int, said: str
) -> None:
    millpond("topics", "create", "taken", "--if-not-exists", "-p", "2")
    code, out, err = millpond("topics", *arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("millpond: ")
    assert said.lower() in err.lower()
    assert err.count("\n") == 1
