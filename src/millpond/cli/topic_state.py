"""What a cluster says of one topic: its partitions, where they start and end, its settings.

Driven by topics.py.
"""

from dataclasses import asdict
from typing import Self

from millpond.client import Admin, TopicPartition
from millpond.model.ids import topic_id_text
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: str
    """As Kafka writes it."""
    internal: bool
    partitions: list[dict[str, object]]
    configs: dict[str, str | None]
    """Only what is not the default."""

    @classmethod
    async def look(cls, admin: Admin, name: str) -> Self:
        found = await admin.describe_topic(name)
        led = [TopicPartition(name, each.partition) for each in found.partitions if each.leader is not None]
        starts = await admin.offsets_at(dict.fromkeys(led, "earliest"))
        ends = await admin.offsets_at(dict.fromkeys(led, "latest"))
        partitions: list[dict[str, object]] = []
        for each in found.partitions:
            at = TopicPartition(name, each.partition)
            messages = ends[at] - starts[at] if at in ends else None
            partitions.append(asdict(each) | {"start": starts.get(at), "end": ends.get(at), "messages": messages})
        settings = await admin.topic_configs(name)
        return cls(
            name,
            topic_id_text(found.topic_id),
            found.is_internal,
            partitions,
            {key: each.value for key, each in settings.items() if not each.is_default},
        )

    def document(self) -> dict[str, object]:
        return asdict(self)
