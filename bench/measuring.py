"""A measurement, its target, and how a figure of ours is set beside a raw one.

Both sides run in turns, each as often as the other, and the median of the ratios of neighbours counts: whatever slows
the machine for a while slows both. Pure, apart from reading the clock.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from millpond.model.limits import GIB, KIB, MIB

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    name: str
    repetitions: int
    append_bytes: int
    appends_max: int
    synced_bytes: int
    synced_appends_max: int
    read_bytes: int
    log_bytes: int
    lookups: int
    record_batches: int


FULL = Scale(
    name="full",
    repetitions=9,
    append_bytes=128 * MIB,
    appends_max=60_000,
    synced_bytes=64 * MIB,
    synced_appends_max=4_096,
    read_bytes=96 * MIB,
    log_bytes=GIB,
    lookups=20_000,
    record_batches=200,
)
QUICK = Scale(
    name="quick",
    repetitions=1,
    append_bytes=8 * MIB,
    appends_max=2_000,
    synced_bytes=4 * MIB,
    synced_appends_max=64,
    read_bytes=4 * MIB,
    log_bytes=8 * MIB,
    lookups=200,
    record_batches=5,
)

SIZES = {"1 MB": MIB, "16 KB": 16 * KIB, "200 B": 200}
"""Of a whole batch, header included."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should reach: a ratio to raw, or a value in the row's own unit."""

    quantity: str
    least: float | None = None
    most: float | None = None

    def is_met(self, row: "Row") -> bool:
        value = row.ratio if self.quantity == "ratio" else row.value
        assert value is not None, row
        return self.is_reached_by(value)

    def is_reached_by(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    section: str
    name: str
    value: float
    unit: str
    raw: float | None = None
    """The same quantity, by plain system calls."""
    ratio: float | None = None
    """How much of the raw speed is left; more is better, whatever the unit."""
    compared_with: str = ""
    target: Target | None = None

    def document(self) -> dict[str, Any]:
        met = None if self.target is None else self.target.is_met(self)
        return {**asdict(self), "met": met}


@dataclass(frozen=True, slots=True)
class Measurement(Generic[R]):
    """A few rows that are measured together."""

    title: str
    run: Callable[[], list[R]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Median seconds of both sides, and the median of raw / ours."""

    ours_s: float
    raw_s: float
    ratio: float


def in_turns(repetitions: int, ours: Callable[[], float], raw: Callable[[], float]) -> Pair:
    """Runs both sides in turns; each returns its seconds. Ours goes first, so that raw can do as often what we did."""
    seconds = [(ours(), raw()) for _ in range(repetitions)]
    return Pair(
        statistics.median(each[0] for each in seconds),
        statistics.median(each[1] for each in seconds),
        statistics.median(each[1] / each[0] for each in seconds),
    )


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def cpu_seconds_of(work: Callable[[], object]) -> float:
    """For work that never waits: what it takes of one core, whoever else wants it."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def percentile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))]


def chunks(total: int, parts: int) -> Iterator[int]:
    """`total` in `parts` numbers that differ by one at most."""
    for part in range(parts):
        yield (part + 1) * total // parts - part * total // parts
