"""What clients of a broker did and heard, as events; and the named invariants that look at each event as it comes.

The history is written by the clients, from what they were told over the wire, and never by looking into the broker.
Each invariant keeps the little it needs to know, and raises `Violation` at the event that breaks it. Values are
unique, so a value says where it comes from.
Pure. Driven by broker_world.py, which notes each event, and `ReadInCalm` of every partition at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulation.history import Violation

Records = tuple[tuple[int, bytes], ...]
"""Offset and value."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Is about to go out for the first time."""

    partition: int
    values: tuple[bytes, ...]
    is_idempotent: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    producer: str
    partition: int
    base_offset: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ProducerNamed:
    producer_id: int


@dataclass(frozen=True, slots=True)
class Seeked:
    """The reader goes on from here."""

    reader: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The reader is about to fetch, or to ask for the end."""

    reader: str
    partition: int


@dataclass(frozen=True, slots=True)
class Read:
    reader: str
    partition: int
    records: Records
    end: int


@dataclass(frozen=True, slots=True)
class Assigned:
    group: str
    generation: int
    member: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommitBegan:
    note: str
    group: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommitEnded:
    note: str
    accepted: bool | None
    """None where nothing was heard."""


@dataclass(frozen=True, slots=True)
class OffsetAsked:
    reader: str


@dataclass(frozen=True, slots=True)
class OffsetRead:
    reader: str
    group: str
    partition: int
    offset: int
    note: str


@dataclass(frozen=True, slots=True)
class BrokerEnded:
    """Its process is gone: what was under way to it and was given up on arrives nowhere any more."""


@dataclass(frozen=True, slots=True)
class ReadInCalm:
    """A whole partition, read when nothing else went on."""

    partition: int
    records: Records
    end: int


Event = (
    Sent
    | Acknowledged
    | ProducerNamed
    | Seeked
    | Asked
    | Read
    | Assigned
    | CommitBegan
    | CommitEnded
    | OffsetAsked
    | OffsetRead
    | BrokerEnded
    | ReadInCalm
)


class Invariant(Protocol):
    def see(self, event: Event) -> None: ...


class AcknowledgedMeansReadable:
    """Every acknowledged record is readable later, at its offset, with the same value."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], bytes] = {}

    def see(self, event: Event) -> None:
        match event:
            case Acknowledged():
                for offset, value in enumerate(event.values, start=event.base_offset):
                    known = self._kept.setdefault((event.partition, offset), value)
                    if known != value:
                        raise _broken(self, f"{value!r} was acknowledged at {offset}, where {known!r} is")
            case Read():
                self._compare(event.partition, event.records)
            case ReadInCalm():
                self._compare(event.partition, event.records)
                there = {offset for offset, _ in event.records}
                for (partition, offset), value in self._kept.items():
                    if partition == event.partition and offset not in there:
                        how = f"{value!r} was acknowledged at {offset} of {partition}, and is gone"
                        raise _broken(self, f"{how}; it ends at {event.end}")

    def _compare(self, partition: int, records: Records) -> None:
        for offset, value in records:
            known = self._kept.get((partition, offset), value)
            if known != value:
                raise _broken(self, f"{known!r} was acknowledged at {offset} of {partition}; {value!r} is there")


class WhatWasSeenStays:
    """A record that any reader saw is there for ever: nobody is shown what a power cut takes back."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], bytes] = {}

    def see(self, event: Event) -> None:
        match event:
            case Read() | ReadInCalm():
                for offset, value in event.records:
                    known = self._seen.setdefault((event.partition, offset), value)
                    if known != value:
                        raise _broken(self, f"{offset} of {event.partition} was {known!r} and is {value!r}")
        if isinstance(event, ReadInCalm):
            last = max((offset for partition, offset in self._seen if partition == event.partition), default=-1)
            _require(self, last < event.end, f"{last} of {event.partition} was seen; it ends at {event.end}")


class OffsetsDenseAndMonotonic:
    """Offsets have no gaps and are given once; the end that clients see never moves back, also over restarts."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._ends_when_asked: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], int] = {}

    def see(self, event: Event) -> None:
        match event:
            case Acknowledged():
                last = self._last.get((event.producer, event.partition), -1)
                _require(self, event.base_offset > last, f"{event.producer} was given {event.base_offset} after {last}")
                end = event.base_offset + len(event.values)
                self._last[event.producer, event.partition] = end - 1
                self._ends[event.partition] = max(self._ends.get(event.partition, 0), end)
            case Asked():
                self._ends_when_asked[event.reader, event.partition] = self._ends.get(event.partition, 0)
            case Read():
                least = self._ends_when_asked[event.reader, event.partition]
                _require(self, event.end >= least, f"the end of {event.partition} was {least} and is {event.end}")
                self._ends[event.partition] = max(self._ends.get(event.partition, 0), event.end)
            case ReadInCalm():
                least = self._ends.get(event.partition, 0)
                _require(self, event.end >= least, f"the end of {event.partition} was {least} and is {event.end}")
                offsets = [offset for offset, _ in event.records]
                dense = offsets == list(range(event.end))
                _require(self, dense, f"offsets of {event.partition} are {offsets}; it ends at {event.end}")


class NothingTwiceFromAnIdempotentProducer:
    """What such a producer sent is in one place at most, however often it had to send it."""

    def __init__(self) -> None:
        self._idempotent: set[bytes] = set()
        self._places: dict[bytes, tuple[int, int]] = {}

    def see(self, event: Event) -> None:
        match event:
            case Sent(is_idempotent=True):
                self._idempotent.update(event.values)
            case Read() | ReadInCalm():
                for offset, value in event.records:
                    if value in self._idempotent:
                        place = self._places.setdefault(value, (event.partition, offset))
                        if place != (event.partition, offset):
                            raise _broken(self, f"{value!r} is at {place} and again at {offset}")


class NothingPhantom:
    """Whatever is read was sent, to that partition."""

    def __init__(self) -> None:
        self._sent: dict[bytes, int] = {}

    def see(self, event: Event) -> None:
        match event:
            case Sent():
                self._sent.update(dict.fromkeys(event.values, event.partition))
            case Read() | ReadInCalm():
                for offset, value in event.records:
                    sent_to = self._sent.get(value)
                    if sent_to != event.partition:
                        raise _broken(self, f"{value!r} at {offset} was sent to {sent_to}")


class NoProducerIdTwice:
    """Each InitProducerId that is answered names a new producer."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def see(self, event: Event) -> None:
        if isinstance(event, ProducerNamed):
            _require(self, event.producer_id not in self._given, f"{event.producer_id} was given out again")
            self._given.add(event.producer_id)


class OneOwnerPerPartitionAndGeneration:
    """No two members are told that a partition is theirs in one generation."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, int], str] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, Assigned):
            for partition in event.partitions:
                owner = self._owners.setdefault((event.group, event.generation, partition), event.member)
                _require(
                    self,
                    owner == event.member,
                    f"{partition} belongs to {owner} and {event.member} in generation {event.generation}",
                )


@dataclass(slots=True)
class _Commit:
    of: tuple[str, int]
    """Group and partition."""
    offset: int
    began: int
    ended: int | None = None
    """The last moment it can have taken effect; None while that is not over."""
    accepted: bool = False
    is_given_up: bool = False


class CommittedOffsetsNeverGoBackByThemselves:
    """A fetched offset is that of the last acknowledged commit, or of one that may have come after it."""

    def __init__(self) -> None:
        self._moment = 0
        self._commits: dict[str, _Commit] = {}
        self._asked: dict[str, int] = {}

    def see(self, event: Event) -> None:
        self._moment += 1
        match event:
            case CommitBegan():
                self._commits[event.note] = _Commit((event.group, event.partition), event.offset, self._moment)
            case CommitEnded(accepted=None):
                self._commits[event.note].is_given_up = True
            case CommitEnded(accepted=True):
                self._commits[event.note].accepted = True
                self._commits[event.note].ended = self._moment
            case CommitEnded(accepted=False):
                del self._commits[event.note]
            case BrokerEnded():
                for commit in self._commits.values():
                    if commit.is_given_up and commit.ended is None:
                        commit.ended = self._moment
            case OffsetAsked():
                self._asked[event.reader] = self._moment
            case OffsetRead():
                self._check(event)

    def _check(self, event: OffsetRead) -> None:
        asked, of = self._asked[event.reader], (event.group, event.partition)
        found = self._commits.get(event.note)
        none_yet = event.offset == -1 and not event.note
        _require(self, found is not None or none_yet, f"{event} was never committed, or refused")
        if found is not None:
            same = (found.of, found.offset) == (of, event.offset)
            _require(self, same, f"{event} is not {found}")
        ended = 0 if found is None else found.ended
        for note, commit in self._commits.items():
            if commit.accepted and commit.of == of and ended is not None:
                assert commit.ended is not None
                is_newer = commit.began > ended and commit.ended < asked
                _require(self, not is_newer, f"{event}, though {note} with {commit.offset} was acknowledged since")


class ConsumersSeeInOrderWithoutGaps:
    """A reader is given the offset it asked for and those after it, one by one."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}

    def see(self, event: Event) -> None:
        match event:
            case Seeked():
                self._next[event.reader, event.partition] = event.offset
            case Read():
                expected = self._next[event.reader, event.partition]
                for offset, _ in event.records:
                    if offset != expected:
                        raise _broken(self, f"{event.reader} was given {offset} for {expected}")
                    expected += 1
                _require(self, expected <= event.end, f"{event.reader} saw {expected - 1}, beyond the end {event.end}")
                self._next[event.reader, event.partition] = expected


def _require(invariant: Invariant, holds: bool, otherwise: str) -> None:
    """For what is asked once per event; of each record only what is broken is put into words."""
    if not holds:
        raise _broken(invariant, otherwise)


def _broken(invariant: Invariant, how: str) -> Violation:
    return Violation(f"{type(invariant).__name__}: {how}")


INVARIANTS: tuple[Callable[[], Invariant], ...] = (
    AcknowledgedMeansReadable,
    WhatWasSeenStays,
    OffsetsDenseAndMonotonic,
    NothingTwiceFromAnIdempotentProducer,
    NothingPhantom,
    NoProducerIdTwice,
    OneOwnerPerPartitionAndGeneration,
    CommittedOffsetsNeverGoBackByThemselves,
    ConsumersSeeInOrderWithoutGaps,
)


@dataclass(slots=True)
class BrokerHistory:
    invariants: list[Invariant] = field(default_factory=lambda: [make() for make in INVARIANTS])
    counts: dict[str, int] = field(default_factory=dict)
    """How many of each kind there were, by name."""

    def note(self, event: Event) -> None:
        name = type(event).__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        for invariant in self.invariants:
            invariant.see(event)
