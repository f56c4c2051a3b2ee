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


def test_what_does_not_wait_is_told(millpond: Command, broker: InProcessBroker) -> None:
    park(broker, "gone")
    code, out, err = millpond("delay", "cancel", "gone/0/7")
    assert (code, out) == (3, "")
    assert "gone/0/7" in err
    code, _, err = millpond("delay", "cancel", "nonsense")
    assert code
    assert "topic/partition/offset" in err
