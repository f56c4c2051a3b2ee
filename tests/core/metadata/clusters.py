"""Images to start from, chance that repeats, and the promises of image.py as one check."""

from random import Random

from millpond.core.metadata.commands import NO_LEADER, Command, Endpoint
from millpond.core.metadata.elections import register_broker
from millpond.core.metadata.image import EMPTY, Image, apply_all
from millpond.core.metadata.internal_topics import folded

STATIC: dict[str, str] = {}


def chance(seed: int = 7) -> Random:
    return Random(seed)


def cluster(brokers: int = 1, *, racks: tuple[str | None, ...] = (None,)) -> Image:
    image = EMPTY
    for broker in range(1, brokers + 1):
        endpoints = (Endpoint("PLAINTEXT", f"host-{broker}", 9092),)
        rack = racks[(broker - 1) % len(racks)]
        image = apply_all(register_broker(image, broker, endpoints=endpoints, rack=rack), image)
    return image


def after(image: Image, commands: tuple[Command, ...]) -> Image:
    image = apply_all(commands, image)
    check_invariants(image)
    return image


def check_invariants(image: Image) -> None:
    assert {topic.topic_id for topic in image.topics.values()} == set(image.topics_by_id)
    assert len(image.topics) == len(image.topics_by_id)
    assert image.names_folded == {folded(name): name for name in image.topics}
    for name, topic in image.topics.items():
        assert topic.name == name
        assert image.topics_by_id[topic.topic_id] is topic
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.replicas
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert set(partition.isr) | set(partition.elr) <= set(partition.replicas)
            assert not set(partition.isr) & set(partition.elr)
            assert partition.leader == NO_LEADER or partition.leader in partition.isr
            assert partition.leader == NO_LEADER or image.is_live(partition.leader)
            assert partition.leader_epoch >= 0
