"""Which brokers keep a new partition.

Invariant: replicas of one partition are on different brokers, and on different racks as long as there are racks left.
Leaders go round all brokers. Pure; chance is an argument. Used by controller.py.
"""

from itertools import zip_longest

from millpond.core.metadata.commands import Replicas
from millpond.core.metadata.image import Broker
from millpond.model.ports import Rng


def place(brokers: list[Broker], *, partitions: int, replication: int, rng: Rng) -> tuple[Replicas, ...]:
    """Begins anywhere, so that topics of one partition do not all come to the first broker."""
    assert 1 <= replication <= len(brokers), (replication, len(brokers))
    ring = _racks_in_turn(brokers)
    start = rng.randrange(0, len(ring))
    return tuple(_replicas(ring, start + number, replication) for number in range(partitions))


def _replicas(ring: list[Broker], at: int, replication: int) -> Replicas:
    """The brokers from `at` on, round the ring; those on a rack that has one already come last."""
    turned = [ring[(at + step) % len(ring)] for step in range(len(ring))]
    racks: set[str] = set()
    first: list[int] = []
    later: list[int] = []
    for broker in turned:
        if broker.rack is not None and broker.rack in racks:
            later.append(broker.broker)
        else:
            first.append(broker.broker)
            racks.add(broker.rack or "")
    return tuple([*first, *later][:replication])


def _racks_in_turn(brokers: list[Broker]) -> list[Broker]:
    racks: dict[str, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda each: each.broker):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for each in rounds for broker in each if broker is not None]
