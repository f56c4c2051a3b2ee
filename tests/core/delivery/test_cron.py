"""Cron expressions, against a walk minute by minute."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.core.delivery.cron import Schedule
from millpond.model.errors import InvalidRecord


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expression", "after", "fires"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("* * * * *", "2026-01-01T00:00:59.999", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:15:00", "2026-01-01T00:30:00"),
        ("0 9 * * mon-fri", "2026-01-02T09:00:00", "2026-01-05T09:00:00"),
        ("30 8,18 * * *", "2026-01-01T08:30:00", "2026-01-01T18:30:00"),
        ("0 0 1 1 *", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 31 * *", "2026-01-31T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 13 * fri", "2026-02-01T00:00:00", "2026-02-06T00:00:00"),
        ("0 12 * * 7", "2026-01-01T00:00:00", "2026-01-04T12:00:00"),
        ("5-10/5 0 * DEC *", "2026-12-31T00:10:00", "2027-12-01T00:05:00"),
        ("59 23 31 12 *", "2026-12-31T23:58:00", "2026-12-31T23:59:00"),
    ],
)
def test_it_fires_when_it_should(expression: str, after: str, fires: str) -> None:
    assert Schedule.parse(expression).after(ms(after)) == ms(fires)


@given(
    minute=st.sampled_from(["*", "0", "*/7", "3,59", "10-20/5"]),
    hour=st.sampled_from(["*", "0", "23", "*/5"]),
    day=st.sampled_from(["*", "1", "31", "*/10"]),
    weekday=st.sampled_from(["*", "0", "1-5", "6"]),
    after=st.integers(ms("2026-01-01"), ms("2026-03-05")),
)
@example(minute="0", hour="0", day="*", weekday="*", after=ms("2026-01-31T23:59:59"))
def test_it_fires_as_a_walk_minute_by_minute_would(minute: str, hour: str, day: str, weekday: str, after: int) -> None:
    schedule = Schedule.parse(f"{minute} {hour} {day} * {weekday}")
    at = schedule.after(after)
    assert at > after
    assert at % 60_000 == 0
    walked = after // 60_000 * 60_000 + 60_000
    while not is_firing(schedule, walked):
        walked += 60_000
    assert at == walked


def is_firing(schedule: Schedule, at_ms: int) -> bool:
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return at.minute in schedule.minutes and at.hour in schedule.hours and schedule._is_day(at)


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("*/0 * * * *", "5-1 * * * *", "a * * * *", "1,,2 * * * *", "-1 * * * *", "0 0 31 2 *", "*/+5 * * * *"),
        *("* * * * *" + " " * 300, "² * * * *"),
    ],
)
def test_what_is_none_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRecord, match="cron expression"):
        Schedule.parse(expression)
