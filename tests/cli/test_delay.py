"""`millpond delay` against a real broker."""

from millpond.testing.broker import InProcessBroker
from tests.api.http.test_delays import HOUR_MS, park
from tests.cli.calling import Command, read_table


def test_what_waits_is_listed_put_off_and_cancelled(millpond: Command, broker: InProcessBroker) -> None:
    first, second = park(broker, "later", HOUR_MS, 2 * HOUR_MS)
    found = millpond.document("delay", "list", "later")
    assert [each["message_id"] for each in found["messages"]] == [first, second]
    assert (found["pending"], found["next"]) == (2, None)
    assert [each["message id"] for each in read_table(millpond.ok("delay", "list", "later"))] == [first, second]
    page = millpond.document("delay", "list", "later", "--limit", "1")
    rest = millpond.document("delay", "list", "later", "--after", page["next"])
    assert [each["message_id"] for each in rest["messages"]] == [second]
    millpond.ok("delay", "reschedule", first, "--at", "2026-12-01T00:00:00Z")
    assert millpond.document("delay", "list", "later")["pending"] == 2
    assert millpond.ok("delay", "cancel", second) == f"{second} will not be delivered\n"
    assert [each["message_id"] for each in millpond.document("delay", "list", "later")["messages"]] == [first]


def test_without_a_topic_all_that_waits_is_listed(millpond: Command, broker: InProcessBroker) -> None:
    (later,) = park(broker, "one-of-all", 6 * HOUR_MS)
    (sooner,) = park(broker, "other-of-all", 5 * HOUR_MS)
    broker.create_topic("delays-nothing")
    found = millpond.document("delay", "list")
    ids = [each["message_id"] for each in found["messages"]]
    assert [each for each in ids if each in {later, sooner}] == [sooner, later]
    assert (found["topic"], found["pending"], found["next"]) == (None, len(ids), None)
    first = millpond.document("delay", "list", "--limit", "1")
    assert ([each["message_id"] for each in first["messages"]], first["pending"]) == (ids[:1], len(ids))
    for option in ("--partition=0", "--after=1.0.0"):
        code, _, err = millpond("delay", "list", option)
        assert (code, "say which topic's" in err) == (2, True), err


def test_what_does_not_wait_is_told(millpond: Command, broker: InProcessBroker) -> None:
    park(broker, "gone")
    code, out, err = millpond("delay", "cancel", "gone/0/7")
    assert (code, out) == (3, "")
    assert "gone/0/7" in err
    code, _, err = millpond("delay", "cancel", "nonsense")
    assert code
    assert "topic/partition/offset" in err
