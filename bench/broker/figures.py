"""What is measured of a broker, and how it stands to its peers. Pure.

A ratio says how many times better Millpond is than the peer in that row, whatever the unit: 2 is twice the messages, or
half the time. Each peer is compared with Millpond in both durabilities; like stands beside like where both sync, or
neither does, before they answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bench.measuring import Target

MILLPOND = "Millpond"
_BUSY_CORES = 0.9
"""Of the one core a broker's loop has; with less than that it has waited for others."""


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
    workload: str
    values: dict[str, float]
    targets: dict[str, Target] = field(default_factory=dict)
    setting: str = ""
    """What makes it sync before the answer, or not."""

    @property
    def is_client_bound(self) -> bool:
        """The server had time left, and the client used more than it."""
        server_cores = self.values.get("server_cores", _BUSY_CORES)
        return server_cores < _BUSY_CORES and server_cores < self.values["client_cores"]


_RATES = (
    Column("messages_per_s", "messages/s", more_is_better=True),
    Column("client_cores", "client cores"),
    Column("server_cores", "server cores"),
    Column("server_us_per_message", "server µs/message", more_is_better=False),
)
PRODUCE = Section(
    "produce, batched",
    "100 B messages as fast as one client can. Kafka's clients put thousands into a request; the others' send each "
    "message by itself and wait for none of them, 4 connections, 512 under way on each.",
    _RATES,
    "messages_per_s",
)
CONSUME = Section(
    "consume", "The same messages, read by one client from the first to the last.", _RATES, "messages_per_s"
)
WAITING = Section(
    "produce, each waits",
    "One 100 B message a request; a connection sends the next when it has the answer.",
    (
        Column("requests_per_s", "requests/s", more_is_better=True),
        Column("p50_us", "p50 µs", more_is_better=False),
        Column("p99_us", "p99 µs", more_is_better=False),
        Column("server_us_per_request", "server µs/request", more_is_better=False),
    ),
    "p50_us",
)
REQUESTS = Section(
    "CPU per request",
    "Requests of one record as Kafka's protocol has them, 4 connections, 32 under way on each.",
    (
        Column("requests_per_s", "requests/s", more_is_better=True),
        Column("client_cores", "client cores"),
        Column("server_cores", "server cores"),
        Column("server_us_per_request", "server µs/request", more_is_better=False),
    ),
    "server_us_per_request",
)
START = Section(
    "start and memory",
    "From the start of the process, on an empty directory, to the first message acknowledged; memory a second later.",
    (
        Column("first_ack_s", "first ack s", more_is_better=False),
        Column("idle_mb", "idle MB", more_is_better=False),
    ),
    "first_ack_s",
)
SECTIONS = (START, PRODUCE, CONSUME, REQUESTS, WAITING)
_OURS: dict[str, Durability | None] = {"group": Durability.SYNCED, "none": Durability.NOT_SYNCED}


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
                if column.more_is_better is not None and ours.values[column.quantity] and figure.values[column.quantity]
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
    ratio = ours[column.quantity] / theirs[column.quantity]
    return ratio if column.more_is_better else 1 / ratio


def documents(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """For JSON."""
    sections = {section.name: section for section in SECTIONS}
    return [
        {
            "section": figure.section,
            "system": figure.system,
            "synced_before_answer": figure.durability and figure.durability.value,
            "workload": figure.workload,
            "values": figure.values,
            "times_better_than_it": ratios(figure, figures, sections[figure.section]),
            "targets": {
                quantity: {
                    "least": target.least,
                    "most": target.most,
                    "met": target.is_reached_by(figure.values[quantity]),
                }
                for quantity, target in figure.targets.items()
            },
            "setting": figure.setting,
            "client_bound": figure.is_client_bound,
        }
        for figure in figures
    ]
