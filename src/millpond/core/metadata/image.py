"""The cluster's metadata at one moment, and the one way it changes: `apply`.

Invariants: names and ids are unique, and no two names differ only in `.` and `_`; a topic's partitions are numbered
from 0 without gaps; replicas in sync (ISR) and eligible ones (ELR) are replicas, and none is both; a leader is in sync,
or there is none; versions, producer ids, broker, leader and partition epochs never go back.
An image never changes: whoever holds one may keep reading it. A new one shares everything that stayed as it was; the
maps that differ are copied once per call, so many commands at once (start, snapshot) are applied with `apply_all`.
Pure. Driven by broker/drivers/metadata.py; read by every operation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Generic, TypeVar, assert_never

from millpond.core.metadata.commands import (
    ALL_BROKERS,
    NEXT_EPOCH,
    NO_LEADER,
    PARTITIONS_PER_COMMAND_MAX,
    AddPartitions,
    AllocateProducerIds,
    BeginShutdown,
    ChangePartition,
    Command,
    CreateTopic,
    DeleteTopic,
    Endpoint,
    FenceBroker,
    Movement,
    Pairs,
    RegisterBroker,
    Replicas,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetTopicConfigs,
    UnregisterBroker,
)
from millpond.core.metadata.internal_topics import INTERNAL, folded
from millpond.model.ids import LeaderEpoch, TopicPartition
from millpond.model.values import dataclass

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Broker:
    broker: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool = False
    shutting_down: bool = False
    """Still there, and about to go: nothing new comes to it."""
    directory_id: bytes = b""
    """Of its data directory; empty where it never said."""
    life: bytes = b""
    """Of the process that registered; an epoch says less, since two lives may ask for the same one."""


@dataclass(frozen=True, slots=True)
class Partition:
    replicas: Replicas
    """All that keep it. While it moves: those it moves to, in the order wanted, then those it moves away from."""

    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    """In sync: each has everything below the high watermark, and the high watermark waits for each of them."""

    elr: tuple[int, ...] = ()
    """Eligible: no longer in sync, and with everything below the high watermark all the same, because it has stood
    still since. Only while fewer are in sync than `min.insync.replicas` asks for."""

    partition_epoch: int = 0
    """Raised by every change."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> Replicas:
        """The replicas it has once it has moved."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str]
    """What was set for this topic; the rest comes from the broker (topic_configs.py)."""

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    version: int = 0
    """How many commands it has seen: two images of one log with the same version are the same."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, Topic] = field(default_factory=dict)
    broker_configs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By broker, and `ALL_BROKERS`; only where something is set."""

    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group; only where something is set, whether the group exists or not."""

    producer_ids_end: int = 0
    """Producer ids below it may be in use."""

    names_folded: Mapping[str, str] = field(default_factory=dict)
    """From `folded(name)` to the name that holds it."""

    def partition(self, at: TopicPartition) -> Partition | None:
        topic = self.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return None
        return topic.partitions[at.partition]

    def configs_of_broker(self, broker: int) -> Mapping[str, str]:
        return self.broker_configs.get(broker, _NOTHING)

    def configs_of_group(self, group: str) -> Mapping[str, str]:
        return self.group_configs.get(group, _NOTHING)

    def live_brokers(self) -> list[Broker]:
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].fenced]

    def is_live(self, broker: int) -> bool:
        found = self.brokers.get(broker)
        return found is not None and not found.fenced

    def staying_brokers(self) -> list[Broker]:
        """Those that new things may come to: live, and not about to go."""
        return [broker for broker in self.live_brokers() if not broker.shutting_down]

    def is_staying(self, broker: int) -> bool:
        found = self.brokers.get(broker)
        return found is not None and not found.fenced and not found.shutting_down


EMPTY = Image()


def apply(command: Command, image: Image) -> Image:
    return apply_all((command,), image)


def apply_all(commands: Iterable[Command], image: Image) -> Image:
    draft = _Draft(image)
    for command in commands:
        draft.apply(command)
    return draft.image()


def rebuild(commands: Iterable[Command], *, version: int) -> Image:
    """The image of `snapshot`, which was taken at `version`."""
    return replace(apply_all(commands, EMPTY), version=version)


def snapshot(image: Image) -> list[Command]:
    """The fewest commands that make the same image, in an order that depends on nothing else."""
    commands: list[Command] = []
    for _, broker in sorted(image.brokers.items()):
        commands.extend(_snapshot_broker(broker))
    for of, configs in sorted(image.broker_configs.items()):
        commands.append(SetBrokerConfigs(broker=of, values=_pairs(configs)))
    for group, configs in sorted(image.group_configs.items()):
        commands.append(SetGroupConfigs(group=group, values=_pairs(configs)))
    for _, topic in sorted(image.topics.items()):
        commands.extend(_snapshot_topic(topic))
    if image.producer_ids_end:
        commands.append(AllocateProducerIds(end=image.producer_ids_end))
    return commands


def _snapshot_broker(broker: Broker) -> Iterable[Command]:
    yield RegisterBroker(
        broker=broker.broker,
        epoch=broker.epoch,
        endpoints=broker.endpoints,
        rack=broker.rack,
        directory_id=broker.directory_id,
        life=broker.life,
    )
    if broker.shutting_down:
        yield BeginShutdown(broker=broker.broker)
    if broker.fenced:
        yield FenceBroker(broker=broker.broker)


def _snapshot_topic(topic: Topic) -> Iterable[Command]:
    replicas = [partition.replicas for partition in topic.partitions]
    first, rest = replicas[:PARTITIONS_PER_COMMAND_MAX], replicas[PARTITIONS_PER_COMMAND_MAX:]
    configs = _pairs(topic.configs)
    yield CreateTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(first), configs=configs)
    for start in range(0, len(rest), PARTITIONS_PER_COMMAND_MAX):
        more = tuple(rest[start : start + PARTITIONS_PER_COMMAND_MAX])
        yield AddPartitions(topic_id=topic.topic_id, partitions=more)
    for number, partition in enumerate(topic.partitions):
        if partition != _begun(partition.replicas):
            yield ChangePartition(
                topic_id=topic.topic_id,
                partition=number,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                elr=partition.elr,
                partition_epoch=partition.partition_epoch,
                movement=_movement(partition),
            )


def _movement(partition: Partition) -> Movement | None:
    """Begun with all its replicas, it need only be told what is under way."""
    if not partition.moving:
        return None
    return Movement(partition.replicas, partition.adding, partition.removing)


def _pairs(configs: Mapping[str, str]) -> Pairs:
    return tuple(sorted(configs.items()))


def _begun(replicas: Replicas) -> Partition:
    assert replicas, "a partition has replicas"
    assert len(set(replicas)) == len(replicas), replicas
    return Partition(replicas=replicas, leader=replicas[0], leader_epoch=LeaderEpoch(0), isr=replicas)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Copied(Generic[_Key, _Value]):
    """A map that is copied once, before its first change."""

    __slots__ = ("_own", "now")

    def __init__(self, before: Mapping[_Key, _Value]) -> None:
        self.now = before
        self._own: dict[_Key, _Value] | None = None

    def put(self, key: _Key, value: _Value) -> None:
        self._mine()[key] = value

    def remove(self, key: _Key) -> None:
        self._mine().pop(key, None)

    def _mine(self) -> dict[_Key, _Value]:
        if self._own is None:
            self._own = dict(self.now)
            self.now = self._own
        return self._own


class _Draft:
    """An image being made. It copies a map when it first changes it, and asserts what the module promises."""

    __slots__ = (
        "_broker_configs",
        "_brokers",
        "_by_id",
        "_by_name",
        "_folded",
        "_group_configs",
        "_producer_ids_end",
        "_version",
    )

    def __init__(self, image: Image) -> None:
        self._version = image.version
        self._producer_ids_end = image.producer_ids_end
        self._brokers = _Copied(image.brokers)
        self._broker_configs = _Copied(image.broker_configs)
        self._group_configs = _Copied(image.group_configs)
        self._by_name = _Copied(image.topics)
        self._by_id = _Copied(image.topics_by_id)
        self._folded = _Copied(image.names_folded)

    def image(self) -> Image:
        return Image(
            version=self._version,
            brokers=self._brokers.now,
            topics=self._by_name.now,
            topics_by_id=self._by_id.now,
            broker_configs=self._broker_configs.now,
            group_configs=self._group_configs.now,
            producer_ids_end=self._producer_ids_end,
            names_folded=self._folded.now,
        )

    def apply(self, command: Command) -> None:
        match command:
            case RegisterBroker() | FenceBroker() | BeginShutdown() | UnregisterBroker() | SetBrokerConfigs():
                self._apply_to_broker(command)
            case CreateTopic():
                self._create(command)
            case DeleteTopic():
                self._delete(command)
            case AddPartitions():
                topic = self._topic(command.topic_id)
                more = tuple(_begun(replicas) for replicas in command.partitions)
                self._put(replace(topic, partitions=topic.partitions + more))
            case ChangePartition():
                self._change_partition(command)
            case SetTopicConfigs():
                topic = self._topic(command.topic_id)
                self._put(replace(topic, configs=_changed(topic.configs, command.values, command.removed)))
            case SetGroupConfigs():
                _set_configs(self._group_configs, command.group, command.values, command.removed)
            case AllocateProducerIds():
                assert command.end > self._producer_ids_end, (command, self._producer_ids_end)
                self._producer_ids_end = command.end
            case _:
                assert_never(command)
        self._version += 1

    def _apply_to_broker(
        self, command: RegisterBroker | FenceBroker | BeginShutdown | UnregisterBroker | SetBrokerConfigs
    ) -> None:
        match command:
            case RegisterBroker(broker=broker):
                before = self._brokers.now.get(broker)
                assert before is None or before.epoch < command.epoch, (before, command)
                after = Broker(
                    broker,
                    command.epoch,
                    command.endpoints,
                    command.rack,
                    directory_id=command.directory_id,
                    life=command.life,
                )
                self._brokers.put(broker, after)
            case FenceBroker(broker=broker):
                self._brokers.put(broker, replace(self._brokers.now[broker], fenced=True))
            case BeginShutdown(broker=broker):
                self._brokers.put(broker, replace(self._brokers.now[broker], shutting_down=True))
            case UnregisterBroker(broker=broker):
                assert broker in self._brokers.now, command
                self._brokers.remove(broker)
                self._broker_configs.remove(broker)
            case SetBrokerConfigs(broker=broker):
                assert broker >= ALL_BROKERS, command
                _set_configs(self._broker_configs, broker, command.values, command.removed)

    def _create(self, command: CreateTopic) -> None:
        assert command.name not in self._by_name.now, command.name
        assert command.topic_id not in self._by_id.now, command.topic_id
        assert folded(command.name) not in self._folded.now, command.name
        partitions = tuple(_begun(replicas) for replicas in command.partitions)
        assert partitions, "a topic has partitions"
        self._folded.put(folded(command.name), command.name)
        self._put(Topic(command.name, command.topic_id, partitions, _changed(_NOTHING, command.configs, ())))

    def _delete(self, command: DeleteTopic) -> None:
        topic = self._topic(command.topic_id)
        self._by_id.remove(topic.topic_id)
        self._by_name.remove(topic.name)
        self._folded.remove(folded(topic.name))

    def _change_partition(self, command: ChangePartition) -> None:
        topic = self._topic(command.topic_id)
        before = topic.partitions[command.partition]
        moved = command.movement or Movement(before.replicas, before.adding, before.removing)
        next_epoch = before.partition_epoch + 1
        after = Partition(
            moved.replicas,
            command.leader,
            command.leader_epoch,
            command.isr,
            command.elr,
            next_epoch if command.partition_epoch == NEXT_EPOCH else command.partition_epoch,
            moved.adding,
            moved.removing,
        )
        _check_change(before, after)
        partitions = list(topic.partitions)
        partitions[command.partition] = after
        self._put(replace(topic, partitions=tuple(partitions)))

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self._by_id.now.get(topic_id)
        assert topic is not None, topic_id.hex()
        return topic

    def _put(self, topic: Topic) -> None:
        self._by_name.put(topic.name, topic)
        self._by_id.put(topic.topic_id, topic)


def _check_change(before: Partition, after: Partition) -> None:
    replicas = set(after.replicas)
    assert len(replicas) == len(after.replicas) > 0, after
    assert replicas >= {*after.isr, *after.elr, *after.adding, *after.removing}, after
    assert len({*after.isr, *after.elr}) == len(after.isr) + len(after.elr), after
    assert not set(after.adding) & set(after.removing), after
    assert after.leader == NO_LEADER or after.leader in after.isr, after
    assert after.partition_epoch > before.partition_epoch, (before, after)
    same = after.leader == before.leader and after.leader_epoch == before.leader_epoch
    # A snapshot begins a partition with its replicas of today, whose first need not have led in its first epoch.
    is_begun = before == _begun(before.replicas) and after.leader != NO_LEADER
    assert same or is_begun or after.leader_epoch > before.leader_epoch, (before, after)


def _set_configs(of_all: _Copied[_Key, Mapping[str, str]], key: _Key, values: Pairs, removed: tuple[str, ...]) -> None:
    configs = _changed(of_all.now.get(key, _NOTHING), values, removed)
    if configs:
        of_all.put(key, configs)
    else:
        of_all.remove(key)


def _changed(configs: Mapping[str, str], values: Pairs, removed: tuple[str, ...]) -> Mapping[str, str]:
    left = {name: value for name, value in configs.items() if name not in removed}
    return MappingProxyType({**left, **dict(values)})
