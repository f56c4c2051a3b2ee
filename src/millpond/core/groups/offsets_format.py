"""Records of groups as bytes of `__consumer_offsets`: Kafka's own format where it has one, so that its tools read it.

    key 1   a committed offset     int16 1, text group, text topic, int32 partition
      value 3                      int16 3, int64 offset, int32 leader epoch, text metadata, int64 commit time
      value 1, with own expiry     int16 1, int64 offset, text metadata, int64 commit time, int64 expiry time
    key 2   a classic group        int16 2, text group
      value 3                      int16 3, text protocol type, int32 generation, text? protocol, text? leader,
                                   int64 state since, int32 count, then each member:
                                     text id, text? instance id, text client id, text client host,
                                     int32 rebalance timeout, int32 session timeout,
                                     bytes subscription, bytes assignment
    key 19792   a consumer group               Millpond's: int16 19792, text group
    key 19793   one of its members             Millpond's: int16 19793, text group, text member id
    key 19794   a share group                  Millpond's: int16 19794, text group
    key 19795   one of its members             Millpond's: int16 19795, text group, text member id
      value 0                                  int16 0, then a JSON object; topic ids in hexadecimal

A text has an int16 length in front, bytes an int32; `text?` has -1 for none. No value at all (a tombstone) removes
what the key kept. Values 0 to 2 of the Kafka kinds are read too. Keys of any other version belong to somebody else:
`decode` answers None. Kafka has keys of its own for consumer and share groups, spread over many kinds (3 to 16); tools
pass over ours.
Pure; written and read by broker/drivers/groups.py.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, assert_never

from millpond.core.groups.fields import FieldReader, FieldWriter
from millpond.core.groups.records import (
    ClassicGroupRecord,
    ClassicMemberRecord,
    ConsumerGroupForgotten,
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    GroupForgotten,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    ShareGroupForgotten,
    ShareGroupRecord,
    ShareMemberForgotten,
    ShareMemberRecord,
    TopicIdPartition,
)
from millpond.model.errors import InvalidRecord
from millpond.model.ids import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition

OFFSET_KEY, GROUP_KEY, CONSUMER_GROUP_KEY, CONSUMER_MEMBER_KEY = 1, 2, 19792, 19793
SHARE_GROUP_KEY, SHARE_MEMBER_KEY = 19794, 19795
NEWEST_VALUE = 3
_JSON_KEYS: dict[type[Record], int] = {
    ConsumerGroupRecord: CONSUMER_GROUP_KEY,
    ConsumerGroupForgotten: CONSUMER_GROUP_KEY,
    ConsumerMemberRecord: CONSUMER_MEMBER_KEY,
    ConsumerMemberForgotten: CONSUMER_MEMBER_KEY,
    ShareGroupRecord: SHARE_GROUP_KEY,
    ShareGroupForgotten: SHARE_GROUP_KEY,
    ShareMemberRecord: SHARE_MEMBER_KEY,
    ShareMemberForgotten: SHARE_MEMBER_KEY,
}


class KeyValue(NamedTuple):
    key: bytes
    value: bytes | None


def encode(record: Record) -> KeyValue:
    match record:
        case OffsetCommitted():
            return KeyValue(_offset_key(record), _offset_value(record))
        case OffsetForgotten():
            return KeyValue(_offset_key(record), None)
        case ClassicGroupRecord():
            return KeyValue(_key(GROUP_KEY, record.group), _classic_value(record))
        case GroupForgotten():
            return KeyValue(_key(GROUP_KEY, record.group), None)
        case ConsumerGroupRecord() | ShareGroupRecord():
            value = _json_value({"epoch": record.epoch, "changed_at": record.changed_at})
            return KeyValue(_key(_JSON_KEYS[type(record)], record.group), value)
        case ConsumerGroupForgotten() | ShareGroupForgotten():
            return KeyValue(_key(_JSON_KEYS[type(record)], record.group), None)
        case ConsumerMemberRecord() | ShareMemberRecord():
            document = _member_document(record)
            return KeyValue(_key(_JSON_KEYS[type(record)], record.group, record.member_id), _json_value(document))
        case ConsumerMemberForgotten() | ShareMemberForgotten():
            return KeyValue(_key(_JSON_KEYS[type(record)], record.group, record.member_id), None)
        case _:
            assert_never(record)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record, or None for a kind that is not ours to read; raises InvalidRecord for bytes that are no record."""
    reader = FieldReader(key)
    match reader.int16():
        case 0 | 1:
            return _read_offset(reader, value)
        case 2:
            group = reader.text()
            return GroupForgotten(group) if value is None else _read_classic(group, value)
        case 19792:
            return _read_consumer_group(reader.text(), value)
        case 19793:
            return _read_consumer_member(reader.text(), reader.text(), value)
        case 19794:
            return _read_share_group(reader.text(), value)
        case 19795:
            return _read_share_member(reader.text(), reader.text(), value)
        case _:
            return None


# Committed offsets


def _key(version: int, *texts: str) -> bytes:
    writer = FieldWriter().int16(version)
    for text in texts:
        writer.text(text)
    return writer.bytes()


def _offset_key(record: OffsetCommitted | OffsetForgotten) -> bytes:
    return FieldWriter().int16(OFFSET_KEY).text(record.group).text(record.at.topic).int32(record.at.partition).bytes()


def _offset_value(record: OffsetCommitted) -> bytes:
    if record.expires_at is not None:  # version 3 has no place for it, version 1 none for the leader epoch
        writer = FieldWriter().int16(1).int64(record.offset).text(record.metadata)
        return writer.int64(record.committed_at).int64(record.expires_at).bytes()
    writer = FieldWriter().int16(3).int64(record.offset).int32(record.leader_epoch)
    return writer.text(record.metadata).int64(record.committed_at).bytes()


def _read_offset(key: FieldReader, value: bytes | None) -> Record:
    group = key.text()
    at = TopicPartition(key.text(), key.int32())
    if value is None:
        return OffsetForgotten(group, at)
    reader = FieldReader(value)
    version = _known_version(reader, NEWEST_VALUE)
    offset = Offset(reader.int64())
    leader_epoch = LeaderEpoch(reader.int32()) if version >= 3 else NO_EPOCH
    metadata = reader.text()
    committed_at = TimestampMs(reader.int64())
    expires_at = TimestampMs(reader.int64()) if version == 1 else NO_TIMESTAMP
    return OffsetCommitted(
        group, at, offset, leader_epoch, metadata, committed_at, None if expires_at == NO_TIMESTAMP else expires_at
    )


def _known_version(reader: FieldReader, newest: int) -> int:
    version = reader.int16()
    if not 0 <= version <= newest:
        raise InvalidRecord(f"a value of version {version}; this Millpond reads up to {newest}")
    return version


# Classic groups


def _classic_value(record: ClassicGroupRecord) -> bytes:
    writer = FieldWriter().int16(NEWEST_VALUE).text(record.protocol_type).int32(record.generation)
    writer.text(record.protocol).text(record.leader).int64(record.changed_at).int32(len(record.members))
    for member in record.members:
        writer.text(member.member_id).text(member.instance_id).text(member.client_id).text(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.data(member.subscription).data(member.assignment)
    return writer.bytes()


def _read_classic(group: str, value: bytes) -> ClassicGroupRecord:
    reader = FieldReader(value)
    version = _known_version(reader, NEWEST_VALUE)
    return ClassicGroupRecord(
        group=group,
        protocol_type=reader.text(),
        generation=reader.int32(),
        protocol=reader.text_or_none(),
        leader=reader.text_or_none(),
        changed_at=TimestampMs(reader.int64()) if version >= 2 else NO_TIMESTAMP,
        members=tuple(_read_classic_member(reader, version) for _ in range(reader.count())),
    )


def _read_classic_member(reader: FieldReader, version: int) -> ClassicMemberRecord:
    member_id = reader.text()
    instance_id = reader.text_or_none() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    return ClassicMemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )


# Consumer and share groups


def _json_value(document: dict[str, Any]) -> bytes:
    return FieldWriter().int16(0).bytes() + json.dumps(document, separators=(",", ":")).encode()


def _read_json(value: bytes) -> dict[str, Any]:
    reader = FieldReader(value)
    _known_version(reader, 0)
    try:
        document = json.loads(reader.rest())
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidRecord("a value that should hold a JSON object does not")
    return document


def _member_document(record: ConsumerMemberRecord | ShareMemberRecord) -> dict[str, Any]:
    document = {
        "rack_id": record.rack_id,
        "client_id": record.client_id,
        "client_host": record.client_host,
        "topics": sorted(record.topics),
        "epoch": record.epoch,
        "previous_epoch": record.previous_epoch,
        "assigned": _partitions_document(record.assigned),
        "target": _partitions_document(record.target),
    }
    if isinstance(record, ShareMemberRecord):
        return document
    return {
        **document,
        "instance_id": record.instance_id,
        "rebalance_timeout_ms": record.rebalance_timeout_ms,
        "regex": record.regex,
        "assignor": record.assignor,
        "revoking": _partitions_document(record.revoking),
    }


def _partitions_document(partitions: Iterable[TopicIdPartition]) -> dict[str, list[int]]:
    document: dict[str, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        document.setdefault(topic_id.hex(), []).append(partition)
    return document


def _read_partitions(document: dict[str, list[int]]) -> frozenset[TopicIdPartition]:
    return frozenset(
        TopicIdPartition(bytes.fromhex(topic), number) for topic, numbers in document.items() for number in numbers
    )


def _read_consumer_group(group: str, value: bytes | None) -> Record:
    return ConsumerGroupForgotten(group) if value is None else ConsumerGroupRecord(group, *_read_epoch(group, value))


def _read_share_group(group: str, value: bytes | None) -> Record:
    return ShareGroupForgotten(group) if value is None else ShareGroupRecord(group, *_read_epoch(group, value))


def _read_epoch(group: str, value: bytes) -> tuple[int, TimestampMs]:
    document = _read_json(value)
    try:
        return int(document["epoch"]), TimestampMs(int(document["changed_at"]))
    except (KeyError, TypeError, ValueError) as wrong:
        raise InvalidRecord(f"the group {group} cannot be read: {wrong!r}") from None


def _read_consumer_member(group: str, member_id: str, value: bytes | None) -> Record:
    if value is None:
        return ConsumerMemberForgotten(group, member_id)
    document = _read_member(group, member_id, value, ("assigned", "revoking", "target"))
    try:
        return ConsumerMemberRecord(group=group, member_id=member_id, **document)
    except TypeError as wrong:
        raise _unreadable(group, member_id, wrong) from None


def _read_share_member(group: str, member_id: str, value: bytes | None) -> Record:
    if value is None:
        return ShareMemberForgotten(group, member_id)
    document = _read_member(group, member_id, value, ("assigned", "target"))
    try:
        return ShareMemberRecord(group=group, member_id=member_id, **document)
    except TypeError as wrong:
        raise _unreadable(group, member_id, wrong) from None


def _read_member(group: str, member_id: str, value: bytes, partitions: tuple[str, ...]) -> dict[str, Any]:
    document = _read_json(value)
    try:
        for name in partitions:
            document[name] = _read_partitions(document[name])
        document["topics"] = frozenset(document["topics"])
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise _unreadable(group, member_id, wrong) from None
    return document


def _unreadable(group: str, member_id: str, wrong: Exception) -> InvalidRecord:
    return InvalidRecord(f"member {member_id} of {group} cannot be read: {wrong!r}")
