"""Commands as bytes: one JSON object each, keys sorted, without spaces, ASCII.

    {"kind":"delete-topic","topic_id":"<32 hex digits>","version":1}

    kind     which command, from `_KINDS`; never renamed, never used for anything else
    version  of that kind's fields; a reader knows every version that was ever written
    others   exactly the fields of that version: one missing or one too many is damage

A command is written in the oldest version that can say it.

    register-broker   1  broker, epoch, endpoints, rack
                      2  and directory_id: 32 hex digits
                      3  and life: 32 hex digits
    change-partition  1  topic_id, partition, leader, leader_epoch, isr (not empty); the partition epoch is the next
                      2  and elr, partition_epoch (-1 is the next), movement: null or [replicas, adding, removing];
                         isr may be empty

Invariant: what one Millpond has written, every later one reads. `tests/core/metadata/test_encoding.py` keeps the bytes
of every kind and version; they are added to, never changed.
Pure. Driven by broker/drivers/metadata.py, which frames and checksums the bytes as records of a log.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn, assert_never

from millpond.core.metadata.commands import (
    DIRECTORY_ID_BYTES,
    ENDPOINTS_PER_BROKER_MAX,
    GROUP_ID_CHARS_MAX,
    LIFE_BYTES,
    NEXT_EPOCH,
    PARTITIONS_PER_COMMAND_MAX,
    REPLICAS_PER_PARTITION_MAX,
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
from millpond.model.errors import UnreadableCommand
from millpond.model.ids import LeaderEpoch
from millpond.model.limits import MIB, TOPIC_NAME_CHARS_MAX

COMMAND_BYTES_MAX: Final = 4 * MIB
TEXT_CHARS_MAX: Final = 4096
CONFIGS_MAX: Final = 1000
TOPIC_ID_BYTES: Final = 16

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


def encode(command: Command) -> bytes:
    kind, fields = _written(command)
    document = {"kind": kind, "version": 1, **fields, **_since(command)}
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode("ascii")
    assert len(content) <= COMMAND_BYTES_MAX, (kind, len(content))
    return content


def decode(content: bytes | memoryview) -> Command:
    if len(content) > COMMAND_BYTES_MAX:
        raise UnreadableCommand(f"a command of {len(content)} bytes; at most {COMMAND_BYTES_MAX} are ever written")
    try:
        document = json.loads(bytes(content))
    except (ValueError, RecursionError) as error:
        raise UnreadableCommand(
            f"a command that is no JSON: {error}; restore the log from a replica or backup"
        ) from None
    if not isinstance(document, dict):
        raise UnreadableCommand("a command that is no JSON object; restore the log from a replica or backup")
    kind, version = document.pop("kind", None), document.pop("version", None)
    reader = _KINDS.get((kind, version)) if isinstance(kind, str) and type(version) is int else None
    if reader is None:
        raise UnreadableCommand(
            f"a command of kind {str(kind)[:80]!r}, version {str(version)[:20]}, is not known here; "
            "a newer Millpond wrote it: start that one, or a later one"
        )
    fields = _Fields(kind, document)
    command = reader(fields)
    fields.finish()
    return command


def _since(command: Command) -> dict[str, object]:
    """What the first version of a kind cannot say, where there is such a thing."""
    match command:
        case RegisterBroker() if command.life:
            return {"version": 3, "directory_id": command.directory_id.hex(), "life": command.life.hex()}
        case RegisterBroker() if command.directory_id:
            return {"version": 2, "directory_id": command.directory_id.hex()}
        case ChangePartition() if not _as_at_first(command):
            moved = command.movement
            return {
                "version": 2,
                "elr": command.elr,
                "partition_epoch": command.partition_epoch,
                "movement": None if moved is None else [moved.replicas, moved.adding, moved.removing],
            }
        case _:
            return {}


def _as_at_first(command: ChangePartition) -> bool:
    same = not command.elr and command.partition_epoch == NEXT_EPOCH and command.movement is None
    return same and command.isr != ()


def _written(command: Command) -> tuple[str, dict[str, object]]:
    match command:
        case RegisterBroker():
            endpoints = [[each.listener, each.host, each.port] for each in command.endpoints]
            return "register-broker", {
                "broker": command.broker,
                "epoch": command.epoch,
                "endpoints": endpoints,
                "rack": command.rack,
            }
        case FenceBroker():
            return "fence-broker", {"broker": command.broker}
        case BeginShutdown():
            return "begin-shutdown", {"broker": command.broker}
        case UnregisterBroker():
            return "unregister-broker", {"broker": command.broker}
        case CreateTopic():
            return "create-topic", {
                "name": command.name,
                "topic_id": command.topic_id.hex(),
                "partitions": command.partitions,
                "configs": dict(command.configs),
            }
        case DeleteTopic():
            return "delete-topic", {"topic_id": command.topic_id.hex()}
        case AddPartitions():
            return "add-partitions", {"topic_id": command.topic_id.hex(), "partitions": command.partitions}
        case ChangePartition():
            return "change-partition", {
                "topic_id": command.topic_id.hex(),
                "partition": command.partition,
                "leader": command.leader,
                "leader_epoch": command.leader_epoch,
                "isr": command.isr,
            }
        case SetTopicConfigs() | SetBrokerConfigs() | SetGroupConfigs():
            kind, of = _configured(command)
            return kind, {**of, "values": dict(command.values), "removed": command.removed}
        case AllocateProducerIds():
            return "allocate-producer-ids", {"end": command.end}
        case _:
            assert_never(command)


def _configured(command: SetTopicConfigs | SetBrokerConfigs | SetGroupConfigs) -> tuple[str, dict[str, object]]:
    match command:
        case SetTopicConfigs():
            return "set-topic-configs", {"topic_id": command.topic_id.hex()}
        case SetBrokerConfigs():
            return "set-broker-configs", {"broker": command.broker}
        case SetGroupConfigs():
            return "set-group-configs", {"group": command.group}


class _Fields:
    """Hands out each field once, checked against its type and bounds."""

    __slots__ = ("_kind", "_left")

    def __init__(self, kind: str, document: dict[str, object]) -> None:
        self._kind = kind
        self._left = document

    def finish(self) -> None:
        if self._left:
            self._refuse(f"unknown fields {sorted(self._left)[:5]}")

    def text(self, name: str, *, chars_max: int = TEXT_CHARS_MAX) -> str:
        return self._text(name, self._take(name), chars_max)

    def text_or_none(self, name: str) -> str | None:
        value = self._take(name)
        return None if value is None else self._text(name, value, TEXT_CHARS_MAX)

    def number(self, name: str, least: int, most: int) -> int:
        return self._number(name, self._take(name), least, most)

    def topic_id(self) -> bytes:
        return self.bytes_in_hex("topic_id", TOPIC_ID_BYTES)

    def bytes_in_hex(self, name: str, count: int) -> bytes:
        text = self.text(name, chars_max=2 * count)
        try:
            value = bytes.fromhex(text)
        except ValueError:
            value = b""
        if len(value) != count:
            self._refuse(f"{name} {text!r} is not {count} bytes in hex")
        return value

    def brokers(self, name: str, *, least: int = 1) -> Replicas:
        return self._brokers(name, self._take(name), least=least)

    def movement(self, name: str) -> Movement | None:
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 3:
            self._refuse(f"{name} is not [replicas, adding, removing]")
        replicas, adding, removing = value
        return Movement(
            self._brokers(name, replicas), self._brokers(name, adding, least=0), self._brokers(name, removing, least=0)
        )

    def assignments(self, name: str) -> tuple[Replicas, ...]:
        given = self._list(name, self._take(name), PARTITIONS_PER_COMMAND_MAX)
        return tuple(self._brokers(name, each) for each in given)

    def texts(self, name: str) -> tuple[str, ...]:
        given = self._list(name, self._take(name), CONFIGS_MAX, least=0)
        return tuple(self._text(name, each, TEXT_CHARS_MAX) for each in given)

    def pairs(self, name: str) -> Pairs:
        value = self._take(name)
        if not isinstance(value, dict) or len(value) > CONFIGS_MAX:
            self._refuse(f"{name} is no object of at most {CONFIGS_MAX} names")
        return tuple((key, self._text(key, value[key], TEXT_CHARS_MAX)) for key in sorted(value))

    def endpoints(self, name: str) -> tuple[Endpoint, ...]:
        given = self._list(name, self._take(name), ENDPOINTS_PER_BROKER_MAX)
        return tuple(self._endpoint(name, each) for each in given)

    def _endpoint(self, name: str, value: object) -> Endpoint:
        if not isinstance(value, list) or len(value) != 3:
            self._refuse(f"{name} has an endpoint that is not [listener, host, port]")
        listener, host, port = value
        return Endpoint(
            self._text(name, listener, TEXT_CHARS_MAX),
            self._text(name, host, TEXT_CHARS_MAX),
            self._number(name, port, 0, 65535),
        )

    def _brokers(self, name: str, value: object, *, least: int = 1) -> Replicas:
        given = self._list(name, value, REPLICAS_PER_PARTITION_MAX, least=least)
        return tuple(self._number(name, each, 0, _INT32) for each in given)

    def _take(self, name: str) -> object:
        if name not in self._left:
            self._refuse(f"field {name} is missing")
        return self._left.pop(name)

    def _text(self, name: str, value: object, chars_max: int) -> str:
        if not isinstance(value, str) or len(value) > chars_max:
            self._refuse(f"{name} is no text of at most {chars_max} characters")
        return value

    def _number(self, name: str, value: object, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            self._refuse(f"{name} is {str(value)[:40]}, not a whole number from {least} to {most}")
        return value

    def _list(self, name: str, value: object, most: int, *, least: int = 1) -> list[object]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            self._refuse(f"{name} is no list of {least} to {most}")
        return value

    def _refuse(self, what: str) -> NoReturn:
        raise UnreadableCommand(f"a {self._kind} command: {what}; restore the log from a replica or backup")


def _register_broker(fields: _Fields) -> RegisterBroker:
    return RegisterBroker(
        broker=fields.number("broker", 0, _INT32),
        epoch=fields.number("epoch", 0, _INT64),
        endpoints=fields.endpoints("endpoints"),
        rack=fields.text_or_none("rack"),
    )


def _register_broker_2(fields: _Fields) -> RegisterBroker:
    return replace(_register_broker(fields), directory_id=fields.bytes_in_hex("directory_id", DIRECTORY_ID_BYTES))


def _register_broker_3(fields: _Fields) -> RegisterBroker:
    return replace(_register_broker_2(fields), life=fields.bytes_in_hex("life", LIFE_BYTES))


def _begin_shutdown(fields: _Fields) -> Command:
    return BeginShutdown(broker=fields.number("broker", 0, _INT32))


def _unregister_broker(fields: _Fields) -> Command:
    return UnregisterBroker(broker=fields.number("broker", 0, _INT32))


def _fence_broker(fields: _Fields) -> Command:
    return FenceBroker(broker=fields.number("broker", 0, _INT32))


def _create_topic(fields: _Fields) -> Command:
    return CreateTopic(
        name=fields.text("name", chars_max=TOPIC_NAME_CHARS_MAX),
        topic_id=fields.topic_id(),
        partitions=fields.assignments("partitions"),
        configs=fields.pairs("configs"),
    )


def _delete_topic(fields: _Fields) -> Command:
    return DeleteTopic(topic_id=fields.topic_id())


def _add_partitions(fields: _Fields) -> Command:
    return AddPartitions(topic_id=fields.topic_id(), partitions=fields.assignments("partitions"))


def _change_partition(fields: _Fields) -> Command:
    return ChangePartition(
        topic_id=fields.topic_id(),
        partition=fields.number("partition", 0, _INT32),
        leader=fields.number("leader", -1, _INT32),
        leader_epoch=LeaderEpoch(fields.number("leader_epoch", 0, _INT32)),
        isr=fields.brokers("isr"),
    )


def _change_partition_2(fields: _Fields) -> Command:
    return ChangePartition(
        topic_id=fields.topic_id(),
        partition=fields.number("partition", 0, _INT32),
        leader=fields.number("leader", -1, _INT32),
        leader_epoch=LeaderEpoch(fields.number("leader_epoch", 0, _INT32)),
        isr=fields.brokers("isr", least=0),
        elr=fields.brokers("elr", least=0),
        partition_epoch=fields.number("partition_epoch", NEXT_EPOCH, _INT32),
        movement=fields.movement("movement"),
    )


def _set_topic_configs(fields: _Fields) -> Command:
    return SetTopicConfigs(topic_id=fields.topic_id(), values=fields.pairs("values"), removed=fields.texts("removed"))


def _set_broker_configs(fields: _Fields) -> Command:
    return SetBrokerConfigs(
        broker=fields.number("broker", -1, _INT32), values=fields.pairs("values"), removed=fields.texts("removed")
    )


def _set_group_configs(fields: _Fields) -> Command:
    return SetGroupConfigs(
        group=fields.text("group", chars_max=GROUP_ID_CHARS_MAX),
        values=fields.pairs("values"),
        removed=fields.texts("removed"),
    )


def _allocate_producer_ids(fields: _Fields) -> Command:
    return AllocateProducerIds(end=fields.number("end", 0, _INT64))


_KINDS: dict[tuple[str, int], Callable[[_Fields], Command]] = {
    ("register-broker", 1): _register_broker,
    ("register-broker", 2): _register_broker_2,
    ("register-broker", 3): _register_broker_3,
    ("fence-broker", 1): _fence_broker,
    ("begin-shutdown", 1): _begin_shutdown,
    ("unregister-broker", 1): _unregister_broker,
    ("create-topic", 1): _create_topic,
    ("delete-topic", 1): _delete_topic,
    ("add-partitions", 1): _add_partitions,
    ("change-partition", 1): _change_partition,
    ("change-partition", 2): _change_partition_2,
    ("set-topic-configs", 1): _set_topic_configs,
    ("set-broker-configs", 1): _set_broker_configs,
    ("set-group-configs", 1): _set_group_configs,
    ("allocate-producer-ids", 1): _allocate_producer_ids,
}
