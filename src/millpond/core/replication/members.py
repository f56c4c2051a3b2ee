"""The part of the metadata image that the leader of a partition needs, as one value.

One value, because its parts belong together: a leader that learned of a smaller ISR before it learned how many must be
in sync would move its high watermark too far. Pure. Made by the driver whenever the image changes.
"""

from collections.abc import Mapping

from millpond.core.metadata.agreed import insync_min
from millpond.core.metadata.image import Image
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    insync_min: int
    epochs: Mapping[int, int]
    """Broker epochs of the replicas that are up and stay up, and of the leader even if it is about to go."""


def members_of(image: Image, at: TopicPartition) -> Members:
    topic, partition = image.topics[at.topic], image.partition(at)
    assert partition is not None, at
    able = [each for each in partition.replicas if image.is_staying(each)]
    if image.is_live(partition.leader):
        able.append(partition.leader)
    return Members(
        replicas=partition.replicas,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        insync_min=insync_min(image, topic, partition),
        epochs={each: image.brokers[each].epoch for each in able},
    )
