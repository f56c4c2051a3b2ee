"""Moving partitions to other brokers: begun, listed, cancelled, and completed when the new replicas are in sync.

While it moves, a partition has the replicas it shall have, in the order wanted, and then those that will go. It is
done as soon as every added replica is in sync and enough of the wanted ones are; then those that go are dropped, and
another leads if one of them led.
Invariant: at every step somebody who stays is in sync, so nothing acknowledged is ever only on those that go.
Pure. Driven by the operations behind AlterPartitionReassignments and ListPartitionReassignments, and by replicas.py.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from millpond.core.metadata.agreed import insync_min
from millpond.core.metadata.commands import (
    NO_LEADER,
    REPLICAS_PER_PARTITION_MAX,
    ChangePartition,
    Command,
    Movement,
    Replicas,
)
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.image import Image, Partition, Topic, apply
from millpond.core.metadata.partition_changes import best_leader, change, in_order, partitions_of, settled
from millpond.model.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    RequestError,
    UnknownTopicOrPartition,
)
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Reassign:
    at: TopicPartition
    replicas: Replicas | None
    """Where it shall be, the preferred leader first. None cancels what is under way."""


@dataclass(frozen=True, slots=True)
class Reassigned:
    at: TopicPartition


@dataclass(frozen=True, slots=True)
class Reassignment:
    at: TopicPartition
    replicas: Replicas
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def reassign(
    image: Image, requests: Sequence[Reassign], *, allow_replication_change: bool = True
) -> Decision[Reassigned]:
    commands: list[Command] = []
    answers: list[Reassigned | Refused] = []
    for request in requests:
        try:
            command = _reassign(image, request, allow_replication_change=allow_replication_change)
        except RequestError as error:
            answers.append(Refused(str(request.at), error))
        else:
            image = apply(command, image)
            commands.append(command)
            answers.append(Reassigned(request.at))
    return Decision(tuple(commands), tuple(answers))


def list_reassignments(image: Image, asked: Collection[TopicPartition] | None = None) -> list[Reassignment]:
    """Those under way, of the partitions asked or of all."""
    return [
        Reassignment(at, partition.replicas, partition.adding, partition.removing)
        for topic, number, partition in partitions_of(image)
        if partition.moving and (asked is None or TopicPartition(topic.name, number) in asked)
        for at in [TopicPartition(topic.name, number)]
    ]


def completed(image: Image, topic: Topic, number: int, isr: Collection[int]) -> ChangePartition | None:
    """The end of a movement, if with this ISR it can end."""
    before = topic.partitions[number]
    if not before.moving:
        return None
    return _ended(image, topic, number, Movement(before.target), isr, added=before.adding)


def _reassign(image: Image, request: Reassign, *, allow_replication_change: bool) -> ChangePartition:
    topic, partition = image.topics.get(request.at.topic), image.partition(request.at)
    if topic is None or partition is None:
        raise UnknownTopicOrPartition(f"there is no partition {request.at}; describe the topic to see those it has")
    if request.replicas is None:
        return _cancel(image, topic, request.at, partition)
    _check_target(image, request.at, partition, request.replicas)
    count = len(settled(partition))
    if not allow_replication_change and len(request.replicas) != count:
        raise InvalidReplicationFactor(
            f"{request.at} has {count} replicas and shall have {len(request.replicas)}; the request forbids that"
        )
    return _begin(image, topic, request.at, request.replicas)


def _check_target(image: Image, at: TopicPartition, partition: Partition, target: Replicas) -> None:
    union = {*target, *settled(partition)}
    if not target or len(set(target)) != len(target) or len(union) > REPLICAS_PER_PARTITION_MAX:
        raise InvalidReplicaAssignment(
            f"{at} shall be on brokers {list(target)[:40]}; allowed are 1 to {REPLICAS_PER_PARTITION_MAX}, each once, "
            "those it leaves included"
        )
    strangers = [each for each in target if each not in partition.replicas and not image.is_staying(each)]
    if strangers:
        live = [broker.broker for broker in image.staying_brokers()]
        raise InvalidReplicaAssignment(f"{at} shall be on brokers {strangers}, which are not up; up are {live}")


def _begin(image: Image, topic: Topic, at: TopicPartition, target: Replicas) -> ChangePartition:
    partition = topic.partitions[at.partition]
    removing = tuple(replica for replica in settled(partition) if replica not in target)
    adding = tuple(replica for replica in target if replica not in settled(partition))
    ended = _ended(image, topic, at.partition, Movement(target), partition.isr, added=adding)
    if ended is not None:
        return ended
    return _moved(image, topic, at, Movement((*target, *removing), adding, removing))


def _cancel(image: Image, topic: Topic, at: TopicPartition, partition: Partition) -> ChangePartition:
    if not partition.moving:
        raise NoReassignmentInProgress(f"{at} is not moving; there is nothing to cancel")
    return _moved(image, topic, at, Movement(settled(partition)))


def _moved(image: Image, topic: Topic, at: TopicPartition, movement: Movement) -> ChangePartition:
    """With other replicas. Those dropped at once are such as were on their way in."""
    before = topic.partitions[at.partition]
    isr = in_order(movement.replicas, before.isr)
    complete = before.isr or before.elr
    if complete and not in_order(movement.replicas, complete):
        raise InvalidReplicaAssignment(
            f"only {list(complete)} have all of {at}, and none of them would stay; wait until another is in sync"
        )
    leader = _leader_after(image, topic, before, movement.replicas, isr)
    return change(image, topic, at.partition, leader=leader, isr=isr, movement=movement)


def _ended(
    image: Image, topic: Topic, number: int, movement: Movement, isr: Collection[int], *, added: Collection[int]
) -> ChangePartition | None:
    before = topic.partitions[number]
    left = in_order(movement.replicas, isr)
    after = replace(before, replicas=movement.replicas, adding=(), removing=())
    if not set(added) <= set(left) or len(left) < insync_min(image, topic, after):
        return None
    leader = _leader_after(image, topic, before, movement.replicas, left)
    if leader == NO_LEADER:
        return None
    return change(image, topic, number, leader=leader, isr=left, movement=movement)


def _leader_after(image: Image, topic: Topic, before: Partition, replicas: Replicas, isr: tuple[int, ...]) -> int:
    if before.leader in isr:
        return before.leader
    able = best_leader(image, topic, replace(before, replicas=replicas, isr=isr, elr=()))
    return able if able in isr else NO_LEADER
