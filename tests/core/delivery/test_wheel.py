"""The timer wheel against a plain sorted list, and over ten years."""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.core.delivery.wheel import MOMENT_MAX, Due, TimerWheel

START = 1_767_225_600_000
YEAR_MS = 365 * 86_400_000
DELAYS = st.one_of(
    st.integers(0, 200), st.integers(0, 10_000_000), st.integers(0, 40 * YEAR_MS), st.sampled_from([0, 1, 63, 64, 65])
)


class WheelAgainstAList(RuleBasedStateMachine):
    """Also where the clock goes back, and where work is cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.wheel = TimerWheel(now=self.now)
        self.pending: set[Due] = set()
        self.keys = 0

    @rule(delay=DELAYS, how_many=st.integers(1, 5))
    def insert(self, delay: int, how_many: int) -> None:
        for _ in range(how_many):
            self.keys += 1
            self.pending.add(Due(self.now + delay, self.keys))
            self.wheel.insert(self.keys, self.now + delay)

    @rule(choice=st.integers(0, 1 << 30), comes_again=st.booleans())
    def cancel(self, choice: int, comes_again: bool) -> None:
        if self.pending:
            due = sorted(self.pending)[choice % len(self.pending)]
            self.wheel.cancel(due.key, due.at)
            if comes_again:
                self.wheel.insert(due.key, due.at)
            else:
                self.pending.remove(due)

    @rule(step=DELAYS)
    def advance(self, step: int) -> None:
        self.now += step
        expected = sorted(each for each in self.pending if each.at <= self.now)
        assert self.wheel.advance(self.now) == expected
        self.pending.difference_update(expected)

    @rule(step=DELAYS, work_max=st.integers(1, 4))
    def advance_a_little(self, step: int, work_max: int) -> None:
        self.now += step
        found = self.wheel.advance(self.now, work_max=work_max)
        assert len(found) <= work_max
        assert all(each in self.pending and each.at <= self.now for each in found)
        self.pending.difference_update(found)

    @rule(ahead=DELAYS, work_max=st.integers(1, 8))
    def prepare(self, ahead: int, work_max: int) -> None:
        self.wheel.prepare(self.now + ahead, work_max=work_max)

    @rule(ahead=DELAYS, span=DELAYS)
    def look_between(self, ahead: int, span: int) -> None:
        begin = max(self.wheel._now, self.now) + ahead + 1
        found = list(self.wheel.between(begin, begin + span))
        assert len(found) == len(set(found))
        if not self.wheel._falling.keys:  # what falls is on its way to where it is looked for
            assert {each.key for each in self.pending if begin <= each.at < begin + span} <= set(found)

    @rule(step=DELAYS)
    def turn_the_clock_back(self, step: int) -> None:
        self.now = max(0, self.now - step)
        found = self.wheel.advance(self.now)
        assert all(each in self.pending and each.at <= self.now for each in found)
        self.pending.difference_update(found)

    @rule()
    def sleep_until_the_next(self) -> None:
        """Whoever only ever looks when he is told to is never late, and never stands still."""
        at = self.wheel.next_at()
        assert (at is None) == (not self.pending and self.wheel.next_at() is None)
        if at is not None:
            assert at <= min((each.at for each in self.pending), default=at)
            self.now = max(self.now, at)
            self.advance(0)
            again = self.wheel.next_at()
            assert again is None or again > self.now

    @rule(count=st.integers(0, 5), choice=st.integers(0, 1 << 30))
    def list_some(self, count: int, choice: int) -> None:
        rest = sorted(self.pending)
        start = choice % (len(rest) + 1)
        after = rest[start - 1] if start else Due(-1, -1)
        assert self.wheel.first(count, after=after) == rest[start : start + count]

    @invariant()
    def holds_what_is_pending(self) -> None:
        assert len(self.wheel) == len(self.pending)
        assert set(self.wheel) == self.pending


TestWheelAgainstAList = WheelAgainstAList.TestCase


def test_ten_years_go_by_and_everything_is_due_at_its_moment() -> None:
    rng = random.Random(10)
    wheel, now, end = TimerWheel(now=START), START, START + 10 * YEAR_MS
    pending: dict[int, int] = {}
    keys = looks = 0
    while now < end:
        for _ in range(rng.randrange(0, 4)):
            keys += 1
            pending[keys] = now + rng.choice(
                (rng.randrange(100), rng.randrange(86_400_000), rng.randrange(3 * YEAR_MS))
            )
            wheel.insert(keys, pending[keys])
        if pending and rng.random() < 0.1:
            key = next(iter(pending))
            wheel.cancel(key, pending.pop(key))
        at = wheel.next_at()
        now = now + rng.randrange(86_400_000) if at is None or rng.random() < 0.5 else max(now, at)
        for due in wheel.advance(now):
            assert due.at <= now
            assert pending.pop(due.key) == due.at
        looks += 1
        if looks % 500 == 0:
            assert not pending or min(pending.values()) > now
    assert keys > 5_000
    assert {due.key: due.at for due in wheel} == pending


def test_what_is_due_first_of_very_many_comes_at_once_where_they_were_prepared() -> None:
    wheel = TimerWheel(now=START)
    begin = (START >> 24) + 1 << 24  # all digits but the highest begin anew
    dues = [Due(begin + number, number) for number in range(40_000)]
    for each in dues:
        wheel.insert(each.key, each.at)
    assert not wheel.prepare(START, work_max=10), "it is too early"
    turns = 0
    while wheel.prepare(begin, work_max=1_000):
        turns += 1
        assert turns < 1_000
    assert set(wheel) == set(dues)
    assert wheel.first(3) == dues[:3]
    assert wheel.advance(begin, work_max=10) == dues[:1]
    wheel.cancel(2, begin + 2)
    assert wheel.advance(begin + 3, work_max=10) == [dues[1], dues[3]]


def test_a_clock_that_went_back_makes_nothing_early() -> None:
    wheel = TimerWheel(now=START)
    assert wheel.advance(START + 3_600_000) == []
    now = START + 1_000
    wheel.insert(7, now + 500)
    assert wheel.next_at() == now + 500
    assert wheel.advance(now + 499) == []
    assert wheel.advance(now + 500) == [Due(now + 500, 7)]
    assert wheel.next_at() is None


def test_what_is_cancelled_is_swept_away_before_its_time() -> None:
    wheel = TimerWheel(now=START)
    for key in range(10_000):
        wheel.insert(key, START + YEAR_MS)
    for key in range(9_000):
        wheel.cancel(key, START + YEAR_MS)
    assert len(wheel) == 1_000
    assert wheel._count < 5_000
    assert [due.key for due in wheel.advance(START + YEAR_MS)] == list(range(9_000, 10_000))


@pytest.mark.parametrize("moment", [-1, MOMENT_MAX + 1])
def test_a_moment_that_is_none_is_refused(moment: int) -> None:
    with pytest.raises(ValueError, match="allowed is 0 to"):
        TimerWheel().insert(1, moment)
