"""Where queue groups are, as an administrator sees and changes it: the first message that is not done with.

A group is moved by a document in the place of what was kept: whoever leads the partition finds itself fenced, and loads
that one. Driven by the front doors, at the group's coordinator.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millpond.broker.drivers.queue_partition import KIND
from millpond.broker.drivers.states import StateKey
from millpond.broker.node import Node
from millpond.core.delivery.encoding import encode_whole, first_unfinished
from millpond.core.delivery.ledger import Ledger
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.groups.descriptions import ShareDescription
from millpond.core.metadata.config_keys import INT64_MAX
from millpond.core.metadata.image import Topic
from millpond.model.errors import (
    FencedState,
    GroupNotEmpty,
    GroupNotFound,
    MillpondError,
    NotLeader,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)


class Place(NamedTuple):
    topic: Topic
    partition: int
    start: int
    lag: int
    """-1 where another broker knows."""


async def describe(node: Node, group: str) -> list[Place]:
    """All that is kept of the group, by topic and partition."""
    kept = await node.states.find(KIND, group=group)
    if not kept and node.groups.describe(group) is None:
        raise GroupNotFound(f"there is no share group {group[:80]!r}")
    places = []
    for key, document in kept.items():
        topic = node.image.topics_by_id.get(key.topic_id)
        if topic is not None:
            start = first_unfinished(document)
            places.append(Place(topic, key.partition, start, _lag(node, topic.name, key.partition, start)))
    return sorted(places, key=lambda each: (each.topic.name, each.partition))


def _lag(node: Node, topic: str, partition: int, start: int) -> int:
    led = node.partitions.named(topic, partition)
    return max(0, led.high_watermark - start) if led is not None and led.is_led_here else -1


def require_empty(node: Node, group: str) -> None:
    found = node.groups.describe(group)
    if found is not None and not isinstance(found, ShareDescription):
        raise GroupNotFound(f"{group[:80]!r} is no share group")
    if found is not None and found.members:
        raise GroupNotEmpty(f"{group[:80]!r} has {len(found.members)} members; stop them first")


async def move(node: Node, group: str, topic: str, partition: int, start: int) -> None:
    """What was held, counted or acknowledged before is forgotten."""
    known = node.image.topics.get(topic)
    if known is None or not 0 <= partition < len(known.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {partition} of {topic[:80]!r}")
    led = node.partitions.named(topic, partition)
    end = led.high_watermark if led is not None and led.is_led_here else INT64_MAX
    if not 0 <= start <= end:
        raise OffsetOutOfRange(f"{start} is no offset of {topic}-{partition}; allowed are 0 to {end}, where it ends")
    key = StateKey(KIND, group, known.topic_id, partition)
    epoch = known.partitions[partition].leader_epoch
    document = encode_whole(Ledger(DeliverySettings(), node.rng, start=start))
    try:
        await node.states.load(key, epoch)
        await node.states.keep(key, epoch, document, whole=True)
    except FencedState as error:
        raise NotLeader(f"the queue on {topic}-{partition} is being loaded by its leader; try again") from error
    await _tell_leader(node, key, known)


async def _tell_leader(node: Node, key: StateKey, topic: Topic) -> None:
    """It would notice only when it next has something to keep."""
    leader = topic.partitions[key.partition].leader
    if leader == node.node_id or node.elsewhere is None:
        node.queues.reload(key.group, key.topic_id, key.partition)
    elif leader >= 0:
        await node.elsewhere.depths(leader, key.group, key.topic_id, [key.partition], reload=True)


async def forget(node: Node, group: str, topics: Iterable[str]) -> dict[str, MillpondError | None]:
    answers: dict[str, MillpondError | None] = {}
    for name in topics:
        topic = node.image.topics.get(name)
        if topic is None:
            answers[name] = UnknownTopicOrPartition(f"there is no topic {name[:80]!r}")
            continue
        for key in await node.states.find(KIND, group=group, topic_id=topic.topic_id):
            await node.states.forget(key)
            await _tell_leader(node, key, topic)
        answers[name] = None
    return answers


async def forget_all(node: Node, group: str) -> bool:
    """Everything that is kept of its queues; whether there was anything."""
    kept = await node.states.find(KIND, group=group)
    await node.states.forget_group(KIND, group)
    for key in kept:
        topic = node.image.topics_by_id.get(key.topic_id)
        if topic is not None:
            await _tell_leader(node, key, topic)
    return bool(kept)
