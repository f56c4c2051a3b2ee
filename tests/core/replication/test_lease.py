"""Leases on the broker's side and sessions on the controller's."""

from millpond.core.replication.lease import Heard, Lease, Sessions

SESSION_MS = 1_000


def sessions(live: dict[int, int], *, now: int = 0) -> Sessions:
    return Sessions(live, own=1, session_ms=SESSION_MS, now=now)


def test_a_lease_counts_from_when_the_heartbeat_was_sent_and_ends_before_the_session() -> None:
    lease = Lease(session_ms=SESSION_MS)
    assert not lease.is_valid(0)
    lease.renewed(sent_at=100)
    assert lease.is_valid(999)
    assert not lease.is_valid(1_000)
    lease.renewed(sent_at=50)
    assert lease.is_valid(999), "an answer that overtook another takes nothing back"
    lease.give_up()
    assert not lease.is_valid(100)


def test_who_is_silent_for_a_session_is_to_be_fenced_and_not_heard_any_more() -> None:
    watched = sessions({1: 0, 2: 5, 3: 6})
    assert watched.next_deadline() == 1_000
    assert watched.heard(2, epoch=5, now=400) is Heard.RENEWED
    assert watched.due(999) == []
    assert watched.due(1_000) == [(3, 6)]
    assert watched.heard(3, epoch=6, now=1_001) is Heard.FENCED
    assert watched.due(1_002) == [(3, 6)], "until it is done"
    watched.follow({1: 0, 2: 5}, own=1, now=1_003)
    assert watched.due(1_004) == []
    assert watched.next_deadline() == 1_400
    assert watched.heard(3, epoch=6, now=1_005) is Heard.FENCED


def test_who_registers_anew_has_a_new_session_and_its_old_life_none() -> None:
    watched = sessions({2: 5})
    watched.due(1_000)
    watched.follow({2: 8}, own=1, now=1_100)
    assert watched.heard(2, epoch=5, now=1_200) is Heard.STALE
    assert watched.heard(2, epoch=9, now=1_200) is Heard.UNKNOWN
    assert watched.heard(2, epoch=8, now=1_200) is Heard.RENEWED
    assert watched.due(2_199) == []
    assert watched.due(2_200) == [(2, 8)]


def test_the_controller_watches_everybody_but_itself() -> None:
    watched = sessions({1: 0})
    assert watched.next_deadline() is None
    assert watched.due(10**9) == []


def test_the_previous_controller_has_only_a_grace_unless_it_is_heard() -> None:
    watched = sessions({1: 0, 2: 5, 3: 6}, now=100)
    watched.expect_of_predecessor(2, term=7, last_term=7, now=100, grace_ms=50)
    assert watched.due(150) == [(2, 5)]
    heard = sessions({1: 0, 2: 5, 3: 6}, now=100)
    heard.expect_of_predecessor(2, term=7, last_term=7, now=100, grace_ms=50)
    assert heard.heard(2, epoch=5, now=120) is Heard.RENEWED
    assert heard.due(150) == []


def test_if_somebody_was_controller_in_between_the_one_before_has_a_full_session() -> None:
    watched = sessions({1: 0, 2: 5}, now=100)
    watched.expect_of_predecessor(2, term=6, last_term=7, now=100, grace_ms=50)
    watched.expect_of_predecessor(9, term=7, last_term=7, now=100, grace_ms=50)
    assert watched.due(1_099) == []
    assert watched.due(1_100) == [(2, 5)]


def test_a_process_that_has_ended_has_no_session_left() -> None:
    watched = sessions({1: 0, 2: 5, 3: 6}, now=0)
    watched.gone(2, epoch=5, now=100)
    assert watched.next_deadline() == 100
    assert watched.heard(2, epoch=5, now=101) is Heard.FENCED, "what it said before it ended comes late"
    watched.forgive(now=102)
    assert watched.due(103) == [(2, 5)]
    watched.follow({1: 0, 2: 9, 3: 6}, own=1, now=104)
    watched.gone(2, epoch=5, now=105)
    assert watched.heard(2, epoch=9, now=106) is Heard.RENEWED, "another process of that broker"
    assert watched.due(107) == []
    watched.gone(7, epoch=1, now=108)
    assert watched.due(109) == []
