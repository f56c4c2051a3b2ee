"""Deadlines against the plainest way to keep them."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.core.groups.deadlines import Deadlines

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 20))))


@given(changes=CHANGES, now=st.integers(0, 20))
def test_what_is_due_comes_in_order_and_the_rest_stays(changes: list[tuple[str, int | None]], now: int) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for key, at_ms in changes:
        if at_ms is None:
            deadlines.clear(key)
            model.pop(key, None)
        else:
            deadlines.set(key, at_ms)
            model[key] = at_ms
        assert deadlines.next() == min(model.values(), default=None)
        assert (key in deadlines) == (key in model)
    due: list[str] = []
    while (key_due := deadlines.take_due(now)) is not None:
        due.append(key_due)
    assert [model[key] for key in due] == sorted(at_ms for at_ms in model.values() if at_ms <= now)
    assert deadlines.next() == min((at_ms for at_ms in model.values() if at_ms > now), default=None)


def test_a_deadline_that_moves_later_all_the_time_takes_no_room() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at_ms in range(10_000):
        deadlines.set("member", at_ms)
    assert deadlines.next() == 9_999
    assert len(deadlines._heap) == 1
