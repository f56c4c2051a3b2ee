"""Which partition a message goes to when nobody says.

    name          with a key                                          without
    murmur2       as Kafka's Java clients: murmur2, modulo partitions  sticky
    consistent    murmur3 and jump hashing: growth moves few keys      sticky
    round-robin   the next in turn                                    the next in turn
    sticky        the one that is being filled                        the same

Sticky stays on one partition until a batch of it is full or sent, then takes another: fewer, larger batches. A
partitioner of one's own is a callable, or the name of an entry point of the group `millpond.partitioners` that is one.

Invariant: a partitioner answers a number from 0 to `partitions` - 1, or None for sticky; `choose` checks it.
Pure. Driven by producer.py.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from itertools import count
from typing import Final

from millpond.client.hashing import jump, murmur2, murmur3
from millpond.model.errors import InvalidSetting, WrongUse

Partitioner = Callable[[str, bytes | None, int], int | None]
"""From topic, key and number of partitions to a partition; None leaves it to the producer (sticky)."""

ENTRY_POINTS: Final = "millpond.partitioners"
_POSITIVE: Final = 0x7FFF_FFFF


def by_murmur2(topic: str, key: bytes | None, partitions: int) -> int | None:
    return None if key is None else (murmur2(key) & _POSITIVE) % partitions


def by_consistent_hash(topic: str, key: bytes | None, partitions: int) -> int | None:
    return None if key is None else jump(murmur3(key), partitions)


def sticky(topic: str, key: bytes | None, partitions: int) -> int | None:
    return None


class RoundRobin:
    """Each topic has a turn of its own."""

    def __init__(self) -> None:
        self._turns: dict[str, count[int]] = {}

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        return next(self._turns.setdefault(topic, count())) % partitions


def named(name: str) -> Partitioner:
    """One of ours, or one that an installed package offers."""
    match name:
        case "murmur2":
            return by_murmur2
        case "consistent":
            return by_consistent_hash
        case "sticky":
            return sticky
        case "round-robin":
            return RoundRobin()
    offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        there = ", ".join(["murmur2", "consistent", "round-robin", "sticky", *sorted(offered)])
        raise InvalidSetting(
            f"partitioner is {name!r}, and no installed package offers it (entry points {ENTRY_POINTS}); there are: "
            f"{there}. Correct the name, or pass a callable"
        )
    found: Partitioner = offered[name].load()
    return found


def choose(partitioner: Partitioner, topic: str, key: bytes | None, partitions: int) -> int | None:
    chosen = partitioner(topic, key, partitions)
    if chosen is not None and not 0 <= chosen < partitions:
        raise WrongUse(
            f"the partitioner chose partition {chosen} of {topic}, which has {partitions}: 0 to {partitions - 1}"
        )
    return chosen
