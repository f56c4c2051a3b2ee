"""Cron expressions: five fields, minute hour day-of-month month day-of-week, in UTC.

A field is `*`, or numbers and ranges between commas, each with a step if need be: `*/15`, `8-18/2`, `mon-fri`, `1,15`.
Sunday is 0 or 7. Where both days are restricted a moment needs only one of them, as cron has always had it.
Invariant: a `Schedule` has a firing after every moment: an expression that never comes true is refused.
Pure. Used by delay_headers.py.
"""

import calendar
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from millpond.model.errors import InvalidRecord
from millpond.model.values import dataclass

EXPRESSION_CHARS_MAX: Final = 200
YEARS_MAX: Final = 8
"""Between two 29ths of February, over a turn of a century."""

_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_YEAR_LAST: Final = 9000


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: dict[str, int]


_FIELDS: Final = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both kinds of day are restricted, and one of them is enough."""

    @classmethod
    def parse(cls, expression: str) -> "Schedule":
        fields = expression.split()
        if len(expression) > EXPRESSION_CHARS_MAX or len(fields) != len(_FIELDS):
            raise InvalidRecord(
                f"{expression[:80]!r} is no cron expression; it has five fields: minute, hour, day of month, month, "
                "day of week"
            )
        minutes, hours, days, months, weekdays = (
            _numbers(text.lower(), field, expression) for text, field in zip(fields, _FIELDS, strict=True)
        )
        schedule = cls(
            minutes=tuple(sorted(minutes)),
            hours=tuple(sorted(hours)),
            days=frozenset(days),
            months=frozenset(months),
            weekdays=frozenset(each % 7 for each in weekdays),
            either_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
        )
        if schedule._next_day(datetime(2000, 3, 1, tzinfo=UTC)) is None:
            raise InvalidRecord(f"the cron expression {expression[:80]!r} never comes true; no month has such a day")
        return schedule

    def after(self, moment_ms: int) -> int:
        """The first firing that is later, in milliseconds."""
        at = datetime.fromtimestamp(moment_ms // 60_000 * 60, tz=UTC) + timedelta(minutes=1)
        if not self._is_day(at) or (at.hour, at.minute) > (self.hours[-1], self.minutes[-1]):
            at = at.replace(hour=0, minute=0) + timedelta(days=self._is_day(at))
        while True:
            day = self._next_day(at)
            assert day is not None, f"{self} never comes true after {at}"
            for hour in self.hours:
                for minute in self.minutes:
                    found = day.replace(hour=hour, minute=minute)
                    if found >= at:
                        return int(found.timestamp()) * 1000
            at = day + timedelta(days=1)

    def _next_day(self, at: datetime) -> datetime | None:
        """The first day of the schedule from that of `at` on, at midnight."""
        day = at.replace(hour=0, minute=0)
        last = day.replace(year=min(day.year + YEARS_MAX, _YEAR_LAST), day=1)
        while day <= last:
            if day.month not in self.months:
                year, month = divmod(day.year * 12 + day.month, 12)
                day = day.replace(year=year, month=month + 1, day=1)
            elif self._is_day(day):
                return day
            else:
                day += timedelta(days=1)
        return None

    def _is_day(self, at: datetime) -> bool:
        by_date, by_week = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return at.month in self.months and (by_date or by_week if self.either_day else by_date and by_week)


def _numbers(text: str, field: _Field, expression: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        spread, slash, step_text = part.partition("/")
        first_text, dash, last_text = spread.partition("-")
        step = first = last = -1
        try:
            step = _number(step_text, field) if slash else 1
            if spread == "*":
                first, last = field.least, field.most
            else:
                first = _number(first_text, field)
                last = _number(last_text, field) if dash else field.most if slash else first
        except ValueError:
            step = -1
        if step < 1 or not field.least <= first <= last <= field.most:
            raise InvalidRecord(
                f"{part[:40]!r} is no {field.name} in the cron expression {expression[:80]!r}; allowed are "
                f"{field.least} to {field.most}, ranges a-b, lists a,b, steps */n, and *"
            )
        found.update(range(first, last + 1, step))
    return found


def _number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names[text]
    if not text.isdecimal() or len(text) > 2:
        raise ValueError(text)
    return int(text)
