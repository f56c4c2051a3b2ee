"""One broker's parts, as every operation and front door finds them.

Made by app; nothing here decides anything.
"""

from collections.abc import Mapping
from dataclasses import field

from millpond.broker.drivers.delays import DelayKeeper
from millpond.broker.drivers.departures import Departures
from millpond.broker.drivers.groups import GroupCoordinator
from millpond.broker.drivers.links import Links
from millpond.broker.drivers.listed import ListedBrokers
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.broker.drivers.queue_links import QueueLinks
from millpond.broker.drivers.queues import Queues
from millpond.broker.drivers.states import States
from millpond.core.cluster.announcement import Ignored
from millpond.core.delivery.sessions import ShareSessions
from millpond.core.metadata.image import Image
from millpond.model.errors import MillpondError, NotLeader, UnknownTopicId, UnknownTopicOrPartition
from millpond.model.ids import TopicPartition, topic_id_text
from millpond.model.ports import Clock, Rng
from millpond.model.values import dataclass


@dataclass(slots=True, kw_only=True)
class Node:
    node_id: int
    cluster_id: str
    static: Mapping[str, str]
    """Settings of the broker, by Kafka's names; only those that are set."""
    clock: Clock
    rng: Rng
    metadata: MetadataLog
    listed: ListedBrokers
    partitions: PartitionTable
    producer_ids: ProducerIds
    groups: GroupCoordinator
    states: States
    queues: Queues
    share_sessions: ShareSessions
    delays: DelayKeeper
    fetch_bytes_max: int
    """The most one fetch answers, whatever it asks for."""
    elsewhere: QueueLinks | None = None
    """Queues of partitions that other brokers lead; None for a broker that is alone."""
    links: Links | None = None
    """To other brokers; None for one that is alone."""
    datagrams_ignored: Mapping[Ignored, int] = field(default_factory=dict)
    """Where brokers announce themselves: what else arrived there."""
    departures: Departures | None = None
    """None for a broker that is alone, or does not look whether others are gone."""
    is_stopping: bool = False

    def find(self, topic: str, topic_id: bytes, partition: int) -> Partition | MillpondError:
        """By id where there is one, and then the name is empty; or why there is none."""
        found = self.partitions.named(topic, partition) if topic else self.partitions.with_id(topic_id, partition)
        if found is not None and found.leading is not None:
            return found
        known = self.image.topics_by_id.get(topic_id)
        failure = self.partitions.failure(topic or (known.name if known else ""), partition)
        if failure is not None:
            return failure
        if not topic and topic_id not in self.image.topics_by_id:
            return UnknownTopicId(f"there is no topic with id {topic_id_text(topic_id)}; ask for metadata by name")
        name = topic or self.image.topics_by_id[topic_id].name
        if self.image.partition(TopicPartition(name, partition)) is not None:
            return NotLeader(f"this broker does not lead partition {partition} of {name}; ask for metadata")
        return UnknownTopicOrPartition(f"there is no partition {partition} of {name}; ask for metadata")

    @property
    def controller_id(self) -> int:
        """-1 where nobody is known to be."""
        leader = self.metadata.quorum.leader
        return -1 if leader is None else leader

    @property
    def image(self) -> Image:
        return self.metadata.image
