"""Deciding on changes of settings: of a topic, of a group, of one broker, of all brokers; whole or item by item.

Invariant: what is accepted leaves the topic or group with settings that are allowed together. Where fewer replicas in
sync are asked for than before, the high watermark moves again: in the same decision nobody stays eligible who waited
for it.
Pure. Driven by the operations behind AlterConfigs and IncrementalAlterConfigs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from millpond.core.metadata.agreed import AGREED, INSYNC_MIN, insync_min
from millpond.core.metadata.broker_configs import BROKER_KEYS, check_dynamic, layers
from millpond.core.metadata.commands import (
    ALL_BROKERS,
    GROUP_ID_CHARS_MAX,
    Command,
    Pairs,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetTopicConfigs,
)
from millpond.core.metadata.config_keys import ConfigKey, ConfigType, split_list
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.group_configs import (
    GROUP_KEYS,
    check_group_configs,
    check_group_together,
    effective_group,
    text_of_group,
)
from millpond.core.metadata.image import Image, Topic, apply_all
from millpond.core.metadata.partition_changes import change, partitions_of
from millpond.core.metadata.topic_configs import TOPIC_KEYS, check_together, check_topic_configs, effective, text_of
from millpond.model.errors import InvalidRequest, InvalidSetting, PolicyViolation, RequestError, UnknownTopicOrPartition
from millpond.model.topic_names import check_topic_name
from millpond.model.values import dataclass


class ConfigOperation(IntEnum):
    """Numbered as IncrementalAlterConfigs numbers them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigItem:
    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class OfGroup(NamedTuple):
    group: str

    def __str__(self) -> str:
        return self.group


Target = str | int | OfGroup
"""A topic by name, a broker by id or `ALL_BROKERS`, or a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    target: Target
    items: tuple[ConfigItem, ...]
    replace: bool = False
    """Whole, as AlterConfigs: what is not named goes back to its default. Otherwise, incrementally, it stays."""


@dataclass(frozen=True, slots=True)
class Altered:
    target: Target


def alter_configs(
    image: Image, requests: Sequence[AlterConfigs], *, static: Mapping[str, str], validate_only: bool = False
) -> Decision[Altered]:
    commands: list[Command] = []
    answers: list[Altered | Refused] = []
    asked = Counter(request.target for request in requests)
    for request in requests:
        try:
            if asked[request.target] > 1:
                raise InvalidRequest(f"{request.target} is named {asked[request.target]} times; name it once")
            match request.target:
                case str(topic):
                    changes = _alter_topic(image, topic, request, static)
                case OfGroup(group):
                    changes = _alter_group(image, group, request, static)
                case broker:
                    changes = _alter_broker(image, broker, request, static)
        except RequestError as error:
            answers.append(Refused(str(request.target), error))
        else:
            commands.extend(changes)
            answers.append(Altered(request.target))
    if any(_touches_insync_min(command) for command in commands):
        commands.extend(_no_longer_eligible(apply_all(commands, image)))
    return Decision(() if validate_only else tuple(commands), tuple(answers))


def _touches_insync_min(command: Command) -> bool:
    if not isinstance(command, SetTopicConfigs | SetBrokerConfigs):
        return False
    return INSYNC_MIN in command.removed or any(name == INSYNC_MIN for name, _ in command.values)


def _no_longer_eligible(image: Image) -> list[Command]:
    return [
        change(image, topic, number, leader=partition.leader, isr=partition.isr)
        for topic, number, partition in partitions_of(image)
        if partition.elr and len(partition.isr) >= insync_min(image, topic, partition)
    ]


def _alter_topic(image: Image, name: str, request: AlterConfigs, static: Mapping[str, str]) -> list[Command]:
    topic = image.topics.get(name)
    if topic is None:
        if not name:
            raise InvalidRequest("the topic's name is missing")
        check_topic_name(name)
        raise UnknownTopicOrPartition(f"there is no topic {name[:80]!r}; create it first")
    defaults = layers(image, static).merged()

    def otherwise(key: ConfigKey) -> str:
        return text_of(key, {}, defaults)

    after = _after(topic.configs, request, TOPIC_KEYS, otherwise)
    known = {key: value for key, value in after.items() if key in TOPIC_KEYS or key not in topic.configs}
    check_topic_configs(known)
    check_together(effective(after, defaults))
    _check_internal(topic, after)
    values, removed = _difference(topic.configs, after)
    return [SetTopicConfigs(topic_id=topic.topic_id, values=values, removed=removed)] if values or removed else []


def _check_internal(topic: Topic, after: Mapping[str, str]) -> None:
    if topic.internal and after.get("cleanup.policy") != topic.configs.get("cleanup.policy"):
        raise PolicyViolation(
            f"cleanup.policy of {topic.name} stays {topic.configs.get('cleanup.policy')!r}: deleting by age would lose "
            "what Millpond itself keeps there; name it with that value, or use an incremental change"
        )


def _alter_group(image: Image, group: str, request: AlterConfigs, static: Mapping[str, str]) -> list[Command]:
    if not 0 < len(group) <= GROUP_ID_CHARS_MAX:
        raise InvalidRequest(
            f"a group id of {len(group)} characters; allowed are 1 to {GROUP_ID_CHARS_MAX}. What shall hold for all "
            "groups is set for all brokers, with group. before its name"
        )
    before = image.configs_of_group(group)
    defaults = layers(image, static).merged()

    def otherwise(key: ConfigKey) -> str:
        return text_of_group(key, {}, defaults)

    after = _after(before, request, GROUP_KEYS, otherwise)
    check_group_configs({key: value for key, value in after.items() if key in GROUP_KEYS or key not in before})
    check_group_together(effective_group(after, defaults))
    values, removed = _difference(before, after)
    return [SetGroupConfigs(group=group, values=values, removed=removed)] if values or removed else []


def _alter_broker(image: Image, broker: int, request: AlterConfigs, static: Mapping[str, str]) -> list[Command]:
    if broker != ALL_BROKERS and broker not in image.brokers:
        raise InvalidRequest(
            f"there is no broker {broker}; allowed are {sorted(image.brokers)}, or no id for all of them"
        )
    before = image.configs_of_broker(broker)
    beneath = {**static, **image.configs_of_broker(ALL_BROKERS)}

    def otherwise(key: ConfigKey) -> str:
        return beneath.get(key.name, key.default)

    after = _after(before, request, BROKER_KEYS, otherwise)
    values, removed = _difference(before, after)
    check_dynamic(dict(values))
    _check_agreed(broker, dict(values))
    check_together(effective({}, {**beneath, **after}))
    check_group_together(effective_group({}, {**beneath, **after}))
    return [SetBrokerConfigs(broker=broker, values=values, removed=removed)] if values or removed else []


def _check_agreed(broker: int, values: Mapping[str, str]) -> None:
    alone = [name for name in AGREED if name in values and broker != ALL_BROKERS]
    if alone:
        raise InvalidSetting(
            f"{alone[0]} cannot differ between brokers; set it for a topic, or for all brokers by naming none"
        )


def _after(
    before: Mapping[str, str],
    request: AlterConfigs,
    keys: Mapping[str, ConfigKey],
    otherwise: Callable[[ConfigKey], str],
) -> dict[str, str]:
    """The settings as they would be. `otherwise` says what a list that is not set is appended to."""
    after = {} if request.replace else dict(before)
    named = Counter(item.name for item in request.items)
    for item in request.items:
        if named[item.name] > 1:
            raise InvalidRequest(f"{item.name[:80]!r} is named {named[item.name]} times; name it once")
        key = keys.get(item.name)
        if item.operation is ConfigOperation.DELETE:
            after.pop(item.name, None)
            continue
        if item.value is None:
            raise InvalidRequest(f"{item.name[:80]!r} has no value; give one, or delete the setting")
        if item.operation is ConfigOperation.SET:
            after[item.name] = item.value
            continue
        if key is None or key.type is not ConfigType.LIST:
            lists = ", ".join(sorted(name for name, each in keys.items() if each.type is ConfigType.LIST))
            raise InvalidSetting(f"{item.name[:80]!r} is no list, so nothing is added or taken away; lists are {lists}")
        after[item.name] = _combined(after.get(item.name, otherwise(key)), item.value, item.operation)
    return after


def _combined(text: str, more: str, operation: ConfigOperation) -> str:
    """Adding what is there already, and taking away what is not, changes nothing."""
    items, others = split_list(text), split_list(more)
    if operation is ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in others if item not in items)])
    return ",".join(item for item in items if item not in others)


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Pairs, tuple[str, ...]]:
    values = tuple(sorted((name, value) for name, value in after.items() if before.get(name) != value))
    return values, tuple(sorted(before.keys() - after.keys()))
