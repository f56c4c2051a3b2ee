"""Requests by the schema: every field either a value that makes sense here, or a strange one of its kind.

With `strangeness` 0 they are the valid corpus for byte mutations; with more they are the structured fuzz, which goes
deepest: all of it decodes, so all of it reaches a handler, and Kafka would answer all of it.
Invariant: the same `Random` and world give the same request.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from millpond.core.metadata.group_configs import GROUP_KEYS
from millpond.core.metadata.topic_configs import TOPIC_KEYS
from millpond.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from millpond.protocol.messages.fields import Field, Kind, Message, fields_of
from millpond.protocol.messages.registry import Api
from tests.fuzz.batches import NOW_MS, hostile, whole
from tests.fuzz.world import GROUPS, TOPICS, World

BROKER_RESOURCE = 4
INT_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
STRANGE_TEXTS = (
    "",
    ".",
    "..",
    "../../etc",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "a\nb",
    " ",
    "x" * 249,
    "x" * 250,
    "x" * 32_767,
    "\U0001f4a7" * 60,
    "ÿ\x7f\x01",
    "__consumer_offsets",
    "__cluster_metadata",
    "__transaction_state",
    "%s%n{0}",
    "fuzz-plain-0",
    "-1",
    "1" * 400,
    "NaN",
    "1e999",
    "None",
)
REGEXES = (
    "fuzz-.*",
    "(a+)+$",
    "((((((((((x?){30}){30}",
    "[",
    "(?P<n>a)(?P=n)",
    "\\",
    "(?=a)",
    "." * 2000,
    "a{1000000}",
    ".*",
)
CONFIG_TEXTS = ("", "0", "-1", "1", "1000", "9223372036854775807", "-9223372036854775808", "9" * 50, "true", "compact")

_TOPIC_FIELDS = {"topic", "topic_name", "topic_names", "subscribed_topic_names"}
_GROUP_FIELDS = {"group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key"}
_INSTANCE_FIELDS = {"group_instance_id", "instance_id"}
_PARTITION_FIELDS = {"partition", "partition_index", "index", "partitions", "partition_indexes"}
_GENERATION_FIELDS = {"generation_id", "generation_id_or_member_epoch", "member_epoch"}

_TEXTS: dict[str, Sequence[str]] = {
    "protocol_type": ("consumer",) * 9 + ("connect",),
    "protocol_name": ("range", "roundrobin"),
    "configuration_keys": (*TOPIC_KEYS, *GROUP_KEYS, "num.partitions"),
    "states_filter": ("Stable", "Empty", "stable", "Dead"),
    "types_filter": ("classic", "consumer", "share"),
    "resource_name": (*TOPICS, "1", ""),
    "subscribed_topic_regex": REGEXES,
    "server_assignor": ("uniform", "range"),
    "value": CONFIG_TEXTS,
}
_INTS: dict[str, Sequence[int]] = {
    "acks": (-1, -1, -1, 1, 0),
    "timestamp": (-1, -2, -3, -4, 0, NOW_MS),
    "max_wait_ms": (0, 0, 10),
    "min_bytes": (0, 1),
    "max_bytes": (1, 1000, 1 << 20),
    "partition_max_bytes": (1, 1000, 1 << 16),
    "session_timeout_ms": (30, 60, 100, 1000),
    "rebalance_timeout_ms": (30, 60, 100, 1000),
    "timeout_ms": (0, 100, 30_000),
    "replication_factor": (1, -1),
    "num_partitions": (1, 2, -1),
    "count": (3, 4),
    "broker_ids": (1, 1, 1, 2),
    "resource_type": (2, 2, 4, 32),
    "resource_types": (2, 4, 8, 16, 32),
    "config_operation": (0, 1, 2, 3),
    "election_type": (0, 1),
    "endpoint_type": (1, 2),
    "response_partition_limit": (1, 2, 2000),
    "leader_epoch": (-1, 0, 0, 1),
    "current_leader_epoch": (-1, -1, 0),
    "last_fetched_epoch": (-1, 0),
    "replica_id": (-1, -1, 1),
    "session_epoch": (-1, 0),
    "key_type": (0, 0, 1, 2),
}

_NULL_SHARES = {
    "transactional_id": 0.8,
    "group_instance_id": 0.7,
    "instance_id": 0.7,
    "subscribed_topic_regex": 0.7,
    "records": 0.02,
    "topics": 0.05,
}
_CLASSIC, _NEW, _SIMPLE = GROUPS
_GROUPS_OF: dict[int, Sequence[str]] = {
    **dict.fromkeys((11, 12, 13, 14), (_CLASSIC,) * 9 + (_NEW,)),
    **dict.fromkeys((68, 69), (_NEW,) * 9 + (_CLASSIC,)),
    8: (_SIMPLE, _SIMPLE, _CLASSIC, _NEW),
}
"""The groups that an API is mostly about, by its key."""


class RequestMaker:
    def __init__(self, rng: random.Random, world: World, *, strangeness: float) -> None:
        self._rng = rng
        self._world = world
        self._strangeness = strangeness
        self._member = rng.choice(world.members)
        self._is_member = False
        self._group = GROUPS[0]

    def request(self, api: Api, version: int) -> Message:
        self._member = self._rng.choice(self._world.members)
        self._is_member = self._rng.random() < 0.6
        self._group = self._rng.choice(_GROUPS_OF.get(api.key, GROUPS))
        made: Message = self._struct(api.request_class, version)
        return made

    def _is_strange(self) -> bool:
        return self._rng.random() < self._strangeness

    def _struct(self, declared: type[Any], version: int) -> Any:  # noqa: ANN401 - one of the message's own classes
        values = {
            field.name: self._value(declared.__name__, field, version)
            for field in _fields(declared)
            if field.is_in(version)
        }
        if self._rng.random() > self._strangeness:
            _make_coherent(values, self._rng)
        return declared(**values)

    def _value(self, owner: str, field: Field, version: int) -> Any:  # noqa: ANN401
        rng = self._rng
        if field.tag is not None and rng.random() < 0.5:
            return [] if field.is_array else field.default
        if field.tag is None and field.is_nullable(version) and rng.random() < _NULL_SHARES.get(field.name, 0.15):
            return None
        if not field.is_array:
            return self._item(owner, field, version)
        if not self._is_strange():
            return [self._item(owner, field, version) for _ in range(rng.choice((1, 1, 1, 2)))]
        many = 150 if rng.random() < 0.05 else 3
        return rng.choice(
            (
                list,
                lambda: [self._item(owner, field, version)] * rng.randrange(2, many),
                lambda: [self._item(owner, field, version) for _ in range(rng.randrange(2, 5))],
            )
        )()

    def _item(self, owner: str, field: Field, version: int) -> Any:  # noqa: ANN401
        if field.kind is Kind.STRUCT:
            assert field.of is not None
            return self._struct(field.of, version)
        if self._is_strange():
            return self._strange(field)
        return self._sensible(owner, field)

    def _strange(self, field: Field) -> Any:  # noqa: ANN401
        rng = self._rng
        match field.kind:
            case Kind.BOOLEAN:
                return rng.random() < 0.5
            case Kind.UINT16:
                return rng.choice((0, 1, 2**16 - 1, rng.randrange(2**16)))
            case Kind.UUID:
                return rng.choice((bytes(16), b"\xff" * 16, bytes(15) + b"\1", rng.randbytes(16)))
            case Kind.STRING:
                return rng.choice(STRANGE_TEXTS)
            case Kind.DATA:
                return rng.choice(
                    (b"", b"\xff\xff", b"\0\0\x7f\xff\xff\xff", rng.randbytes(rng.choice((3, 50, 70_000))))
                )
            case Kind.RECORDS:
                return hostile(rng, list(self._world.producers))
        bits = INT_BITS[field.kind]
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return rng.choice((low, high, low + 1, high - 1, -1, -2, 0, 1, rng.randrange(low, high)))

    def _sensible(self, owner: str, field: Field) -> Any:  # noqa: ANN401
        rng = self._rng
        match field.kind:
            case Kind.BOOLEAN:
                return rng.random() < 0.5
            case Kind.UINT16:
                return rng.randrange(2**16)
            case Kind.UUID:
                return rng.choice(list(self._world.topic_ids.values()))
            case Kind.STRING:
                return self._text(owner, field.name)
            case Kind.DATA:
                return _spoken(rng)
            case Kind.RECORDS:
                return whole(rng, list(self._world.producers))
        return self._int(field)

    def _text(self, owner: str, name: str) -> str:
        rng = self._rng
        if name in _TOPIC_FIELDS or (name == "name" and "Config" not in owner and "Protocol" not in owner):
            return rng.choice(list(TOPICS))
        if name == "name":
            return rng.choice(("range", "roundrobin") if "Protocol" in owner else [*TOPIC_KEYS, *GROUP_KEYS])
        if name in _GROUP_FIELDS:
            return self._member.group if self._is_member else self._group
        if name == "member_id":
            return self._member.member_id if self._is_member else rng.choice(("", "", "", "m-0", "m-1"))
        if name in _INSTANCE_FIELDS:
            return rng.choice(("i-0", "i-1"))
        return rng.choice(_TEXTS.get(name, ("fuzz",)))

    def _int(self, field: Field) -> int:
        rng, name = self._rng, field.name
        if name in _PARTITION_FIELDS:
            return rng.randrange(3)
        if name in _GENERATION_FIELDS:
            return self._member.generation if self._is_member else rng.choice((-1, -1, 0, 1))
        if name in ("producer_id", "producer_epoch"):
            return rng.choice(list(self._world.producers))[name == "producer_epoch"]
        if name in _INTS:
            return rng.choice(_INTS[name])
        if "offset" in name:
            return rng.randrange(40)
        return field.default if isinstance(field.default, int) else 0


_known_fields: dict[type[Any], list[Field]] = {}


def _fields(declared: type[Any]) -> list[Field]:
    if declared not in _known_fields:
        _known_fields[declared] = fields_of(declared)
    return _known_fields[declared]


def _make_coherent(values: dict[str, Any], rng: random.Random) -> None:
    """Fields that only make sense together: a setting and its value, a resource and its name."""
    if values.get("resource_type") == BROKER_RESOURCE:
        values["resource_name"] = rng.choice(("1", ""))
    name = str(values.get("name"))
    key = TOPIC_KEYS.get(name) or GROUP_KEYS.get(name)
    if key is not None and "value" in values and rng.random() < 0.7:
        values["value"] = key.default


def _spoken(rng: random.Random) -> bytes:
    """What consumers tell each other inside a group."""
    topic = rng.choice(list(TOPICS))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: encode_subscription(ConsumerProtocolSubscription(topics=[topic]), rng.randrange(4)),
        lambda: encode_assignment(
            ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic=topic, partitions=[0, 1])]), 0
        ),
    )
    return rng.choice(ways)()
