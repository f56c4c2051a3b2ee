"""Settings as DescribeConfigs answers them: the value that holds, where it comes from, and what it would be otherwise.

Pure. Driven by the operation behind DescribeConfigs, and by controller.py for what CreateTopics answers.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum

from millpond.core.metadata.broker_configs import BROKER_KEYS, BrokerLayers
from millpond.core.metadata.config_keys import ConfigKey, ConfigType
from millpond.core.metadata.group_configs import GROUP_KEYS
from millpond.core.metadata.topic_configs import TOPIC_KEYS
from millpond.model.values import dataclass


class ConfigSource(IntEnum):
    """Numbered as DescribeConfigs numbers them."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    """Never here: no setting in the tables is a secret."""

    synonyms: tuple[ConfigSynonym, ...]
    """Every layer that has a value, the one that holds first."""

    type: ConfigType
    documentation: str

    @property
    def is_default(self) -> bool:
        """What versions of DescribeConfigs before sources ask."""
        return self.source is ConfigSource.DEFAULT


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerLayers, names: Collection[str] | None = None
) -> tuple[ConfigEntry, ...]:
    """All settings, or those of `names` that exist; in the order of their names."""
    wanted = sorted(TOPIC_KEYS.keys() if names is None else TOPIC_KEYS.keys() & set(names))
    return tuple(_own_entry(TOPIC_KEYS[name], ConfigSource.TOPIC, overrides, broker) for name in wanted)


def describe_group(
    overrides: Mapping[str, str], broker: BrokerLayers, names: Collection[str] | None = None
) -> tuple[ConfigEntry, ...]:
    wanted = sorted(GROUP_KEYS.keys() if names is None else GROUP_KEYS.keys() & set(names))
    return tuple(_own_entry(GROUP_KEYS[name], ConfigSource.GROUP, overrides, broker) for name in wanted)


def describe_broker(broker: BrokerLayers, names: Collection[str] | None = None) -> tuple[ConfigEntry, ...]:
    wanted = sorted(BROKER_KEYS.keys() if names is None else BROKER_KEYS.keys() & set(names))
    return tuple(_entry(BROKER_KEYS[name], _of_broker(BROKER_KEYS[name], name, broker)) for name in wanted)


def describe_shared(broker: BrokerLayers, names: Collection[str] | None = None) -> tuple[ConfigEntry, ...]:
    """Of all brokers: only what was set for all of them, as Kafka answers for a broker without a name."""
    wanted = sorted(broker.shared.keys() & BROKER_KEYS.keys() & set(broker.shared if names is None else names))
    return tuple(
        _entry(BROKER_KEYS[name], [ConfigSynonym(name, broker.shared[name], ConfigSource.ALL_BROKERS)])
        for name in wanted
    )


def _own_entry(key: ConfigKey, source: ConfigSource, overrides: Mapping[str, str], broker: BrokerLayers) -> ConfigEntry:
    synonyms = _of_broker(key, key.broker_name, broker)
    if key.name in overrides:
        synonyms.insert(0, ConfigSynonym(key.name, overrides[key.name], source))
    return _entry(key, synonyms)


def _of_broker(key: ConfigKey, name: str, broker: BrokerLayers) -> list[ConfigSynonym]:
    found = (
        (broker.own, ConfigSource.BROKER),
        (broker.shared, ConfigSource.ALL_BROKERS),
        (broker.static, ConfigSource.STATIC),
    )
    synonyms = [ConfigSynonym(name, values[name], source) for values, source in found if name in values]
    return [*synonyms, ConfigSynonym(name, key.default, ConfigSource.DEFAULT)]


def _entry(key: ConfigKey, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        read_only=not key.dynamic,
        is_sensitive=False,
        synonyms=tuple(synonyms),
        type=key.type,
        documentation=key.about,
    )
