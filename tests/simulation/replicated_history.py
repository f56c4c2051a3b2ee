"""What clients of a cluster may rely on: the invariants of broker_history.py, as far as they hold for several brokers,
and those that only a cluster has.

Pure. Driven by replicated_world.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.broker_history import (
    Acknowledged,
    AcknowledgedMeansReadable,
    Asked,
    BrokerHistory,
    CommittedOffsetsNeverGoBackByThemselves,
    ConsumersSeeInOrderWithoutGaps,
    Event,
    Invariant,
    NoProducerIdTwice,
    NothingPhantom,
    NothingTwiceFromAnIdempotentProducer,
    OffsetRead,
    OneOwnerPerPartitionAndGeneration,
    Read,
    ReadInCalm,
    WhatWasSeenStays,
)
from tests.simulation.history import Violation


@dataclass(frozen=True, slots=True)
class AcknowledgedByLeader:
    """With acks=1: it may be lost with the leader epoch it was written in, and with nothing else."""

    partition: int
    base_offset: int
    values: tuple[bytes, ...]
    epoch_min: int
    """No leader of an earlier epoch can have written it."""


@dataclass(frozen=True, slots=True)
class Queued:
    """To be sent after what the producer queued for the partition before."""

    producer: str
    partition: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AcknowledgedSomewhere:
    """With acks=all, by an answer that does not say at which offset."""

    partition: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LastEpoch:
    """Of a partition, told before `ReadInCalm`."""

    partition: int
    epoch: int


class EndsNeverGoBack:
    """Offsets have no gaps and are given once; the end that ListOffsets tells never moves back, whoever leads."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._when_asked: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], int] = {}

    def see(self, event: Event) -> None:
        match event:
            case Acknowledged():
                last = self._last.get((event.producer, event.partition), -1)
                self._require(event.base_offset > last, f"{event.producer} was given {event.base_offset} after {last}")
                end = event.base_offset + len(event.values)
                self._last[event.producer, event.partition] = end - 1
                self._ends[event.partition] = max(self._ends.get(event.partition, 0), end)
            case Asked():
                self._when_asked[event.reader, event.partition] = self._ends.get(event.partition, 0)
            case Read():
                # A fetch tells of a high watermark, which a new leader may know late; only ListOffsets was `Asked`.
                least = self._when_asked.pop((event.reader, event.partition), 0)
                self._require(event.end >= least, f"the end of {event.partition} was {least} and is {event.end}")
                self._ends[event.partition] = max(self._ends.get(event.partition, 0), event.end)
            case ReadInCalm():
                least = self._ends.get(event.partition, 0)
                self._require(event.end >= least, f"the end of {event.partition} was {least} and is {event.end}")
                offsets = [offset for offset, _ in event.records]
                dense = offsets == list(range(event.end))
                self._require(dense, f"offsets of {event.partition} are {offsets}; it ends at {event.end}")

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(f"EndsNeverGoBack: {otherwise}")


class LostOnlyWithTheLeader:
    """What a leader alone acknowledged is there, as long as the leader epoch it was written in is not over."""

    def __init__(self) -> None:
        self._kept: list[AcknowledgedByLeader] = []
        self._epochs: dict[int, int] = {}

    def see(self, event: object) -> None:
        match event:
            case AcknowledgedByLeader():
                self._kept.append(event)
            case LastEpoch():
                self._epochs[event.partition] = event.epoch
            case ReadInCalm():
                there = dict(event.records)
                last = self._epochs.get(event.partition)
                for each in self._kept:
                    if each.partition == event.partition and each.epoch_min == last:
                        for offset, value in enumerate(each.values, start=each.base_offset):
                            if there.get(offset) != value:
                                raise Violation(f"LostOnlyWithTheLeader: {value!r} at {offset} of {each.partition}")


class AcknowledgedIsSomewhere:
    """Also where the answer did not say at which offset."""

    def __init__(self) -> None:
        self._kept: list[AcknowledgedSomewhere] = []

    def see(self, event: object) -> None:
        match event:
            case AcknowledgedSomewhere():
                self._kept.append(event)
            case ReadInCalm():
                there = {value for _, value in event.records}
                for each in self._kept:
                    if each.partition == event.partition and not there.issuperset(each.values):
                        raise Violation(f"AcknowledgedIsSomewhere: {each.values} of {each.partition}")


class OrderOfAProducerStays:
    """What one producer queued for a partition is there in that order, however often it had to be sent."""

    def __init__(self) -> None:
        self._places: dict[bytes, tuple[str, int]] = {}

    def see(self, event: object) -> None:
        match event:
            case Queued():
                for value in event.values:
                    self._places[value] = event.producer, len(self._places)
            case ReadInCalm():
                last: dict[str, int] = {}
                for offset, value in event.records:
                    producer, number = self._places.get(value, ("", 0))
                    if producer and last.get(producer, -1) > number:
                        raise Violation(f"OrderOfAProducerStays: {value!r} at {offset} of {event.partition}")
                    last[producer] = number


class CommittedOffsetsOnceSeenStay(CommittedOffsetsNeverGoBackByThemselves):
    """A commit that anybody has been shown counts as acknowledged from then on."""

    def _check(self, event: OffsetRead) -> None:
        super()._check(event)
        found = self._commits.get(event.note)
        if found is not None and found.ended is None:
            found.accepted, found.ended = True, self._moment


INVARIANTS: tuple[Callable[[], Invariant], ...] = (
    AcknowledgedMeansReadable,
    WhatWasSeenStays,
    EndsNeverGoBack,
    LostOnlyWithTheLeader,
    AcknowledgedIsSomewhere,
    OrderOfAProducerStays,
    NothingTwiceFromAnIdempotentProducer,
    NothingPhantom,
    NoProducerIdTwice,
    OneOwnerPerPartitionAndGeneration,
    CommittedOffsetsOnceSeenStay,
    ConsumersSeeInOrderWithoutGaps,
)


def new_history() -> BrokerHistory:
    return BrokerHistory(invariants=[make() for make in INVARIANTS])
