"""Lives of leases, held to their transcripts."""

from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import Lane, Outcome
from tests.core.delivery.conversation import LOCK_MS, Conversation, golden

ACCEPT, RELEASE, REJECT, RENEW = Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.RENEW


def test_a_message_is_received_and_accepted() -> None:
    talk = Conversation(DeliverySettings())
    talk.come(5)
    talk.ask("ana", 2)
    talk.ask("ben", 10)
    talk.tell("ben", ACCEPT, 2, 4)
    talk.tell("ben", ACCEPT, 0)
    talk.tell("ana", ACCEPT, 0, 1)
    talk.tell("ana", ACCEPT, 0)
    talk.ask("ana", 1)
    golden(talk, "accepted")


def test_a_lease_is_extended_runs_out_and_goes_to_another() -> None:
    talk = Conversation(DeliverySettings())
    talk.come(2)
    talk.ask("ana", 2)
    talk.wait(900)
    talk.tell("ana", RENEW, 0)
    talk.wait(100)
    talk.ask("ben", 5)
    talk.tell("ana", ACCEPT, 1)
    talk.wait(799)
    talk.ask("cid", 5)
    talk.wait(1)
    talk.wait(100)
    talk.tell("ana", ACCEPT, 0)
    talk.ask("cid", 5)
    golden(talk, "extended_and_expired")


def test_a_message_is_given_back_waits_longer_each_time_and_is_given_up() -> None:
    talk = Conversation(DeliverySettings(attempts_max=3, backoff_ms=500, jitter=0.0))
    talk.come(1)
    talk.ask("ana", 1)
    talk.tell("ana", RELEASE, 0, reason="no stock")
    talk.wait(499)
    talk.ask("ana", 1)
    talk.wait(1)
    talk.ask("ana", 1)
    talk.wait(LOCK_MS)
    talk.wait(1000)
    talk.ask("ben", 1)
    talk.tell("ben", RELEASE, 0, reason="no stock")
    talk.ask("ana", 1)
    talk.bury()
    talk.ask("ana", 1)
    golden(talk, "given_up")


def test_rejected_messages_are_buried_in_the_order_of_their_rejection() -> None:
    talk = Conversation(DeliverySettings())
    talk.come(4)
    talk.ask("ana", 4)
    talk.tell("ana", REJECT, 2, 3, reason="broken")
    talk.tell("ana", REJECT, 0)
    talk.restart()
    talk.bury()
    talk.tell("ana", ACCEPT, 1)
    golden(talk, "rejected")


def test_another_leader_finds_leases_backoffs_and_the_doomed_and_forgets_nothing_that_is_done() -> None:
    talk = Conversation(DeliverySettings(attempts_max=2, backoff_ms=2000, jitter=0.0))
    talk.come(6)
    talk.ask("ana", 5)
    talk.tell("ana", ACCEPT, 0)
    talk.tell("ana", RELEASE, 1)
    talk.tell("ana", REJECT, 2, reason="broken")
    talk.wait(600)
    talk.restart()
    talk.ask("ben", 10)
    talk.wait(999)
    talk.tell("ana", ACCEPT, 3)
    talk.wait(1)
    talk.wait(400)
    talk.ask("ben", 10)
    talk.bury()
    golden(talk, "restart")


def test_a_consumer_hangs_up_and_the_log_loses_its_oldest() -> None:
    talk = Conversation(DeliverySettings(attempts_max=2, backoff_ms=500, jitter=0.0))
    talk.come(6)
    talk.ask("ana", 3)
    talk.ask("ben", 2)
    talk.leave("ana")
    talk.ask("cid", 2)
    talk.leave("cid")
    talk.trim(4)
    talk.tell("ben", ACCEPT, 3)
    talk.tell("ben", ACCEPT, 4)
    talk.bury()
    talk.ask("cid", 9)
    golden(talk, "hung_up_and_trimmed")


def test_keys_and_priorities_are_kept_through_a_restart() -> None:
    talk = Conversation(DeliverySettings(is_ordered_by_key=True, priority=Priority.STRICT))
    talk.come(2, key=b"x", lane=Lane.LOW)
    talk.come(1, key=b"y")
    talk.come(1, key=b"x", lane=Lane.HIGH)
    talk.come(1, lane=Lane.HIGH)
    talk.ask("ana", 2)
    talk.restart()
    talk.ask("ben", 9)
    talk.tell("ben", ACCEPT, 0)
    talk.ask("ben", 9)
    talk.wait(LOCK_MS)
    talk.ask("cid", 9)
    talk.tell("cid", ACCEPT, 1)
    talk.ask("cid", 9)
    golden(talk, "keys_and_priorities")
