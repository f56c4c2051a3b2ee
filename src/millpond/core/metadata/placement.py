"""Which brokers keep a new partition, and which ones take over from a broker that goes.

Invariant: replicas of one partition are on different brokers, and on different racks as long as there are racks left.
Leaders go round all brokers, and so do the followers of each leader, so that what one broker leads falls to many.
Pure; chance is an argument. Used by controller.py, and by the operation that empties a broker.
"""

from collections import Counter
from itertools import zip_longest

from millpond.core.metadata.commands import ChangePartition, Replicas
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Broker, Image, Partition, Topic
from millpond.core.metadata.partition_changes import change, partitions_of
from millpond.core.metadata.reassignments import Reassign
from millpond.model.errors import InvalidReplicationFactor
from millpond.model.ids import TopicPartition
from millpond.model.ports import Rng


def place(brokers: list[Broker], *, partitions: int, replication: int, rng: Rng) -> tuple[Replicas, ...]:
    """Begins anywhere, so that topics of one partition do not all come to the first broker."""
    assert 1 <= replication <= len(brokers), (replication, len(brokers))
    ring = _racks_in_turn(brokers)
    start = rng.randrange(0, len(ring))
    return tuple(_replicas(ring, start + number, replication) for number in range(partitions))


def place_new(image: Image, *, partitions: int, replication: int, rng: Rng) -> tuple[Replicas, ...]:
    """On brokers that are up and stay; on those that are away only what is left over, and they never lead it first."""
    staying = image.staying_brokers()
    away = [each for each in image.brokers.values() if not image.is_staying(each.broker)]
    here = min(replication, len(staying))
    placed = place(staying, partitions=partitions, replication=here, rng=rng)
    if here == replication:
        return placed
    rest = place(away, partitions=partitions, replication=replication - here, rng=rng)
    return tuple(first + later for first, later in zip(placed, rest, strict=True))


def begin_without_those_away(image: Image, topic: Topic, *, since: int = 0) -> list[ChangePartition]:
    """New partitions, from `since` on, wait for nobody who is not there: whoever is away has nothing of them yet."""
    changes: list[ChangePartition] = []
    for number, partition in enumerate(topic.partitions[since:], start=since):
        away = {each for each in partition.replicas if not image.is_staying(each)}
        if away:
            isr = set(partition.replicas) - away
            changes.append(change(image, topic, number, leader=partition.leader, isr=isr, lost=away))
    return changes


def replace_broker(image: Image, broker: int) -> tuple[list[Reassign], list[Refused]]:
    """Other replicas for all that `broker` keeps, to be handed to `reassign`; and what nobody could take.

    Another rack than those of the other replicas comes first, then the broker that keeps least.
    """
    found = [(TopicPartition(topic.name, number), each) for topic, number, each in partitions_of(image)]
    load = Counter(replica for _, partition in found for replica in partition.target)
    moves: list[Reassign] = []
    stuck: list[Refused] = []
    for at, partition in found:
        if broker not in partition.target:
            continue
        heir = _heir(image, partition, broker, load)
        if heir is None:
            error = InvalidReplicationFactor(f"{at} is on every broker that is up; start another one first")
            stuck.append(Refused(str(at), error))
            continue
        load[heir] += 1
        moves.append(Reassign(at, tuple(heir if each == broker else each for each in partition.target)))
    return moves, stuck


def _heir(image: Image, partition: Partition, broker: int, load: Counter[int]) -> int | None:
    racks = {image.brokers[each].rack for each in partition.target if each != broker and each in image.brokers}
    able = [each for each in image.staying_brokers() if each.broker not in (broker, *partition.target)]

    def rank(each: Broker) -> tuple[bool, int, int]:
        return each.rack is not None and each.rack in racks, load[each.broker], each.broker

    return min(able, key=rank).broker if able else None


def _replicas(ring: list[Broker], at: int, replication: int) -> Replicas:
    """A leader, and the brokers after it, round the ring; those on a rack that has one already come last.

    With each round of leaders the followers begin one further on.
    """
    count, leader = len(ring), ring[at % len(ring)]
    others = [ring[(at + step) % count] for step in range(1, count)]
    begin = at // count % max(1, len(others))
    racks: set[str] = set()
    first: list[int] = []
    later: list[int] = []
    for broker in [leader, *others[begin:], *others[:begin]]:
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
