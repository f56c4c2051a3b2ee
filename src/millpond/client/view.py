"""What a client knows of the cluster: its brokers, and who leads which partition.

Invariant: a partition's leader is never replaced by one of an older epoch, however late an answer comes, unless the
topic was created anew. Pure. Driven by cluster.py, which asks for it.
"""

from dataclasses import field
from typing import NamedTuple

from millpond.model.addresses import Address
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass
from millpond.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NOBODY = -1


class Leader(NamedTuple):
    node: int
    epoch: int


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    """By number."""
    led: list[int] = field(default_factory=list)
    """The partitions that somebody leads now."""


class ClusterView:
    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        """By topic id."""
        self.cluster_id: str | None = None
        self.controller: int = NOBODY
        self.version = 0
        """Counts the answers."""

    def apply(self, answer: MetadataResponse) -> dict[str, int]:
        """Takes what was answered; the topics it had an error for, with its code."""
        self.version += 1
        if answer.brokers:
            self.brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
            self.racks = {each.node_id: each.rack for each in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller = answer.controller_id
        refused: dict[str, int] = {}
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                refused[name] = topic.error_code
                self.forget(name)
            else:
                self._learn(name, topic)
        return refused

    def _learn(self, name: str, topic: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
        if known is not None and known.topic_id == topic.topic_id:
            for number, before in enumerate(known.partitions[: len(partitions)]):
                if before.leader_epoch > partitions[number].leader_epoch:
                    partitions[number] = before
        elif known is not None:
            self.forget(name)
        led = [each.partition_index for each in partitions if each.leader_id != NOBODY]
        self.topics[name] = Topic(name, topic.topic_id, topic.is_internal, partitions, led)
        self.names[topic.topic_id] = name

    def forget(self, name: str) -> None:
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.names.pop(gone.topic_id, None)

    def leader_of(self, at: TopicPartition) -> Leader | None:
        """None where it is not known, or nobody leads."""
        topic = self.topics.get(at.topic)
        if topic is None or at.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[at.partition]
        if partition.leader_id == NOBODY or partition.leader_id not in self.brokers:
            return None
        return Leader(partition.leader_id, partition.leader_epoch)

    def forget_leader(self, at: TopicPartition, node: int) -> None:
        """`node` said that it does not lead it, or is not there: wait for news."""
        topic = self.topics.get(at.topic)
        if topic is not None and at.partition < len(topic.partitions):
            partition = topic.partitions[at.partition]
            if partition.leader_id == node:
                partition.leader_id = NOBODY
                topic.led = [each for each in topic.led if each != at.partition]
