"""Who leads: when a broker comes, when it is taken for dead, and when somebody asks.

Invariant: a leader is live and in sync, unless an unclean election was asked for. The last replica
in sync stays in sync though it is dead, because it alone is known to have everything. Every change of leader raises the
leader epoch.
Pure. Driven by broker/drivers/metadata.py and the operation behind ElectLeaders.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from millpond.core.metadata.commands import (
    NO_LEADER,
    ChangePartition,
    Command,
    Endpoint,
    FenceBroker,
    RegisterBroker,
)
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.image import Image, Partition, Topic, apply
from millpond.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    RequestError,
    UnknownTopicOrPartition,
)
from millpond.model.ids import LeaderEpoch, TopicPartition


class Election(IntEnum):
    """Numbered as ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Elected:
    at: TopicPartition
    leader: int


def register_broker(
    image: Image, broker: int, *, endpoints: tuple[Endpoint, ...], rack: str | None = None
) -> tuple[Command, ...]:
    """When it starts: it is live again, and leads what has no leader and has it in sync."""
    before = image.brokers.get(broker)
    epoch = 0 if before is None else before.epoch + 1
    register = RegisterBroker(broker=broker, epoch=epoch, endpoints=endpoints, rack=rack)
    after = apply(register, image)
    led = (
        _led_by(topic, number, broker, isr=partition.isr)
        for topic, number, partition in _partitions(after)
        if partition.leader == NO_LEADER and broker in partition.isr
    )
    return (register, *led)


def fence_broker(image: Image, broker: int) -> tuple[Command, ...]:
    """When it is taken for dead: others lead what it led, where others are in sync."""
    if not image.is_live(broker):
        return ()
    fence = FenceBroker(broker=broker)
    after = apply(fence, image)
    left = (
        _without(after, topic, number, broker)
        for topic, number, partition in _partitions(after)
        if broker in partition.isr
    )
    return (fence, *(command for command in left if command is not None))


def elect_leaders(image: Image, kind: Election, asked: Sequence[TopicPartition] | None = None) -> Decision[Elected]:
    """For the partitions asked, or all. Where nothing is to be done the answer is `ElectionNotNeeded`."""
    every = (TopicPartition(topic.name, number) for topic, number, _ in _partitions(image))
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


def _elect(image: Image, kind: Election, at: TopicPartition) -> ChangePartition:
    topic, partition = image.topics.get(at.topic), image.partition(at)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {at}; describe the topic to see those it has")
    if kind is Election.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded(f"{at} is led by broker {preferred}, its preferred one, already")
        if preferred not in partition.isr or not image.is_live(preferred):
            raise PreferredLeaderNotAvailable(
                f"{at} prefers broker {preferred}, which is down or not in sync; in sync are {list(partition.isr)}"
            )
        return _led_by(topic, at.partition, preferred, isr=partition.isr)
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded(f"{at} is led by broker {partition.leader} already")
    live = [replica for replica in partition.replicas if image.is_live(replica)]
    if not live:
        raise EligibleLeadersNotAvailable(
            f"none of {at}'s replicas {list(partition.replicas)} is up; start one of them"
        )
    in_sync = [replica for replica in live if replica in partition.isr]
    leader = (in_sync or live)[0]
    return _led_by(topic, at.partition, leader, isr=partition.isr if in_sync else (leader,))


def _led_by(topic: Topic, number: int, leader: int, *, isr: tuple[int, ...]) -> ChangePartition:
    before = topic.partitions[number]
    epoch = before.leader_epoch if leader == before.leader else LeaderEpoch(before.leader_epoch + 1)
    return ChangePartition(topic_id=topic.topic_id, partition=number, leader=leader, leader_epoch=epoch, isr=isr)


def _without(image: Image, topic: Topic, number: int, broker: int) -> ChangePartition | None:
    partition = topic.partitions[number]
    isr = tuple(replica for replica in partition.isr if replica != broker) or partition.isr
    if partition.leader != broker:
        return _led_by(topic, number, partition.leader, isr=isr) if isr != partition.isr else None
    able = [replica for replica in partition.replicas if replica in isr and image.is_live(replica)]
    return _led_by(topic, number, able[0] if able else NO_LEADER, isr=isr)


def _partitions(image: Image) -> Iterator[tuple[Topic, int, Partition]]:
    for _, topic in sorted(image.topics.items()):
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition
