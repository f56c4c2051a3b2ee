"""`millpond cluster` in the test's own process: its three outputs agree, and its refusals have codes of their own."""

from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, as_shown, read_table


def test_a_status_says_the_same_in_every_way(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=3)
    found = millpond.document("cluster", "status")
    text = millpond.ok("cluster", "status")
    (member, node) = read_table(text)
    assert member["role"] == "leader"
    assert [node] == as_shown(found["brokers"], "node_id", "address", "rack", "state", "leads")
    assert (node["leads"], found["partitions"]) == ("3", 3)
    assert "3 partitions; every one has a leader" in text


def test_only_voters_are_demoted(millpond: Command) -> None:
    code, out, err = millpond("cluster", "demote", "7")
    assert (code, out) == (1, "")
    assert err == "millpond: broker 7: broker 7 does not vote; voters are [1] (VOTER_NOT_FOUND)\n"
