"""Who leads: when a broker comes, goes, or is taken for dead, and when somebody asks.

Invariant: a leader is live and in sync when it is elected, or eligible where nobody is in sync; anything else only
where its topic or an operator asked for an unclean election (`unclean` finds those, to be told loudly). A broker whose
disk was lost is in sync with nothing. Every leader begins a new leader epoch, also one that leads again after a
restart: what it had not synced may be gone from its log and be in another's.
Pure. Driven by broker/drivers, and by the operation behind ElectLeaders.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import IntEnum

from millpond.core.metadata.commands import (
    NO_LEADER,
    BeginShutdown,
    ChangePartition,
    Command,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    UnregisterBroker,
)
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.image import Image, Partition, Topic, apply
from millpond.core.metadata.partition_changes import best_leader, change, led_by, partitions_of
from millpond.model.errors import (
    BrokerNotRegistered,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    RequestError,
    UnknownTopicOrPartition,
)
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass

IMBALANCE_PERCENT_MAX = 10
MOVES_MAX = 1000
"""Leaders that one round of balancing moves."""


class Election(IntEnum):
    """Numbered as ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Elected:
    at: TopicPartition
    leader: int


def register_broker(
    image: Image,
    broker: int,
    *,
    endpoints: tuple[Endpoint, ...],
    rack: str | None = None,
    directory_id: bytes = b"",
    life: bytes = b"",
    doubtful: Collection[tuple[bytes, int]] = (),
) -> tuple[Command, ...]:
    """When it starts: it is live again, and leads what has no leader and would be led by it.

    `doubtful` are partitions, by topic id and number, whose log may have lost its end: it is in sync with none of them
    as long as another may have all there is.
    """
    before = image.brokers.get(broker)
    known = b"" if before is None else before.directory_id
    register = RegisterBroker(
        broker=broker,
        epoch=image.version if before is None else max(before.epoch + 1, image.version),
        endpoints=endpoints,
        rack=rack,
        directory_id=directory_id or known,
        life=life,
    )
    after = apply(register, image)
    lost = _is_lost(image, broker, directory_id)
    changes = (
        _on_return(after, topic, number, broker, lost=lost, doubtful=(topic.topic_id, number) in doubtful)
        for topic, number, _ in partitions_of(after)
    )
    return (register, *(command for command in changes if command is not None))


def fence_broker(image: Image, broker: int, *, epoch: int | None = None) -> tuple[Command, ...]:
    """When it is taken for dead: others lead what it led, where others are in sync or eligible.

    With `epoch`, only in that life of it: it may have come back meanwhile.
    """
    if not image.is_live(broker) or epoch not in (None, image.brokers[broker].epoch):
        return ()
    fence = FenceBroker(broker=broker)
    after = apply(fence, image)
    changes = (_without(after, topic, number, broker) for topic, number, _ in partitions_of(after))
    return (fence, *(command for command in changes if command is not None))


def hand_over(image: Image, broker: int) -> tuple[Command, ...]:
    """Before it stops: others lead what it leads, and nobody waits for it, wherever others are in sync."""
    if not image.is_live(broker):
        return ()
    begin = BeginShutdown(broker=broker)
    after = image if image.brokers[broker].shutting_down else apply(begin, image)
    begun = () if after is image else (begin,)
    left = (
        _without(after, topic, number, broker)
        for topic, number, partition in partitions_of(after)
        if any(other != broker and after.is_staying(other) for other in partition.isr)
    )
    return (*begun, *(command for command in left if command is not None))


def step_aside(image: Image, broker: int, damaged: Collection[tuple[bytes, int]]) -> tuple[Command, ...]:
    """Of partitions, by topic id and number, whose log is not as it was written: as if its disk were lost, wherever
    others are in sync. Elsewhere a damaged log is the best there is."""
    changes = (
        _without(image, topic, number, broker, lost=True)
        for topic, number, partition in partitions_of(image)
        if (topic.topic_id, number) in damaged
        and any(other != broker and image.is_staying(other) for other in partition.isr)
    )
    return tuple(command for command in changes if command is not None)


def elect_leaderless(image: Image) -> tuple[Command, ...]:
    """Whatever has no leader and could have one, as after a change of settings."""
    changes = (
        led_by(image, topic, number, leader)
        for topic, number, partition in partitions_of(image)
        if partition.leader == NO_LEADER and (leader := best_leader(image, topic, partition)) != NO_LEADER
    )
    return tuple(changes)


def balance(
    image: Image, *, imbalance_percent_max: int = IMBALANCE_PERCENT_MAX, moves_max: int = MOVES_MAX
) -> tuple[Command, ...]:
    """Preferred replicas lead again, for each broker that leads too little of what it is preferred for."""
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[ChangePartition]] = {}
    for topic, number, partition in partitions_of(image):
        first = partition.replicas[0]
        preferred[first] = preferred.get(first, 0) + 1
        if partition.leader != first and first in partition.isr and image.is_staying(first):
            elsewhere.setdefault(first, []).append(led_by(image, topic, number, first))
    moves = [
        move
        for broker, found in sorted(elsewhere.items())
        if 100 * len(found) > imbalance_percent_max * preferred[broker]
        for move in found
    ]
    return tuple(moves[:moves_max])


def unregister_broker(image: Image, broker: int) -> Decision[int]:
    """For good. Only one that is down and keeps nothing, so that no partition loses a replica by it."""
    try:
        if broker not in image.brokers:
            raise BrokerNotRegistered(f"there is no broker {broker}; registered are {sorted(image.brokers)}")
        if image.is_live(broker):
            raise InvalidRequest(f"broker {broker} is up; stop it first")
        kept = [TopicPartition(topic.name, n) for topic, n, each in partitions_of(image) if broker in each.replicas]
        if kept:
            raise InvalidRequest(
                f"broker {broker} keeps {len(kept)} partitions, such as {kept[0]}; move them to others first"
            )
    except RequestError as error:
        return Decision((), (Refused(f"broker {broker}", error),))
    return Decision((UnregisterBroker(broker=broker),), (broker,))


def elect_leaders(image: Image, kind: Election, asked: Sequence[TopicPartition] | None = None) -> Decision[Elected]:
    """For the partitions asked, or all. Where nothing is to be done the answer is `ElectionNotNeeded`."""
    every = (TopicPartition(topic.name, number) for topic, number, _ in partitions_of(image))
    commands: list[Command] = []
    answers: list[Elected | Refused] = []
    for at in dict.fromkeys(every if asked is None else asked):
        try:
            command = _elect(image, kind, at)
        except RequestError as error:
            answers.append(Refused(str(at), error))
        else:
            commands.append(command)
            answers.append(Elected(at, command.leader))
    return Decision(tuple(commands), tuple(answers))


def unclean(image: Image, commands: Sequence[Command]) -> list[TopicPartition]:
    """Of commands decided on `image`: the partitions that may lose records by them."""
    found: list[TopicPartition] = []
    registered = [command for command in commands if isinstance(command, RegisterBroker)]
    lost = {command.broker for command in registered if _is_lost(image, command.broker, command.directory_id)}
    for command in commands:
        # The end of a movement may give the lead to one that comes into sync by the same command.
        if isinstance(command, ChangePartition) and command.leader != NO_LEADER and command.movement is None:
            topic = image.topics_by_id.get(command.topic_id)
            if topic is None or command.partition >= len(topic.partitions):
                continue  # it is new, and has no records yet
            before = topic.partitions[command.partition]
            complete = {*before.isr, *before.elr} - lost
            if command.leader_epoch != before.leader_epoch and command.leader not in complete:
                found.append(TopicPartition(topic.name, command.partition))
    return found


def _is_lost(image: Image, broker: int, directory_id: bytes) -> bool:
    """Whether a broker that comes with this directory has lost the one it had."""
    before = image.brokers.get(broker)
    return before is not None and b"" not in (before.directory_id, directory_id) and before.directory_id != directory_id


def _elect(image: Image, kind: Election, at: TopicPartition) -> ChangePartition:
    topic, partition = image.topics.get(at.topic), image.partition(at)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {at}; describe the topic to see those it has")
    if kind is Election.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded(f"{at} is led by broker {preferred}, its preferred one, already")
        if preferred not in partition.isr or not image.is_staying(preferred):
            raise PreferredLeaderNotAvailable(
                f"{at} prefers broker {preferred}, which is down or not in sync; in sync are {list(partition.isr)}"
            )
        return led_by(image, topic, at.partition, preferred)
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded(f"{at} is led by broker {partition.leader} already")
    live = [replica for replica in partition.replicas if image.is_live(replica)]
    if not live:
        raise EligibleLeadersNotAvailable(
            f"none of {at}'s replicas {list(partition.replicas)} is up; start one of them"
        )
    leader = best_leader(image, topic, partition)
    return led_by(image, topic, at.partition, live[0] if leader == NO_LEADER else leader)


def _on_return(
    image: Image, topic: Topic, number: int, broker: int, *, lost: bool, doubtful: bool
) -> ChangePartition | None:
    partition = topic.partitions[number]
    if broker not in partition.replicas:
        return None
    lost = lost or (doubtful and bool({*partition.isr, *partition.elr} - {broker}))
    if lost and broker in (*partition.isr, *partition.elr):
        return _without(image, topic, number, broker, lost=True)
    if partition.leader == broker and len(partition.replicas) > 1:
        return change(image, topic, number, leader=broker, isr=partition.isr, raise_epoch=True)
    if partition.leader == NO_LEADER and best_leader(image, topic, partition) == broker:
        return led_by(image, topic, number, broker)
    return None


def _without(image: Image, topic: Topic, number: int, broker: int, *, lost: bool = False) -> ChangePartition | None:
    """The partition with `broker` no longer in sync; another leads where it led. Only a lost disk ends eligibility."""
    partition = topic.partitions[number]
    if broker not in partition.isr and not (lost and broker in partition.elr):
        return None
    gone = (broker,) if lost else ()
    isr = tuple(replica for replica in partition.isr if replica != broker)
    if partition.leader not in (broker, NO_LEADER):
        return change(image, topic, number, leader=partition.leader, isr=isr, lost=gone)
    left = _left(partition, broker, isr, lost=lost)
    leader = best_leader(image, topic, left)
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
    return change(image, topic, number, leader=leader, isr=isr, lost=gone, raise_epoch=lost)


def _left(partition: Partition, broker: int, isr: tuple[int, ...], *, lost: bool) -> Partition:
    """Who could lead now. One with an empty disk comes last even where anybody may."""
    others = tuple(replica for replica in partition.replicas if replica != broker)
    elr = tuple(replica for replica in partition.elr if replica != broker)
    if lost:
        return replace(partition, replicas=(*others, broker), isr=isr, elr=elr)
    return replace(partition, isr=isr, elr=(*elr, broker))
