"""Who reads which partition: range, round-robin, and uniform (balanced, moving as little as possible).

Invariant of each: every partition of a topic that somebody subscribed to goes to exactly one of its subscribers.
Pure functions of their arguments, and deterministic: members and topics are taken in sorted order. Used by
`consumer.py`; clients of classic groups assign for themselves.
"""

from collections import deque
from collections.abc import Callable, Mapping

from millpond.core.groups.records import TopicIdPartition
from millpond.model.values import dataclass

Assignment = dict[str, frozenset[TopicIdPartition]]
ENTRY_POINTS = "millpond.assignors"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be shared out, and among whom."""

    topics: Mapping[bytes, int]
    """How many partitions each topic has."""
    subscriptions: Mapping[str, frozenset[bytes]]
    """Topics by member; those that do not exist are nobody's concern."""
    current: Mapping[str, frozenset[TopicIdPartition]]
    """What the members have had so far; members and partitions that are gone may still be in it."""

    def subscribers(self, topic_id: bytes) -> list[str]:
        return sorted(member for member, topics in self.subscriptions.items() if topic_id in topics)

    def partitions(self) -> list[TopicIdPartition]:
        """All that somebody wants, in order."""
        wanted = {topic for topics in self.subscriptions.values() for topic in topics}
        return [
            TopicIdPartition(topic, number)
            for topic in sorted(wanted & self.topics.keys())
            for number in range(self.topics[topic])
        ]


def assign_range(ask: Ask) -> Assignment:
    """Topic by topic, a run of neighbouring partitions each: equal partitions of topics meet at one member."""
    shares: dict[str, set[TopicIdPartition]] = {member: set() for member in ask.subscriptions}
    for topic in sorted(ask.topics):
        members = ask.subscribers(topic)
        if not members:
            continue
        least, more = divmod(ask.topics[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + least + (place < more)
            shares[member].update(TopicIdPartition(topic, number) for number in range(start, end))
            start = end
    return _frozen(shares)


def assign_round_robin(ask: Ask) -> Assignment:
    """Partition by partition around the circle of members, passing over those who did not subscribe."""
    shares: dict[str, set[TopicIdPartition]] = {member: set() for member in ask.subscriptions}
    circle = deque(sorted(ask.subscriptions))
    for partition in ask.partitions():
        while partition.topic_id not in ask.subscriptions[circle[0]]:
            circle.rotate(-1)
        shares[circle[0]].add(partition)
        circle.rotate(-1)
    return _frozen(shares)


def assign_uniform(ask: Ask) -> Assignment:
    """Counts differ by one at most as far as subscriptions allow; what need not move stays where it is."""
    if len({frozenset(topics & ask.topics.keys()) for topics in ask.subscriptions.values()}) <= 1:
        return _assign_alike(ask)
    return _assign_unlike(ask)


Assignor = Callable[[Ask], Assignment]

ASSIGNORS: Mapping[str, Assignor] = {
    "uniform": assign_uniform,
    "range": assign_range,
    "roundrobin": assign_round_robin,
}
"""By the name a client asks for; the first is the default."""


def guarded(name: str, assign: Assignor, *, on_error: Callable[[BaseException], None]) -> Assignor:
    """An assignor of somebody else's, held to the invariant: where it fails, the group is shared out uniformly."""

    def assigned(ask: Ask) -> Assignment:
        try:
            shares = assign(ask)
            _check(ask, shares)
        except Exception as error:
            error.add_note(f"the assignor {name} failed; the group's partitions were shared out uniformly instead")
            on_error(error)
            return assign_uniform(ask)
        return shares

    return assigned


def _check(ask: Ask, shares: Assignment) -> None:
    given = [each for share in shares.values() for each in share]
    if len(given) != len(set(given)) or set(given) != set(ask.partitions()):
        raise ValueError("every partition goes to one member: some were given twice, to nobody, or do not exist")
    for member, share in shares.items():
        wanted = ask.subscriptions.get(member, frozenset())
        if any(each.topic_id not in wanted for each in share):
            raise ValueError(f"member {member} was given a partition of a topic that it did not subscribe to")


def _assign_alike(ask: Ask) -> Assignment:
    """All members want the same: each gets its quota, first out of what it has."""
    partitions = ask.partitions()
    shares = _kept(ask, partitions)
    if not shares:
        return {}
    least, more = divmod(len(partitions), len(shares))
    # The larger quotas go to those who hold most, since others would have to be given what these must give up.
    members = sorted(shares, key=lambda member: (-len(shares[member]), member))
    quotas = {member: least + (place < more) for place, member in enumerate(members)}
    for member, quota in quotas.items():
        shares[member] = set(sorted(shares[member])[:quota])
    held = set().union(*shares.values())
    free = deque(partition for partition in partitions if partition not in held)
    for member in sorted(shares):
        while len(shares[member]) < quotas[member]:
            shares[member].add(free.popleft())
    assert not free
    return _frozen(shares)


def _assign_unlike(ask: Ask) -> Assignment:
    """Members want different topics: fill up the least loaded, then move along chains until nothing improves."""
    partitions = ask.partitions()
    shares = _kept(ask, partitions)
    held = set().union(*shares.values())
    subscribers = {topic: ask.subscribers(topic) for topic in ask.topics}
    # Partitions that fewest can take are placed first.
    for partition in sorted(partitions, key=lambda each: (len(subscribers[each.topic_id]), each)):
        if partition not in held:
            member = min(subscribers[partition.topic_id], key=lambda each: (len(shares[each]), each))
            shares[member].add(partition)
    while chain := _improving_chain(shares, subscribers):
        for giver, taker, partition in chain:
            shares[giver].remove(partition)
            shares[taker].add(partition)
    return _frozen(shares)


Move = tuple[str, str, TopicIdPartition]


def _improving_chain(shares: dict[str, set[TopicIdPartition]], subscribers: Mapping[bytes, list[str]]) -> list[Move]:
    """Moves from a member to one with at least two fewer, through others whose count stays; or none."""
    for first in sorted(shares, key=lambda member: (-len(shares[member]), member)):
        came_by: dict[str, Move | None] = {first: None}
        queue = deque([first])
        while queue:
            giver = queue.popleft()
            if len(shares[giver]) <= len(shares[first]) - 2:
                return _chain_to(giver, came_by)
            offers: dict[bytes, TopicIdPartition] = {each.topic_id: each for each in sorted(shares[giver])}
            for topic, partition in offers.items():
                for taker in subscribers[topic]:
                    if taker not in came_by:
                        came_by[taker] = (giver, taker, partition)
                        queue.append(taker)
    return []


def _chain_to(last: str, came_by: Mapping[str, Move | None]) -> list[Move]:
    chain: list[Move] = []
    while (move := came_by[last]) is not None:
        chain.append(move)
        last = move[0]
    return chain


def _kept(ask: Ask, partitions: list[TopicIdPartition]) -> dict[str, set[TopicIdPartition]]:
    """What each member has had and may keep; of two who claim one partition, the first."""
    free = set(partitions)
    shares: dict[str, set[TopicIdPartition]] = {}
    for member in sorted(ask.subscriptions):
        topics = ask.subscriptions[member]
        shares[member] = {each for each in ask.current.get(member, ()) if each in free and each.topic_id in topics}
        free -= shares[member]
    return shares


def _frozen(shares: Mapping[str, set[TopicIdPartition]]) -> Assignment:
    return {member: frozenset(share) for member, share in shares.items()}
