"""When those who are to share a sync have gathered."""

from millpond.storage.gathering import ENOUGH, TURNS_MAX, Gathering


def begun(*, were: int = 1) -> Gathering:
    """After one that so many shared."""
    gathering = Gathering()
    gathering.begin()
    gathering.hurry()
    assert gathering.is_over(were)
    gathering.begin()
    return gathering


def test_who_comes_alone_again_waits_for_nobody() -> None:
    assert begun(were=1).is_over(1)


def test_nobody_waits_where_there_is_nobody_to_let_go() -> None:
    assert begun(were=8).is_over(0)


def test_one_of_many_waits_until_a_turn_brings_nobody_more() -> None:
    gathering = begun(were=8)
    assert [gathering.is_over(count) for count in (1, 3, 3)] == [False, False, True]


def test_two_wait_for_more_although_the_last_one_was_alone() -> None:
    gathering = begun(were=1)
    assert [gathering.is_over(count) for count in (2, 2)] == [False, True]


def test_nobody_waits_for_ever_where_more_keep_coming() -> None:
    gathering = begun(were=8)
    counts = range(1, TURNS_MAX + 2)
    assert [gathering.is_over(count) for count in counts] == [*[False] * TURNS_MAX, True]


def test_enough_wait_for_no_more() -> None:
    assert begun(were=8).is_over(ENOUGH)


def test_a_hurry_ends_it() -> None:
    gathering = begun(were=8)
    assert not gathering.is_over(1)
    gathering.hurry()
    assert gathering.is_over(2)
