"""Settings that the leader of a partition and whoever elects its leaders must see alike.

A replica stays eligible because the high watermark stands still while too few are in sync. So both sides must have the
same idea of "too few": it comes from the image alone, never from one broker's own settings. A broker's own value
becomes the cluster's when it is the first to start (`agree`).
Pure. Read by the rules here and by core/replication/members.py.
"""

from collections.abc import Iterable, Mapping

from millpond.core.metadata.commands import (
    ALL_BROKERS,
    Command,
    CreateTopic,
    Pairs,
    SetBrokerConfigs,
    SetTopicConfigs,
)
from millpond.core.metadata.config_keys import Value, parse
from millpond.core.metadata.image import Image, Partition, Topic
from millpond.core.metadata.topic_configs import TOPIC_KEYS, text_of

INSYNC_MIN = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
AGREED = (INSYNC_MIN, UNCLEAN)


def insync_min(image: Image, topic: Topic, partition: Partition) -> int:
    """How many must be in sync; never more than there are, be it before or after a movement."""
    wanted = _value(INSYNC_MIN, image, topic)
    assert isinstance(wanted, int)
    before, after = len(partition.replicas) - len(partition.adding), len(partition.target)
    return min(wanted, before, after) or 1


def may_elect_unclean(image: Image, topic: Topic) -> bool:
    return _value(UNCLEAN, image, topic) is True


def allowed_unclean(image: Image, commands: Iterable[Command]) -> list[str]:
    """Of commands decided on `image`: by name the topics, or all of them, that may lose records from then on."""
    found: list[str] = []
    for command in commands:
        match command:
            case CreateTopic(name=name, configs=configs) if _allows_unclean(configs):
                found.append(name)
            case SetTopicConfigs(topic_id=topic_id, values=values) if _allows_unclean(values):
                found.append(image.topics_by_id[topic_id].name)
            case SetBrokerConfigs(values=values) if _allows_unclean(values):
                found.append("all topics")
    return found


def _allows_unclean(configs: Pairs) -> bool:
    return any(name == UNCLEAN and parse(TOPIC_KEYS[name], text) is True for name, text in configs)


def agree(image: Image, static: Mapping[str, str]) -> tuple[Command, ...]:
    """When a broker starts: what its own settings say holds for the cluster, unless something does already."""
    shared = image.configs_of_broker(ALL_BROKERS)
    values = tuple((name, static[name]) for name in AGREED if name in static and name not in shared)
    return (SetBrokerConfigs(broker=ALL_BROKERS, values=values),) if values else ()


def _value(name: str, image: Image, topic: Topic) -> Value:
    key = TOPIC_KEYS[name]
    return parse(key, text_of(key, topic.configs, image.configs_of_broker(ALL_BROKERS)))
