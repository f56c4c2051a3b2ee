"""`millpond config` against a real broker."""

import pytest

from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, as_shown, read_table


def test_settings_of_a_topic_are_shown_changed_and_put_back(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    one = ("config", "describe", "--topic", "orders", "--name", "retention.ms")
    (before,) = millpond.document(*one)["settings"]
    assert before["default"] is True
    said = millpond.ok("config", "alter", "--topic", "orders", "--set", "retention.ms=5000")
    assert said == "topic orders: changed retention.ms\n"
    (after,) = millpond.document("config", "describe", "--topic", "orders", "--changed")["settings"]
    assert after == {"name": "retention.ms", "value": "5000", "default": False, "read_only": False}
    assert read_table(millpond.ok(*one)) == as_shown([after], "name", "value", "default", "read_only")
    changed = millpond.document("config", "alter", "--topic", "orders", "--unset", "retention.ms")
    assert changed == {"topic": "orders", "broker": None, "changed": {"retention.ms": None}}
    assert millpond.document(*one)["settings"] == [before]


def test_settings_of_brokers_are_shown_and_changed(millpond: Command) -> None:
    found = millpond.document("config", "describe", "--broker", "1")["settings"]
    shown = read_table(millpond.ok("config", "describe", "--broker", "1"))
    assert shown == as_shown(found, "name", "value", "default", "read_only")
    for which in ("1", "all"):
        millpond.ok("config", "alter", "--broker", which, "--set", "log.retention.ms=60000")
        (after,) = millpond.document("config", "describe", "--broker", "1", "--name", "log.retention.ms")["settings"]
        assert (after["value"], after["default"]) == ("60000", False)
        millpond.ok("config", "alter", "--broker", which, "--unset", "log.retention.ms")
        (after,) = millpond.document("config", "describe", "--broker", "1", "--name", "log.retention.ms")["settings"]
        assert after["value"] != "60000"


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        (("describe",), 2, "one of --topic and --broker is needed"),
        (("describe", "--topic", "a", "--broker", "1"), 2, "one of --topic and --broker is needed"),
        (("describe", "--topic", "missing"), 3, "missing"),
        (("describe", "--broker", "9"), 3, "there is no broker 9; there are 1"),
        (("alter", "--broker", "9", "--set", "log.retention.ms=60000"), 3, "there is no broker 9; there are 1"),
        (("describe", "--broker", "1", "--name", "no.such"), 2, "--name is 'no.such'"),
        (("alter", "--broker", "one", "--set", "a=b"), 2, "--broker is 'one'; allowed is a node id"),
        (("alter", "--broker", "1", "--set", "log.retention.ms=long"), 2, "log.retention.ms"),
        (("alter", "--broker", "all", "--set", "millpond.delay.max.ms=1"), 2, "all brokers: millpond.delay.max.ms is"),
        (("alter", "--broker", "1"), 2, "nothing to change was given"),
    ],
)
def test_a_refusal_says_what_is_allowed(
    millpond: Command, arguments: tuple[str, ...], expected: int, said: str
) -> None:
    code, out, err = millpond("config", *arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("millpond: ")
    assert said in err
    assert err.count("\n") == 1
