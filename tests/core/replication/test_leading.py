"""What a leader knows: how far consumers may read, who is in sync, and whether that is enough."""

from dataclasses import replace

from millpond.core.replication.leading import COMING_IN_MS_MAX, IsrChange, IsrOutcome, Kept, Leading
from millpond.core.replication.members import Members
from millpond.model.ids import LeaderEpoch, Offset

LAG_MS = 10_000


def members(*isr: int, replicas: tuple[int, ...] = (1, 2, 3), epoch: int = 0, insync_min: int = 1) -> Members:
    epochs = {each: each * 10 for each in replicas}
    return Members(replicas=replicas, isr=isr, partition_epoch=epoch, insync_min=insync_min, epochs=epochs)


def leader(given: Members, *, end: int = 0, high_watermark: int = 0) -> Leading:
    return Leading(
        broker=1,
        leader_epoch=LeaderEpoch(4),
        epoch_start=Offset(end),
        synced_end=Offset(end),
        high_watermark=Offset(high_watermark),
        members=given,
        lag_ms_max=LAG_MS,
        now=0,
    )


def fetch(leading: Leading, replica: int, offset: int, *, end: int, now: int = 1, life: int | None = None) -> bool:
    return leading.fetched(
        replica,
        broker_epoch=replica * 10 if life is None else life,
        offset=Offset(offset),
        leader_end=Offset(end),
        now=now,
    )


def test_alone_what_is_synced_can_be_read() -> None:
    leading = leader(members(1, replicas=(1,)), end=5)
    assert leading.high_watermark == 5
    assert leading.own_synced(Offset(9))
    assert leading.high_watermark == 9
    assert not leading.own_synced(Offset(9))
    assert leading.is_kept(Offset(9)) is Kept.YES


def test_the_high_watermark_is_what_all_in_sync_have_synced() -> None:
    leading = leader(members(1, 2, 3))
    leading.own_synced(Offset(10))
    assert not fetch(leading, 2, 10, end=10)
    assert leading.high_watermark == 0, "the third has not been heard of"
    assert fetch(leading, 3, 4, end=10)
    assert leading.high_watermark == 4
    assert not fetch(leading, 3, 2, end=10, now=2)
    assert leading.high_watermark == 4, "it never moves back"
    fetch(leading, 3, 12, end=12, now=3)
    assert leading.high_watermark == 10, "the leader itself has not synced more"


def test_it_stands_still_while_too_few_are_in_sync() -> None:
    leading = leader(members(1, 2, replicas=(1, 2), insync_min=2))
    leading.own_synced(Offset(10))
    fetch(leading, 2, 6, end=10)
    assert leading.is_enough
    assert leading.is_kept(Offset(10)) is Kept.NOT_YET
    leading.image_changed(members(1, replicas=(1, 2), epoch=1, insync_min=2), now=2)
    assert leading.high_watermark == 6
    assert not leading.is_enough
    assert leading.is_kept(Offset(6)) is Kept.YES, "it was kept while there were enough"
    assert leading.is_kept(Offset(10)) is Kept.NOT_ENOUGH


def test_a_follower_that_has_not_caught_up_for_long_is_to_leave() -> None:
    leading = leader(members(1, 2, 3))
    leading.own_synced(Offset(10))
    fetch(leading, 2, 10, end=10, now=1_000)
    fetch(leading, 3, 5, end=10, now=1_000)
    leading.own_synced(Offset(20))
    assert leading.ask_isr(LAG_MS) is None, "each has its time from the beginning of the epoch"
    change = leading.ask_isr(LAG_MS + 1)
    assert change == IsrChange(0, ((1, 10), (2, 20)))
    assert leading.ask_isr(LAG_MS + 1) is None, "one change at a time"
    fetch(leading, 2, 20, end=20, now=LAG_MS + 2)
    assert leading.high_watermark == 5, "it counts until it is decided"
    leading.isr_answered(change, IsrOutcome.DONE)
    assert leading.high_watermark == 5, "and until the image shows it"
    assert leading.image_changed(members(1, 2, epoch=1), now=LAG_MS + 3)
    assert leading.high_watermark == 20


def test_one_that_reaches_what_was_the_end_at_its_last_fetch_is_caught_up_as_of_then() -> None:
    leading = leader(members(1, 2, replicas=(1, 2)))
    for step in range(1, 100):
        leading.own_synced(Offset(10 * step))
        fetch(leading, 2, 10 * (step - 1), end=10 * step, now=1_000 * step)
    assert leading.isr_wanted(100_000) == {1, 2}, "always one fetch behind a busy leader, and in sync"
    assert leading.isr_wanted(98_000 + LAG_MS + 1) == {1}


def test_one_at_the_end_of_a_quiet_log_stays_however_long_it_is_silent() -> None:
    leading = leader(members(1, 2, replicas=(1, 2)))
    leading.own_synced(Offset(10))
    fetch(leading, 2, 10, end=10)
    assert leading.isr_wanted(10**9) == {1, 2}


def test_a_replica_comes_in_at_the_high_watermark_and_at_the_start_of_the_epoch() -> None:
    leading = leader(members(1, 3), end=8, high_watermark=3)
    fetch(leading, 3, 5, end=8)
    assert leading.high_watermark == 5
    fetch(leading, 2, 4, end=8, now=2)
    assert leading.isr_wanted(2) == {1, 3}
    fetch(leading, 2, 6, end=8, now=3)
    assert leading.isr_wanted(3) == {1, 3}, "above the high watermark, and not all of the epochs before"
    fetch(leading, 2, 8, end=8, now=4)
    assert leading.ask_isr(4) == IsrChange(0, ((1, 10), (2, 20), (3, 30)))


def test_one_that_has_fallen_silent_does_not_come_in() -> None:
    leading = leader(members(1, replicas=(1, 2)), end=8, high_watermark=8)
    fetch(leading, 2, 8, end=8, now=1)
    assert leading.isr_wanted(1 + COMING_IN_MS_MAX) == {1, 2}
    assert leading.isr_wanted(2 + COMING_IN_MS_MAX) == {1}


def test_one_that_came_in_has_its_time_from_then() -> None:
    leading = leader(members(1, 3), end=8, high_watermark=5)
    leading.own_synced(Offset(20))
    fetch(leading, 2, 8, end=20, now=50_000)
    leading.image_changed(members(1, 2, 3, epoch=1), now=50_001)
    assert 2 in leading.isr_wanted(50_001 + LAG_MS)
    assert 2 not in leading.isr_wanted(50_002 + LAG_MS)


def test_who_is_asked_for_counts_before_it_is_decided() -> None:
    leading = leader(members(1, replicas=(1, 2)), end=8, high_watermark=8)
    fetch(leading, 2, 8, end=8)
    change = leading.ask_isr(1)
    assert change is not None
    leading.own_synced(Offset(12))
    leading.tick(10 * LAG_MS)
    assert leading.high_watermark == 8
    assert leading.isr_answered(change, IsrOutcome.REFUSED)
    assert leading.high_watermark == 12


def test_an_answer_that_was_lost_counts_until_the_image_proves_otherwise() -> None:
    leading = leader(members(1, replicas=(1, 2)), end=8, high_watermark=8)
    fetch(leading, 2, 8, end=8)
    change = leading.ask_isr(1)
    assert change is not None
    leading.isr_answered(change, IsrOutcome.UNKNOWN)
    leading.own_synced(Offset(12))
    leading.tick(10 * LAG_MS)
    assert leading.high_watermark == 8
    again = leading.ask_isr(10 * LAG_MS)
    assert again == IsrChange(0, ((1, 10),)), (
        "what it has already, so that the earlier question can no longer be granted"
    )
    leading.image_changed(members(1, replicas=(1, 2), epoch=1), now=10 * LAG_MS)
    assert leading.high_watermark == 12
    assert not leading.isr_answered(change, IsrOutcome.DONE), "the image has been faster"


def test_only_in_the_life_it_spoke_in_does_a_replica_come_in() -> None:
    leading = leader(members(1), end=8)
    fetch(leading, 2, 8, end=8, life=19)
    assert leading.isr_wanted(1) == {1}, "a word from an earlier life"
    fetch(leading, 2, 8, end=8, life=21)
    assert leading.isr_wanted(1) == {1}, "a life that the image does not know yet"
    fetch(leading, 2, 8, end=8, life=20)
    assert leading.isr_wanted(1) == {1}, "older than one already heard of"
    known = members(1, epoch=1)
    leading.image_changed(replace(known, epochs={**known.epochs, 2: 21}), now=2)
    assert leading.isr_wanted(2) == {1, 2}
    leading.image_changed(replace(known, epochs={1: 10}), now=3)
    assert leading.isr_wanted(3) == {1}, "down, or about to go"


def test_the_high_watermark_waits_a_moment_for_one_that_is_about_to_come_in() -> None:
    leading = leader(members(1, replicas=(1, 2)), end=10)
    fetch(leading, 2, 9, end=10, now=1)
    leading.own_synced(Offset(12))
    assert leading.high_watermark == 12, "it has not been caught up yet"
    fetch(leading, 2, 10, end=13, now=2)
    leading.own_synced(Offset(15))
    assert leading.high_watermark == 12, "it has what was there when it last asked: its next fetch may bring it in"
    assert leading.tick(2 + COMING_IN_MS_MAX + 1), "but not if it asks no more"
    assert leading.high_watermark == 15


def test_a_new_leader_does_not_tell_an_end_below_what_an_earlier_one_told() -> None:
    leading = leader(members(1, 2, replicas=(1, 2)), end=8, high_watermark=3)
    assert not leading.is_caught_up_with_the_past
    fetch(leading, 2, 8, end=8)
    assert leading.is_caught_up_with_the_past


def test_a_log_that_was_cut_by_an_unclean_election_has_no_high_watermark_above_its_end() -> None:
    assert leader(members(1, 2), end=8, high_watermark=12).high_watermark == 8


def test_replicas_come_and_go_with_the_image_and_strangers_are_not_heard() -> None:
    leading = leader(members(1, replicas=(1,)), end=8)
    assert not fetch(leading, 2, 8, end=8)
    leading.image_changed(members(1, replicas=(1, 2), epoch=1), now=1)
    fetch(leading, 2, 8, end=8, now=2)
    assert leading.isr_wanted(2) == {1, 2}
    leading.image_changed(members(1, replicas=(1,), epoch=2), now=3)
    assert leading.isr_wanted(3) == {1}
    assert leading.own_synced(Offset(9))
