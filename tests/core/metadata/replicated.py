"""One topic `t` on several brokers, and short words for what happens to it."""

from millpond.core.metadata.commands import Endpoint
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Answer, Decision, Refused
from millpond.core.metadata.elections import fence_broker, register_broker
from millpond.core.metadata.image import Image, Partition
from millpond.core.metadata.replicas import IsrAsked, IsrChanged, change_isr
from millpond.model.ids import TopicPartition
from tests.core.metadata.clusters import STATIC, after, chance, cluster

AT = TopicPartition("t", 0)
DISK, OTHER_DISK = b"d" * 16, b"o" * 16


def topic_on(*replicas: int, brokers: int = 4, insync_min: int = 1, unclean: bool = False) -> Image:
    image = cluster(brokers)
    for broker in range(1, brokers + 1):
        image = back(image, broker, DISK)
    configs = (("min.insync.replicas", str(insync_min)), ("unclean.leader.election.enable", str(unclean).lower()))
    topic = NewTopic(name="t", assignments=((0, replicas),), configs=configs)
    return after(image, create_topics(image, [topic], static=STATIC, rng=chance()).commands)


def partition(image: Image) -> Partition:
    found = image.partition(AT)
    assert found is not None
    return found


def back(image: Image, broker: int, directory_id: bytes = DISK) -> Image:
    endpoints = (Endpoint("P", "h", 1),)
    return after(image, register_broker(image, broker, endpoints=endpoints, directory_id=directory_id))


def dead(image: Image, *brokers: int) -> Image:
    for broker in brokers:
        image = after(image, fence_broker(image, broker))
    return image


def asked(image: Image, *isr: int) -> IsrAsked:
    """As the leader of this moment would ask."""
    now = partition(image)
    return IsrAsked(
        topic_id=image.topics["t"].topic_id,
        partition=0,
        leader=now.leader,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=tuple((broker, image.brokers[broker].epoch) for broker in isr),
    )


def in_sync(image: Image, *isr: int) -> Image:
    decision: Decision[IsrChanged] = change_isr(image, asked(image, *isr))
    assert not isinstance(decision.answers[0], Refused), decision
    return after(image, decision.commands)


def code(decision: Decision[Answer]) -> int:
    [answer] = decision.answers
    assert isinstance(answer, Refused)
    assert decision.commands == ()
    return answer.error.kafka_code
