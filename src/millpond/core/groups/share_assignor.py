"""Who reads which partition in a share group, where a partition may have several readers.

Each partition gets as many readers as it takes to give every member work: as many as there are members for each
partition, rounded up; and two where there are two. Where members want different topics, a member counts towards each of
its partitions by the part of it that is left for each.

Invariants: a partition that somebody subscribed to has a reader; a member that subscribed to a partition has one;
nobody reads what it did not subscribe to. Among members that want the same, counts differ by one at most. What need
not move stays where it is.
Pure, and deterministic: members and topics are taken in sorted order. Used by `share.py`.
"""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from millpond.core.groups.assignors import Ask, Assignment
from millpond.core.groups.records import TopicIdPartition

NAME = "simple"
"""As Kafka calls the one it has for share groups."""


READERS_MIN = 2
"""So that nothing waits for a reader that has died, until its session ends, or that is stuck, while others are idle."""


def assign_shared(ask: Ask) -> Assignment:
    plan = _Plan(ask)
    for partition in ask.partitions():
        plan.thin_out(partition)
    for partition in ask.partitions():
        plan.fill_up(partition)
    while plan.move_one():
        pass
    plan.employ_the_idle()
    return plan.result()


class _Plan:
    def __init__(self, ask: Ask) -> None:
        self._subscribers = {topic: ask.subscribers(topic) for topic in sorted(ask.topics)}
        self._wanted = _readers_wanted(ask, self._subscribers)
        self._topics = {member: topics & ask.topics.keys() for member, topics in ask.subscriptions.items()}
        self._sizes = ask.topics
        existing = set(ask.partitions())
        self._shares: dict[str, set[TopicIdPartition]] = {
            member: {each for each in ask.current.get(member, ()) if each in existing and each.topic_id in topics}
            for member, topics in sorted(self._topics.items())
        }
        self._readers: dict[TopicIdPartition, set[str]] = {each: set() for each in existing}
        for member, share in self._shares.items():
            for each in share:
                self._readers[each].add(member)

    def thin_out(self, partition: TopicIdPartition) -> None:
        """Of more readers than wanted, those with most to do go first."""
        while len(self._readers[partition]) > self._wanted[partition.topic_id]:
            self._take(max(self._readers[partition], key=self._load), partition)

    def fill_up(self, partition: TopicIdPartition) -> None:
        missing = self._wanted[partition.topic_id] - len(self._readers[partition])
        if missing > 0:
            others = [each for each in self._subscribers[partition.topic_id] if each not in self._readers[partition]]
            for member in sorted(others, key=self._load)[:missing]:
                self._give(member, partition)

    def move_one(self) -> bool:
        """A partition, from a member to one with at least two fewer."""
        least = {topic: self._least_loaded(topic) for topic, members in self._subscribers.items() if members}
        for giver in sorted(self._shares, key=self._load, reverse=True):
            for topic in sorted(self._topics[giver]):
                taker = least[topic]
                if len(self._shares[taker]) > len(self._shares[giver]) - 2:
                    continue
                movable = [
                    each for each in self._shares[giver] if each.topic_id == topic and each not in self._shares[taker]
                ]
                if movable:
                    partition = min(movable)
                    self._take(giver, partition)
                    self._give(taker, partition)
                    return True
        return False

    def employ_the_idle(self) -> None:
        """Where subscriptions differ much, moves alone may leave somebody without work."""
        for member, share in self._shares.items():
            wanted = [TopicIdPartition(topic, n) for topic in self._topics[member] for n in range(self._sizes[topic])]
            if wanted and not share:
                self._give(member, min(wanted, key=lambda each: (len(self._readers[each]), each)))

    def result(self) -> Assignment:
        return {member: frozenset(share) for member, share in self._shares.items()}

    def _load(self, member: str) -> tuple[int, str]:
        return len(self._shares[member]), member

    def _least_loaded(self, topic: bytes) -> str:
        return min(self._subscribers[topic], key=self._load)

    def _give(self, member: str, partition: TopicIdPartition) -> None:
        self._shares[member].add(partition)
        self._readers[partition].add(member)

    def _take(self, member: str, partition: TopicIdPartition) -> None:
        self._shares[member].remove(partition)
        self._readers[partition].remove(member)


def _readers_wanted(ask: Ask, subscribers: dict[bytes, list[str]]) -> dict[bytes, int]:
    """For each partition of a topic: some at least, and never more than subscribed."""
    weights: dict[bytes, Fraction] = dict.fromkeys(ask.topics, Fraction(0))
    for topics, members in _alike(ask).items():
        partitions = sum(ask.topics[topic] for topic in topics)
        for topic in topics:
            weights[topic] += Fraction(members, partitions) if partitions else 0
    return {topic: min(max(ceil(weights[topic]), READERS_MIN), len(subscribers[topic])) for topic in ask.topics}


def _alike(ask: Ask) -> Counter[frozenset[bytes]]:
    """How many members want just these topics, of those there are."""
    wanted: Iterable[frozenset[bytes]] = (frozenset(each & ask.topics.keys()) for each in ask.subscriptions.values())
    return Counter(wanted)
