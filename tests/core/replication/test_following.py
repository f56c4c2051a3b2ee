"""What a follower does with an answer, and where two logs part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.replication.following import (
    Append,
    AwaitMetadata,
    BackOff,
    DivergingEpoch,
    FetchAnswer,
    StartAnew,
    Step,
    Truncate,
    diverging,
    follow,
    high_watermark_of_follower,
    last_fetched_epoch,
)
from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset
from millpond.storage.epochs import LeaderEpochs


def history(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs])


def stepped(answer: FetchAnswer, *pairs: tuple[int, int], start: int = 0, end: int = 10) -> Step:
    return follow(answer, history=history(*pairs), log_start=Offset(start), log_end=Offset(end))


def parted(epoch: int, end: int, *, log_start: int = 0) -> FetchAnswer:
    return FetchAnswer(diverging=DivergingEpoch(LeaderEpoch(epoch), Offset(end)), log_start=Offset(log_start))


def test_what_follows_on_is_appended() -> None:
    answer = FetchAnswer(high_watermark=Offset(12), log_start=Offset(3), base_offset=Offset(10))
    assert stepped(answer, (1, 0)) == Append(Offset(12), Offset(3))
    nothing = FetchAnswer(high_watermark=Offset(12), log_start=Offset(3))
    assert stepped(nothing, (1, 0)) == Append(Offset(12), Offset(3))
    gap = FetchAnswer(high_watermark=Offset(12), log_start=Offset(3), base_offset=Offset(11))
    assert isinstance(stepped(gap, (1, 0)), BackOff)


@pytest.mark.parametrize("error", [3, 6, 74, 75, 100])
def test_where_they_do_not_agree_on_who_leads_it_waits_for_metadata(error: int) -> None:
    assert stepped(FetchAnswer(error=error), (1, 0)) == AwaitMetadata()


def test_any_other_error_is_a_pause() -> None:
    assert isinstance(stepped(FetchAnswer(error=56), (1, 0)), BackOff)


def test_it_cuts_to_the_smaller_of_both_ends_of_the_epoch() -> None:
    assert stepped(parted(1, 7), (1, 0), (2, 8)) == Truncate(Offset(7))
    assert stepped(parted(1, 9), (1, 0), (2, 8)) == Truncate(Offset(8)), "its own record of epoch 1 ends before"
    assert stepped(parted(2, 9), (1, 0), (3, 5)) == Truncate(Offset(5)), "it has nothing of epoch 2"
    assert stepped(parted(-1, 0), (1, 0)) == Truncate(Offset(0))


def test_where_nothing_is_common_it_starts_anew_where_the_leader_begins() -> None:
    assert stepped(parted(1, 3), (2, 5), start=5) == StartAnew(Offset(0))
    assert stepped(parted(1, 3, log_start=4), (1, 0), (2, 5)) == StartAnew(Offset(4))
    assert stepped(parted(1, 5), (2, 5), start=5) == Truncate(Offset(5)), "empty, and it goes on from there"


def test_an_answer_that_would_change_nothing_is_a_pause_and_not_a_loop() -> None:
    assert isinstance(stepped(parted(2, 12), (1, 0), (2, 8)), BackOff)


def test_below_the_leaders_first_offset_it_starts_anew_there() -> None:
    assert stepped(FetchAnswer(error=1, log_start=Offset(20)), (1, 0)) == StartAnew(Offset(20))
    assert isinstance(stepped(FetchAnswer(error=1), (1, 0)), BackOff)
    assert isinstance(stepped(FetchAnswer(error=1, log_start=Offset(2)), (1, 0)), BackOff), (
        "never cut by an offset alone"
    )
    assert stepped(FetchAnswer(error=1, log_start=Offset(2)), start=10) == StartAnew(Offset(2)), "an empty log may"


@pytest.mark.parametrize(
    ("last", "offset", "expected"),
    [
        (3, 20, None),
        (3, 25, (3, 20)),
        (1, 5, None),
        (1, 7, (1, 5)),
        (2, 7, (1, 5)),
        (4, 20, (3, 20)),
        (0, 0, None),
        (NO_EPOCH, 4, None),
    ],
)
def test_a_leader_finds_where_logs_part(last: int, offset: int, expected: tuple[int, int] | None) -> None:
    """Its log has epoch 1 from 0, epoch 3 from 5, and ends at 20."""
    found = diverging(
        history((1, 0), (3, 5)),
        log_end=Offset(20),
        last_fetched_epoch=LeaderEpoch(last),
        fetch_offset=Offset(offset),
    )
    assert (None if found is None else (found.epoch, found.end)) == expected


def test_an_empty_leader_has_nothing_in_common() -> None:
    found = diverging(history(), log_end=Offset(0), last_fetched_epoch=LeaderEpoch(2), fetch_offset=Offset(4))
    assert found == DivergingEpoch(NO_EPOCH, Offset(0))


def test_a_follower_asks_with_the_epoch_of_its_last_record() -> None:
    noted = history((1, 0), (5, 10))
    assert last_fetched_epoch(noted, log_start=Offset(0), log_end=Offset(10)) == 1, "nothing of epoch 5 was written"
    assert last_fetched_epoch(noted, log_start=Offset(0), log_end=Offset(11)) == 5
    assert last_fetched_epoch(noted, log_start=Offset(10), log_end=Offset(10)) == NO_EPOCH


def test_a_follower_believes_only_what_it_has() -> None:
    assert high_watermark_of_follower(Offset(3), told=Offset(9), log_end=Offset(7)) == 7
    assert high_watermark_of_follower(Offset(3), told=Offset(2), log_end=Offset(7)) == 3


LOGS = st.lists(st.integers(0, 5), max_size=12).map(sorted)
"""The epoch of each record. Two logs of one partition agree on who wrote what up to where they part."""


def epochs_of(log: list[int]) -> LeaderEpochs:
    return history(*((epoch, log.index(epoch)) for epoch in sorted(set(log))))


@given(LOGS, LOGS, LOGS)
def test_two_logs_come_to_their_common_beginning_and_never_below_it(
    shared: list[int], mine: list[int], theirs: list[int]
) -> None:
    """After `shared`, each was led by others: the leader in even epochs, the follower in odd ones."""
    leader = shared + [10 + 2 * epoch for epoch in theirs]
    follower = shared + [11 + 2 * epoch for epoch in mine]
    end = Offset(len(leader))
    for _ in range(20):
        last = LeaderEpoch(follower[-1]) if follower else NO_EPOCH
        found = diverging(epochs_of(leader), log_end=end, last_fetched_epoch=last, fetch_offset=Offset(len(follower)))
        if found is None:
            break
        step = follow(
            FetchAnswer(diverging=found, log_start=Offset(0)),
            history=epochs_of(follower),
            log_start=Offset(0),
            log_end=Offset(len(follower)),
        )
        assert isinstance(step, Truncate)
        assert step.to >= len(shared), "what is common is never cut"
        del follower[step.to :]
    assert follower == leader[: len(follower)]
