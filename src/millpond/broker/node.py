"""One broker's parts, as every operation and front door finds them.

Made by app; nothing here decides anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.broker.drivers.groups import GroupCoordinator
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.core.metadata.image import Image
from millpond.model.ports import Clock, Rng


@dataclass(slots=True, kw_only=True)
class Node:
    node_id: int
    cluster_id: str
    static: Mapping[str, str]
    """Settings of the broker, by Kafka's names; only those that are set."""
    clock: Clock
    rng: Rng
    metadata: MetadataLog
    partitions: PartitionTable
    producer_ids: ProducerIds
    groups: GroupCoordinator

    def find(self, topic: str, topic_id: bytes, partition: int) -> Partition | None:
        """By id where there is one: then the name is empty."""
        if topic:
            return self.partitions.named(topic, partition)
        return self.partitions.with_id(topic_id, partition)

    @property
    def image(self) -> Image:
        return self.metadata.image
