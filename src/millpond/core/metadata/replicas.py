"""Which replicas are in sync, as the leader of a partition asks for it.

Invariant: only the leader of this moment changes the ISR, from the state it knows (partition epoch), and only brokers
that are up, stay, and have not restarted since the leader heard of them come in or stay in. Refusals are Kafka's.
Pure. Driven by the leader's driver through the metadata log, which evaluates the rule on the newest image.
"""

from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.image import Image, Partition, Topic
from millpond.core.metadata.partition_changes import change, in_order
from millpond.core.metadata.reassignments import completed
from millpond.model.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    RequestError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millpond.model.ids import LeaderEpoch, topic_id_text
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrAsked:
    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Brokers, and the broker epochs the leader knows them by."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """Also told where the ISR stays as it was: the partition epoch is higher in any case."""

    isr: tuple[int, ...]
    partition_epoch: int


def change_isr(image: Image, asked: IsrAsked) -> Decision[IsrChanged]:
    subject = f"partition {asked.partition} of {topic_id_text(asked.topic_id)}"
    try:
        topic, partition = _found(image, asked)
        _check_asker(asked, partition)
        _check_isr(image, asked, partition)
    except RequestError as error:
        return Decision((), (Refused(subject, error),))
    isr = in_order(partition.replicas, [broker for broker, _ in asked.isr])
    command = completed(image, topic, asked.partition, isr) or change(
        image, topic, asked.partition, leader=partition.leader, isr=isr
    )
    return Decision((command,), (IsrChanged(command.isr, command.partition_epoch),))


def _found(image: Image, asked: IsrAsked) -> tuple[Topic, Partition]:
    topic = image.topics_by_id.get(asked.topic_id)
    if topic is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id_text(asked.topic_id)}")
    if not 0 <= asked.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"topic {topic.name!r} has no partition {asked.partition}")
    return topic, topic.partitions[asked.partition]


def _check_asker(asked: IsrAsked, partition: Partition) -> None:
    if asked.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"leader epoch is {partition.leader_epoch}, the request says {asked.leader_epoch}")
    if asked.leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(f"leader epoch is {partition.leader_epoch}, the request says {asked.leader_epoch}")
    if asked.leader != partition.leader:
        raise InvalidRequest(f"broker {asked.leader} does not lead; broker {partition.leader} does")
    if asked.partition_epoch != partition.partition_epoch:
        raise InvalidUpdateVersion(
            f"partition epoch is {partition.partition_epoch}, the request says {asked.partition_epoch}; look again"
        )


def _check_isr(image: Image, asked: IsrAsked, partition: Partition) -> None:
    brokers = [broker for broker, _ in asked.isr]
    if len(set(brokers)) != len(brokers) or not set(brokers) <= set(partition.replicas):
        raise InvalidRequest(f"in sync shall be {brokers}; allowed are replicas, each once: {partition.replicas}")
    if asked.leader not in brokers:
        raise InvalidRequest(f"in sync shall be {brokers}, without the leader {asked.leader}; a leader stays in sync")
    for broker, epoch in asked.isr:
        # A leader that goes down still serves until the others have taken over.
        able = image.is_staying(broker) or (broker == asked.leader and image.is_live(broker))
        if not able or image.brokers[broker].epoch != epoch:
            raise IneligibleReplica(f"broker {broker} with epoch {epoch} is down, going down, or has restarted since")
