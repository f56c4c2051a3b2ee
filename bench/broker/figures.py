"""What is measured of a broker, and how it stands to its peers. Pure.

A ratio says how many times better Millpond is than the peer in that row, whatever the unit: 2 is twice the messages, or
half the time. Each peer is compared with Millpond in both durabilities; like stands beside like where both sync, or
neither does, before they answer. All systems take their turns in each round, and the median of the rounds' ratios
counts: whatever slows the machine for a while slows all. The CPU of a request is told twice, the median of the rounds
and the least of them: what shares the machine's cores and caches can only add to it, so that the least says best what
the server itself takes.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from bench.measuring import Target

MILLPOND = "Millpond"
_BUSY_CORES = 0.9
"""Of one core: a loop that uses more has no time left."""
_LEAST = 1e-3


class Durability(Enum):
    SYNCED = "yes"
    """On disk before the answer: a power cut loses nothing that was acknowledged."""
    NOT_SYNCED = "no"
    """In the operating system's memory at the answer, or in the server's."""


@dataclass(frozen=True, slots=True)
class Column:
    quantity: str
    heading: str
    more_is_better: bool | None = None
    """None where it is neither."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    about: str
    columns: tuple[Column, ...]
    compared: str
    """The quantity whose ratio is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A row: what one system did in one workload."""

    section: str
    system: str
    durability: Durability | None
    """None where nothing is written."""
    setting: str = ""
    """What makes it sync before the answer, or not."""
    workload: str
    values: dict[str, float]
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    """How many times better Millpond is, by its flush (group, none; any where nothing is written), by quantity."""
    targets: dict[str, Target] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, Durability | None, str]:
        return self.section, self.system, self.durability, self.workload

    @property
    def is_client_bound(self) -> bool:
        """The client kept a core busy, and the server did not."""
        return self.values.get("client_cores", 0) > _BUSY_CORES > self.values["server_cores"]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "section": self.section,
            "system": self.system,
            "synced_before_answer": self.durability and self.durability.value,
            "setting": self.setting,
            "workload": self.workload,
            "values": self.values,
            "millpond_times_better": self.times,
            "client_bound": self.is_client_bound,
            "targets": {
                quantity: {"least": each.least, "most": each.most, "met": each.is_reached_by(self.values[quantity])}
                for quantity, each in self.targets.items()
            },
        }


_USE = (Column("client_cores", "client"), Column("server_cores", "server"))
RATES = (
    Column("messages_per_s", "messages/s", more_is_better=True),
    *_USE,
    Column("server_us_per_message", "µs/message", more_is_better=False),
)
_REQUEST_CPU = Column("server_us_per_request", "µs/request", more_is_better=False)
LEAST_CPU = Column("server_us_least", "at least")
CORES = "Client and server: cores used; µs: the server's CPU."
START = Section(
    "start and memory",
    "From the start of the process, on an empty directory, to the first message acknowledged; memory a second later.",
    (Column("first_ack_s", "first ack s", more_is_better=False), Column("idle_mb", "idle MB", more_is_better=False)),
    "first_ack_s",
)
PRODUCE = Section(
    "produce, batched",
    "100 B messages as fast as one client can. Kafka's clients put thousands into a request; pipelined are requests of "
    f"one message each, 4 connections, 512 under way on each. {CORES}",
    RATES,
    "messages_per_s",
)
CONSUME = Section(
    "consume", f"The same messages, read by one client from the first to the last. {CORES}", RATES, "messages_per_s"
)
REQUESTS = Section(
    "CPU per request",
    f"Requests of one record as Kafka's protocol has them, 4 connections, 32 under way on each. {CORES} At least: "
    "in the round that took least.",
    (Column("requests_per_s", "requests/s", more_is_better=True), *_USE, _REQUEST_CPU, LEAST_CPU),
    "server_us_per_request",
)
WAITING = Section(
    "produce, each waits",
    "One 100 B message a request; a connection sends the next when it has the answer. µs/request: the server's CPU.",
    (
        Column("requests_per_s", "requests/s", more_is_better=True),
        Column("p50_us", "p50 µs", more_is_better=False),
        Column("p99_us", "p99 µs", more_is_better=False),
        _REQUEST_CPU,
    ),
    "p50_us",
)
SECTIONS = {section.name: section for section in (START, PRODUCE, CONSUME, REQUESTS, WAITING)}
_OURS: dict[str, Durability | None] = {"group": Durability.SYNCED, "none": Durability.NOT_SYNCED}


def combined(rounds: Sequence[Sequence[Figure]], sections: Mapping[str, Section] = SECTIONS) -> list[Figure]:
    """Each row once, by section: the median of its values but for what is told at least, and of its ratios."""
    found: dict[tuple[str, str, Durability | None, str], list[Figure]] = {}
    for figures in rounds:
        for figure in figures:
            with_times = replace(figure, times=ratios(figure, figures, sections[figure.section]))
            found.setdefault(figure.key, []).append(with_times)
    rows = [
        replace(
            each[0],
            values=_medians([figure.values for figure in each]),
            times={label: _medians([figure.times[label] for figure in each]) for label in each[0].times},
        )
        for each in found.values()
    ]
    order = list(sections)
    return sorted(rows, key=lambda figure: order.index(figure.section))


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        quantity: (min if quantity == LEAST_CPU.quantity else statistics.median)(each[quantity] for each in rounds)
        for quantity in rounds[0]
    }


def ratios(figure: Figure, figures: Sequence[Figure], section: Section) -> dict[str, dict[str, float]]:
    """By Millpond's durability ("group", "none"; "any" where nothing is written), then by quantity."""
    if figure.system == MILLPOND:
        return {}
    found: dict[str, dict[str, float]] = {}
    for label, durability in _OURS.items() if figure.durability else [("any", None)]:
        if ours := _counterpart(figure, figures, section, durability):
            found[label] = {
                column.quantity: _times_better(column, ours.values, figure.values)
                for column in section.columns
                if column.more_is_better is not None
            }
    return found


def _counterpart(
    figure: Figure, figures: Sequence[Figure], section: Section, durability: Durability | None
) -> Figure | None:
    """Millpond in the same workload, or else in the one of the section that it is best at."""
    ours = [
        each
        for each in figures
        if each.system == MILLPOND and each.section == figure.section and each.durability is durability
    ]
    same = [each for each in ours if each.workload == figure.workload]
    column = next(each for each in section.columns if each.quantity == section.compared)
    pick = max if column.more_is_better else min
    return pick(same or ours, key=lambda each: each.values[section.compared], default=None)


def _times_better(column: Column, ours: dict[str, float], theirs: dict[str, float]) -> float:
    """What was too little to measure counts as the least that can be: the machine counts CPU in ticks."""
    mine, other = max(ours[column.quantity], _LEAST), max(theirs[column.quantity], _LEAST)
    return mine / other if column.more_is_better else other / mine
