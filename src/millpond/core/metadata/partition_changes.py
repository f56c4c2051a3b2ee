"""One change of one partition, whole: who leads, who is in sync, and who therefore stays eligible.

Invariant: a replica that leaves the ISR is in the ELR afterwards exactly if fewer are in sync than the topic asks for
and its disk is not lost. The leader epoch is raised whenever another leads, or the same one from another log, or a
replica is dropped; the partition epoch always. Every rule makes its changes here. Pure.
"""

from collections.abc import Collection, Iterator

from millpond.core.metadata.agreed import insync_min, may_elect_unclean
from millpond.core.metadata.commands import NO_LEADER, ChangePartition, Movement
from millpond.core.metadata.image import Image, Partition, Topic
from millpond.model.ids import LeaderEpoch


def change(
    image: Image,
    topic: Topic,
    number: int,
    *,
    leader: int,
    isr: Collection[int],
    movement: Movement | None = None,
    lost: Collection[int] = (),
    raise_epoch: bool = False,
) -> ChangePartition:
    """`lost` have nothing any more of what they had. A leader that was not in sync leads from an unclean election."""
    before = topic.partitions[number]
    moved = movement or Movement(before.replicas, before.adding, before.removing)
    after = Partition(
        moved.replicas, leader, before.leader_epoch, in_order(moved.replicas, isr), (), 0, moved.adding, moved.removing
    )
    complete = before.isr + before.elr
    if leader != NO_LEADER and (leader not in complete or leader in lost):
        complete = ()  # unclean: nobody else is known to have what this leader has
    enough = len(after.isr) >= insync_min(image, topic, after)
    eligible = [] if enough else [each for each in complete if each not in after.isr and each not in lost]
    # A word from a replica that was dropped must not be taken for one from the same replica when it comes again.
    dropped = not set(before.replicas) <= set(moved.replicas)
    raised = raise_epoch or dropped or leader != before.leader
    return ChangePartition(
        topic_id=topic.topic_id,
        partition=number,
        leader=leader,
        leader_epoch=LeaderEpoch(before.leader_epoch + raised),
        isr=after.isr,
        elr=in_order(moved.replicas, eligible),
        partition_epoch=before.partition_epoch + 1,
        movement=movement,
    )


def best_leader(image: Image, topic: Topic, partition: Partition) -> int:
    """The first live replica in sync, else the first eligible one, else any where the topic allows it, else none.

    Any but those on their way in, which may have nothing at all.
    """
    ways = [partition.isr, partition.elr]
    if may_elect_unclean(image, topic):
        ways.append(settled(partition))
    for way in ways:
        able = [replica for replica in partition.replicas if replica in way and image.is_live(replica)]
        staying = [replica for replica in able if image.is_staying(replica)]
        if able:
            return (staying or able)[0]
    return NO_LEADER


def led_by(image: Image, topic: Topic, number: int, leader: int) -> ChangePartition:
    """A replica in sync leads with the others; any other one begins alone."""
    isr = topic.partitions[number].isr
    return change(image, topic, number, leader=leader, isr=isr if leader in isr else (leader,))


def partitions_of(image: Image) -> Iterator[tuple[Topic, int, Partition]]:
    for _, topic in sorted(image.topics.items()):
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition


def settled(partition: Partition) -> tuple[int, ...]:
    """The replicas without those that are on their way in."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def in_order(replicas: tuple[int, ...], some: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica in some)
