"""Producing and reading: what is refused, and with which number."""

import struct
from typing import Final

import crc32c

from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from millpond.protocol.messages.describe_producers import DescribeProducersRequest
from millpond.protocol.messages.describe_producers import TopicRequest as ProducersOf
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millpond.protocol.records import NewRecord, encode_batch
from tests.api.asking import batch, fetch_request, now_ms, produce_request
from tests.interop.beside_kafka.sides import Side

BY_NAME: Final = 12
DAY_MS: Final = 86_400_000
CRC_AT, COVERED_FROM = 17, 21


def patched(good: bytes, position: int, form: str, value: int, *, checksum: bool = True) -> bytes:
    """A batch with one field of its header changed, and a checksum that fits."""
    bad = bytearray(good)
    struct.pack_into(form, bad, position, value)
    if checksum:
        struct.pack_into("!I", bad, CRC_AT, crc32c.crc32c(bytes(bad[COVERED_FROM:])))
    return bytes(bad)


def new_topic(side: Side, **configs: str) -> str:
    name = side.new_name()
    side.create(name, **configs)
    return name


def bad_batches(side: Side) -> None:
    name = new_topic(side)
    good = batch(b"one", b"two")
    cases: dict[str, bytes | None] = {
        "wrong checksum": good[:-2] + b"x" + good[-1:],
        "cut short": good[:-3],
        "tiny": b"short",
        "empty": b"",
        "two batches": good + good,
        "magic 0": patched(good, 16, "!b", 0, checksum=False),
        "magic 1": patched(good, 16, "!b", 1, checksum=False),
        "magic 3": patched(good, 16, "!b", 3, checksum=False),
        "magic -1": patched(good, 16, "!b", -1, checksum=False),
        "last offset delta too large": patched(good, 23, "!i", 5),
        "last offset delta too small": patched(good, 23, "!i", 0),
        "negative last offset delta": patched(good, 23, "!i", -1),
        "count too large": patched(good, 57, "!i", 5),
        "count too small": patched(good, 57, "!i", 1),
        "count zero": patched(patched(good, 57, "!i", 0), 23, "!i", -1),
        "negative count": patched(good, 57, "!i", -1),
        "control batch": patched(good, 21, "!h", 0x20),
        "transactional without an id": patched(good, 21, "!h", 0x10),
        "unknown codec": patched(good, 21, "!h", 0x5),
        "length too large": patched(good, 8, "!i", 1000, checksum=False),
        "negative length": patched(good, 8, "!i", -1, checksum=False),
        "base offset not zero": patched(good, 0, "!q", 77, checksum=False),
        "leader epoch of the client's": patched(good, 12, "!i", 9, checksum=False),
        "delete horizon": patched(good, 21, "!h", 0x40),
        "log append time from a client": patched(good, 21, "!h", 0x8),
        "producer id without a sequence": batch(b"x", producer_id=ProducerId(5), producer_epoch=ProducerEpoch(0)),
        "too large": batch(bytes(1_100_000)),
    }
    for label, records in cases.items():
        side.ask(label, produce_request(name, records), BY_NAME)
    side.ask("what was kept", fetch_request(name, 0), BY_NAME)


def broken_records(side: Side) -> None:
    """The header is right and the checksum fits, and the records inside do not parse."""
    for policy in ("delete", "compact"):
        name = new_topic(side, cleanup_policy=policy)
        good = encode_batch([NewRecord(b"value", b"key", now_ms())])
        for label, position in (("length of the record", 61), ("length of the key", 65)):
            side.ask(f"{policy}, {label}", produce_request(name, patched(good, position, "!B", 0x7F)), BY_NAME)
        noise = patched(patched(good, 21, "!h", 1), 61, "!B", 9)
        side.ask(f"{policy}, no gzip", produce_request(name, noise), BY_NAME)


def acknowledgements(side: Side) -> None:
    name, wary = new_topic(side), new_topic(side, min_insync_replicas="2")
    for acks in (-2, 2, 32767, 1, -1):
        side.ask(f"acks {acks}", produce_request(name, batch(b"x"), acks=acks), BY_NAME)
    for acks in (1, -1):
        side.ask(f"two in sync, acks {acks}", produce_request(wary, batch(b"x"), acks=acks), BY_NAME)
    side.ask("unknown topic", produce_request(side.new_name(), batch(b"x")), BY_NAME)
    side.ask("unknown partition", produce_request(name, batch(b"x"), partition=7), BY_NAME)
    side.ask("negative partition", produce_request(name, batch(b"x"), partition=-1), BY_NAME)
    side.ask("bad name", produce_request("no topic!", batch(b"x")), BY_NAME)
    side.ask("empty name", produce_request("", batch(b"x")), BY_NAME)
    side.ask("unknown id", produce_request("", batch(b"x"), topic_id=b"\1" * 16), 13)
    side.ask("no id", produce_request("", batch(b"x")), 13)
    transactional = produce_request(name, batch(b"x"))
    transactional.transactional_id = "somebody"
    side.ask("a transactional id and a plain batch", transactional, BY_NAME)
    twice = produce_request(new_topic(side), batch(b"x"))
    twice.topic_data[0].partition_data *= 2
    side.ask("a partition twice", twice, BY_NAME)
    side.ask("no topics", produce_request(name, None).__class__(acks=-1, topic_data=[]), BY_NAME)
    for version in (3, 5, 7, 8, 9, 10, 11, 12):
        side.ask(f"version {version}", produce_request(name, batch(b"x")), version)
    zstd = patched(batch(b"x"), 21, "!h", 4)
    side.ask("zstd before it was allowed", produce_request(name, zstd), 3)


def times_and_keys(side: Side) -> None:
    name = new_topic(side)
    for label, ahead in (("an hour and a half ahead", 5_400_000), ("a week ahead", 7 * DAY_MS), ("old", -99 * DAY_MS)):
        records = batch(b"x", timestamp=TimestampMs(now_ms() + ahead))
        side.ask(label, produce_request(name, records), BY_NAME)
    side.ask("no time at all", produce_request(name, batch(b"x", timestamp=TimestampMs(-1))), BY_NAME)
    narrow = new_topic(side, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for ahead in (-60_000, 0, 60_000):
        records = batch(b"x", timestamp=TimestampMs(now_ms() + ahead))
        side.ask(f"a second allowed, {ahead} ms", produce_request(narrow, records), BY_NAME)
    stamped = new_topic(side, message_timestamp_type="LogAppendTime")
    side.ask("stamped", produce_request(stamped, batch(b"x", timestamp=TimestampMs(5))), BY_NAME)
    side.ask("stamped and read", fetch_request(stamped, 0), BY_NAME)
    compacted = new_topic(side, cleanup_policy="compact")
    side.ask("compacted, no key", produce_request(compacted, batch(b"x")), BY_NAME)
    both = encode_batch([NewRecord(b"v", b"k", now_ms()), NewRecord(b"v", None, now_ms())])
    side.ask("compacted, one of two without a key", produce_request(compacted, both), BY_NAME)
    side.ask("compacted, what was kept", fetch_request(compacted, 0), BY_NAME)
    small = new_topic(side, max_message_bytes="100")
    side.ask("larger than the topic allows", produce_request(small, batch(bytes(200))), BY_NAME)


def numbered(producer: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    identity = {"producer_id": ProducerId(producer), "producer_epoch": ProducerEpoch(epoch)}
    return batch(*values, base_sequence=Sequence(sequence), **identity)


def producers(side: Side) -> None:
    name, other = new_topic(side), new_topic(side)
    while side.peer().ask(InitProducerIdRequest(transactional_id=None), 4).error_code:
        pass  # Kafka fetches the first of them only now
    first = side.ask("a new producer", InitProducerIdRequest(transactional_id=None)).producer_id

    def send(label: str, records: bytes, topic: str = name) -> None:
        side.ask(label, produce_request(topic, records), BY_NAME)

    send("first", numbered(first, 0, b"a", b"b"))
    send("again", numbered(first, 0, b"a", b"b"))
    send("next", numbered(first, 2, b"c"))
    send("a gap", numbered(first, 4, b"e"))
    send("back, but another size", numbered(first, 0, b"a"))
    for number in range(3, 9):
        send(f"sequence {number}", numbered(first, number, b"x"))
    send("one of long ago", numbered(first, 0, b"a", b"b"))
    send("the fifth last", numbered(first, 4, b"x"))
    for label in ("not known yet, sequence 5", "unknown here, sequence 5"):
        send(label, numbered(first, 5, b"x"), other)
    send("unknown here, then 6", numbered(first, 6, b"x"), other)
    send("epoch 1, sequence 5", numbered(first, 5, b"x", epoch=1))
    send("epoch 1, sequence 0", numbered(first, 0, b"x", epoch=1))
    send("epoch 0 again", numbered(first, 9, b"x", epoch=0))
    send("sequence without a producer", patched(batch(b"x"), 53, "!i", 0))
    send("negative sequence", numbered(first, -2, b"x", epoch=1))
    asked = [ProducersOf(name=name, partition_indexes=[0, 9]), ProducersOf(name="no-such", partition_indexes=[0])]
    side.ask("who produces", DescribeProducersRequest(topics=asked))
    side.ask("next epoch", InitProducerIdRequest(transactional_id=None, producer_id=first, producer_epoch=1))
    side.ask("epoch without an id", InitProducerIdRequest(transactional_id=None, producer_epoch=1))
    side.ask("id without an epoch", InitProducerIdRequest(transactional_id=None, producer_id=first))
    unknown = InitProducerIdRequest(transactional_id=None, producer_id=999_999, producer_epoch=3)
    side.ask("an id nobody gave out", unknown)
    side.ask("empty transactional id", InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))
    last = side.ask("", InitProducerIdRequest(transactional_id=None)).producer_id
    turning = 2**31 - 1
    for label in ("not known yet, a sequence near its end", "a sequence near its end"):
        send(label, numbered(last, turning - 1, b"x", b"y"))
    send("and around", numbered(last, 0, b"z"))


def reading(side: Side) -> None:
    name = new_topic(side)
    for number in range(5):
        side.ask("", produce_request(name, batch(b"%d" % number)), BY_NAME)

    def read(label: str, offset: int, version: int = BY_NAME, *, topic: str = name, **options: object) -> None:
        side.ask(label, fetch_request(topic, offset, **options), version)

    for offset in (0, 3, 5, 6, -1, -2, 2**62):
        read(f"from {offset}", offset)
    read("leader epoch ahead", 0, current_leader_epoch=9)
    read("leader epoch 0", 0, current_leader_epoch=0)
    read("unknown partition", 0, partition=7)
    read("unknown topic", 0, topic=side.new_name())
    read("bad name", 0, topic="no topic!")
    read("one byte", 0, partition_max_bytes=1)
    read("one byte of all", 0, max_bytes=1)
    read("nothing of all", 0, max_bytes=0)
    read("negative sizes", 0, max_bytes=-1, partition_max_bytes=-1)
    read("committed only", 0, isolation_level=1)
    read("isolation nobody knows", 0, isolation_level=7)
    read("unknown id", 0, 13, topic_id=b"\1" * 16)
    read("no id", 0, 13)
    for version in (4, 5, 7, 9, 10, 11):
        read(f"version {version}", 3, version)
    read("an unknown session", 0, session_id=77, session_epoch=1)
    read("a session that ends", 0, session_id=77, session_epoch=-1)
    read("an epoch without a session", 0, session_id=0, session_epoch=5)
    with_epoch = fetch_request(name, 4)
    with_epoch.topics[0].partitions[0].last_fetched_epoch = 7
    side.ask("an epoch that never was", with_epoch, BY_NAME)


def offsets(side: Side) -> None:
    name, empty = new_topic(side), new_topic(side)
    base = now_ms() - 10_000_000
    for number, ahead in enumerate((0, 5000, 3000, 9000, 1000)):
        side.ask("", produce_request(name, batch(b"%d" % number, timestamp=TimestampMs(base + ahead))), BY_NAME)

    def find(label: str, timestamp: int, *, topic: str = name, epoch: int = -1, partition: int = 0, **how: int) -> None:
        version = how.pop("version", None)
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])], **how)
        answer = side.ask("", request, version)
        if answer is None:
            side.write(label, "closed")
            return
        found = answer.topics[0].partitions[0]
        if found.timestamp > 0:
            found.timestamp -= base
        side.write(label, found)

    for special in (-1, -2, -3, -4, -5, -6, -7):
        find(f"special {special}", special)
        find(f"special {special} of nothing", special, topic=empty)
    for ahead in (-1, 0, 1, 2999, 3001, 5001, 9000, 9001):
        find(f"time {ahead}", base + ahead)
    find("any time of nothing", base, topic=empty)
    find("unknown topic", -1, topic=side.new_name())
    find("bad name", -1, topic="no topic!")
    find("unknown partition", -1, partition=9)
    find("epoch ahead", -1, epoch=5)
    find("committed only", -1, isolation_level=1)
    find("version 1", -1, version=1)
    find("latest time in version 6", -3, version=6)
    find("local in version 7", -4, version=7)
    find("tiered in version 8", -5, version=8)
    twice = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2)],
    )
    side.ask("a partition twice", twice)
    for label, epoch, current in (("epoch 0", 0, -1), ("ahead", 5, -1), ("leader ahead", 0, 9), ("undefined", -1, -1)):
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=name, partitions=[part])]
        side.ask(f"end of {label}", OffsetForLeaderEpochRequest(topics=topics))
    part = OffsetForLeaderPartition(partition=3, leader_epoch=0)
    missing = [OffsetForLeaderTopic(topic=each, partitions=[part]) for each in (name, "no-such")]
    side.ask("end of nothing", OffsetForLeaderEpochRequest(topics=missing))


def deleting_records(side: Side) -> None:
    name, compacted = new_topic(side), new_topic(side, cleanup_policy="compact")
    for number in range(5):
        side.ask("", produce_request(name, batch(b"%d" % number)), BY_NAME)

    def delete(label: str, offset: int, *, topic: str = name, partition: int = 0) -> None:
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[part])]
        side.ask(label, DeleteRecordsRequest(topics=topics, timeout_ms=1000))

    for offset in (2, 1, 0, 6, -2, 3, -1, 5):
        delete(f"before {offset}", offset)
    delete("unknown topic", 0, topic="no-such")
    delete("unknown partition", 0, partition=4)
    delete("compacted only", 0, topic=compacted)
    delete("internal", 0, topic="__consumer_offsets")
    side.ask("read below the start", fetch_request(name, 0), BY_NAME)


SCENES = {
    "batches": bad_batches,
    "broken records": broken_records,
    "produce": acknowledgements,
    "times and keys": times_and_keys,
    "producers": producers,
    "fetch": reading,
    "offsets": offsets,
    "delete records": deleting_records,
}
