"""What producers are answered, and what then is in the log."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.fields import NO_ID
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.records import Codec, NewRecord, encode_batch, iter_batches, parse_header
from millpond.testing.clock import ManualClock
from tests.api.asking import batch, create, fetch, list_offset, now_ms, produce, produce_request, values
from tests.api.brokers import Peer, RunningBroker, running

VALUE_AT = -2
"""Of the last byte of a batch's last value, from its end: an empty list of headers is behind it."""


def damaged(good: bytes) -> bytes:
    bad = bytearray(good)
    bad[VALUE_AT] ^= 1
    return bytes(bad)


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_acknowledged_can_be_fetched(peer: Peer, name: str, acks: int) -> None:
    create(peer, name)
    first = produce(peer, name, batch(b"a", b"b"), acks=acks)
    second = produce(peer, name, batch(b"c"), acks=acks)
    assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
    assert (second.error_code, second.base_offset, second.log_append_time_ms) == (0, 2, -1)
    fetched = fetch(peer, name)
    assert values(fetched) == [b"a", b"b", b"c"]
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (3, 3, 0)


def test_a_request_that_names_a_partition_twice_is_refused_as_a_whole(peer: Peer, name: str) -> None:
    create(peer, name)
    request = produce_request(name, batch(b"a"))
    request.topic_data[0].partition_data *= 2
    answers = peer.ask(request, 9).responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in answers] == [(42, -1)] * 2
    assert fetch(peer, name).high_watermark == 0


def test_without_acks_nothing_is_answered_and_all_is_kept_in_order(peer: Peer, name: str) -> None:
    create(peer, name)
    for number in range(20):
        peer.send(produce_request(name, batch(b"%d" % number), acks=0), 9)
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0  # the first answer that comes is this one
    assert produce(peer, name, batch(b"last")).base_offset == 20
    assert values(fetch(peer, name)) == [*(b"%d" % number for number in range(20)), b"last"]


def test_a_refusal_without_acks_closes_the_connection(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)
    with Peer(broker) as careless:
        careless.send(produce_request(name, damaged(batch(b"x")), acks=0), 9)
        assert careless.wait_closed() == b""
    assert values(fetch(peer, name)) == []


def demand_in_sync(broker: RunningBroker, name: str, least: int) -> None:
    """As if the partition had that many replicas, and this one alone were in sync."""

    async def change(node: Node) -> None:
        partition = node.find(name, NO_ID, 0)
        assert isinstance(partition, Partition)
        leading = partition.require_leader()
        leading.members = dataclasses.replace(leading.members, insync_min=least)

    broker.do(change)


def test_too_few_replicas_in_sync_take_no_message_that_wants_all_acks(
    broker: RunningBroker, peer: Peer, name: str
) -> None:
    create(peer, name)
    demand_in_sync(broker, name, 2)
    refused = produce(peer, name, batch(b"x"), acks=-1)
    assert refused.error_code == 19
    assert "min.insync.replicas" in refused.error_message


def test_no_more_replicas_must_be_in_sync_than_there_are(peer: Peer, name: str) -> None:
    create(peer, name, min_insync_replicas="2")
    assert [produce(peer, name, batch(b"x"), acks=acks).error_code for acks in (-1, 1)] == [0, 0]


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_mean_nothing_are_refused(peer: Peer, name: str, acks: int) -> None:
    create(peer, name)
    assert produce(peer, name, batch(b"x"), acks=acks).error_code == 21
    assert values(fetch(peer, name)) == []


def test_requests_sent_without_waiting_are_appended_in_order(peer: Peer, name: str) -> None:
    create(peer, name)
    for number in range(50):
        peer.send(produce_request(name, batch(b"%d" % number)), 9)
    for _ in range(50):
        peer.receive_frame()
    assert values(fetch(peer, name)) == [b"%d" % number for number in range(50)]


def test_each_partition_is_answered_for_itself(peer: Peer, name: str) -> None:
    create(peer, name, partitions=2)
    parts = [
        PartitionProduceData(index=0, records=batch(b"good")),
        PartitionProduceData(index=1, records=damaged(batch(b"bad"))),
        PartitionProduceData(index=2, records=batch(b"nowhere")),
    ]
    topics = [TopicProduceData(name=name, partition_data=parts)]
    answers = peer.ask(ProduceRequest(acks=-1, topic_data=topics), 9).responses[0].partition_responses
    assert [(each.index, each.error_code) for each in answers] == [(0, 0), (1, 2), (2, 3)]
    assert values(fetch(peer, name)) == [b"good"]


def test_a_topic_that_is_not_there_is_unknown(peer: Peer, name: str) -> None:
    answer = produce(peer, name, batch(b"x"))
    assert (answer.error_code, answer.base_offset) == (3, -1)


def test_a_topic_goes_by_its_id(peer: Peer, name: str) -> None:
    topic_id = create(peer, name)
    assert produce(peer, "", batch(b"x"), topic_id=topic_id, version=13).error_code == 0
    assert values(fetch(peer, "", topic_id=topic_id, version=13)) == [b"x"]
    assert produce(peer, "", batch(b"x"), topic_id=b"\1" * 16, version=13).error_code == 100


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (damaged(batch(b"value")), 2),
        (batch(b"value")[:-3], 87),
        (b"short", 87),
        (b"", 87),
        (None, 87),
        (batch(b"one") + batch(b"two"), 87),
        (batch(b"value")[:16] + b"\x01" + batch(b"value")[17:], 87),
        (batch(bytes(2_000_000)), 10),
    ],
    ids=["damaged", "cut", "tiny", "empty", "null", "two batches", "old format", "too large"],
)
def test_bytes_that_are_no_batch_to_take_are_refused(peer: Peer, name: str, records: bytes | None, code: int) -> None:
    create(peer, name)
    answer = produce(peer, name, records)
    assert answer.error_code == code
    assert answer.error_message
    assert produce(peer, name, batch(b"next")).base_offset == 0


def test_the_largest_batch_is_the_topics_own_to_say(peer: Peer, name: str) -> None:
    fits = batch(bytes(900))
    create(peer, name, max_message_bytes=str(len(fits)))
    assert produce(peer, name, fits).error_code == 0
    assert produce(peer, name, batch(bytes(901))).error_code == 10


def test_a_compacted_topic_refuses_records_without_a_key(peer: Peer, name: str) -> None:
    create(peer, name, cleanup_policy="compact")
    keyed = encode_batch([NewRecord(b"v", b"k", now_ms())])
    half_keyed = encode_batch([NewRecord(b"v", b"k", now_ms()), NewRecord(b"v", None, now_ms())])
    assert produce(peer, name, keyed).error_code == 0
    refused = produce(peer, name, half_keyed)
    assert refused.error_code == 87
    assert [each.batch_index for each in refused.record_errors] == [1]
    assert values(fetch(peer, name)) == [b"v"]


def test_times_too_far_from_now_are_refused(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    now = clock.wall_ms()
    with running(tmp_path, clock=clock) as broker, Peer(broker) as peer:
        create(peer, name, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="500")
        codes = [
            produce(peer, name, batch(b"x", timestamp=TimestampMs(now + ahead))).error_code
            for ahead in (-1001, -1000, 0, 500, 501)
        ]
    assert codes == [32, 0, 0, 0, 32]


def test_each_record_is_looked_at_where_old_ones_are_refused(peer: Peer, name: str) -> None:
    create(peer, name, message_timestamp_before_max_ms="100000")
    times = (now_ms(), now_ms() - 200_000, now_ms())
    refused = produce(peer, name, encode_batch([NewRecord(b"x", None, TimestampMs(each)) for each in times]))
    assert refused.error_code == 32
    assert [each.batch_index for each in refused.record_errors] == [1]
    assert "allows 100000 ms before" in refused.record_errors[0].batch_index_error_message


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(("kind", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
def test_a_topic_can_have_batches_compressed_its_own_way(
    peer: Peer, name: str, kind: str, codec: int, time: str
) -> None:
    create(peer, name, compression_type=kind, message_timestamp_type=time)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    for sent_as in Codec:
        records = batch(
            b"a" * 500,
            b"b",
            codec=sent_as,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(2 * sent_as),
        )
        offsets = [produce(peer, name, records).base_offset for _ in range(2)]
        assert offsets == [2 * sent_as] * 2, "the second is known again, though it is kept otherwise"
    fetched = fetch(peer, name)
    assert values(fetched) == [b"a" * 500, b"b"] * len(Codec)
    assert {header.codec for _, header in iter_batches(fetched.records)} == {codec}


def test_a_batch_that_cannot_be_compressed_anew_is_refused(peer: Peer, name: str) -> None:
    create(peer, name, compression_type="gzip")
    assert produce(peer, name, damaged(batch(b"x"))).error_code == 2
    small = batch(b"x")
    assert produce(peer, name, small[:-1]).error_code == 87


def test_zstd_is_for_those_who_know_it(peer: Peer, name: str) -> None:
    create(peer, name)
    records = batch(b"x", codec=Codec.ZSTD)
    assert [produce(peer, name, records, version=version).error_code for version in (6, 7)] == [76, 0]


def test_a_topic_can_stamp_its_own_time(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with running(tmp_path, clock=clock) as broker, Peer(broker) as peer:
        create(peer, name, message_timestamp_type="LogAppendTime")
        answer = produce(peer, name, batch(b"x", timestamp=TimestampMs(5)))
        assert (answer.error_code, answer.log_append_time_ms) == (0, clock.wall_ms())
        stored = parse_header(bytes(fetch(peer, name).records))
        assert stored.max_timestamp == clock.wall_ms()
        assert stored.is_log_append_time
        assert list_offset(peer, name, clock.wall_ms()).offset == 0
        assert list_offset(peer, name, clock.wall_ms() + 1).offset == -1


@pytest.mark.parametrize(
    ("time", "policy"), [("LogAppendTime", "delete"), ("CreateTime", "compact")], ids=["stamped", "compacted"]
)
def test_a_damaged_batch_is_refused_by_topics_that_look_inside(peer: Peer, name: str, time: str, policy: str) -> None:
    create(peer, name, message_timestamp_type=time, cleanup_policy=policy)
    assert produce(peer, name, damaged(encode_batch([NewRecord(b"value", b"k", now_ms())]))).error_code == 2


def idempotent(producer_id: int, sequence: int, *contents: bytes, epoch: int = 0) -> bytes:
    return batch(
        *contents,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=Sequence(sequence),
    )


def test_a_batch_sent_again_is_answered_with_its_first_offset(peer: Peer, name: str) -> None:
    create(peer, name)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    produce(peer, name, batch(b"before"))
    first = idempotent(producer, 0, b"a", b"b")
    offsets = [produce(peer, name, first).base_offset, produce(peer, name, first).base_offset]
    second = produce(peer, name, idempotent(producer, 2, b"c"))
    again = produce(peer, name, first)
    assert offsets == [1, 1]
    assert second.base_offset == 3
    assert (again.error_code, again.base_offset) == (0, 1)
    assert values(fetch(peer, name)) == [b"before", b"a", b"b", b"c"]


def test_what_was_sent_behind_a_refused_batch_is_refused_alike(peer: Peer, name: str) -> None:
    """A producer that hears of a gap begins a new epoch, and sends again what other partitions have kept."""
    create(peer, name)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id

    def send(sequence: int, *, harmed: bool = False) -> int:
        records = idempotent(producer, sequence, b"%d" % sequence)
        code: int = produce(peer, name, damaged(records) if harmed else records).error_code
        return code

    assert [send(0), send(1, harmed=True), send(2), send(3)] == [0, 2, 2, 2]
    assert send(2) == 45, "it came again without the one before it"
    assert [send(1, harmed=True), send(2)] == [2, 2]
    assert [send(1), send(2), send(3), send(5)] == [0, 0, 0, 45]
    assert values(fetch(peer, name)) == [b"0", b"1", b"2", b"3"]


def test_what_was_sent_behind_a_refused_first_batch_is_not_taken_for_the_first(peer: Peer, name: str) -> None:
    create(peer, name)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    first, second = idempotent(producer, 0, b"a"), idempotent(producer, 1, b"b")
    assert [produce(peer, name, each).error_code for each in (damaged(first), second)] == [2, 2]
    assert [produce(peer, name, each, acks=1).error_code for each in (first, second)] == [0, 0]
    assert values(fetch(peer, name)) == [b"a", b"b"]


def test_what_was_sent_behind_batches_for_a_partition_not_known_yet_is_not_taken_for_the_first(
    peer: Peer, name: str
) -> None:
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    first, second, third = (idempotent(producer, sequence, b"%d" % sequence) for sequence in range(3))
    assert produce(peer, name, first).error_code == 3
    create(peer, name)
    assert [produce(peer, name, each).error_code for each in (second, third)] == [6, 6]
    assert [produce(peer, name, each).error_code for each in (first, second, third)] == [0, 0, 0]
    assert values(fetch(peer, name)) == [b"0", b"1", b"2"]


def test_a_producer_that_was_forgotten_is_believed_when_it_sends_again(peer: Peer, name: str) -> None:
    create(peer, name)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    batches = [idempotent(producer, sequence, b"%d" % sequence) for sequence in (5, 6)]
    assert [produce(peer, name, each).error_code for each in batches * 2] == [6, 6, 0, 0]
    assert values(fetch(peer, name)) == [b"5", b"6"]


def test_a_gap_and_an_epoch_that_is_over_are_refused(peer: Peer, name: str) -> None:
    create(peer, name)
    producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    assert produce(peer, name, idempotent(producer, 0, b"a")).error_code == 0
    assert produce(peer, name, idempotent(producer, 2, b"c")).error_code == 45
    assert produce(peer, name, idempotent(producer, 0, b"n", epoch=1)).error_code == 0
    assert produce(peer, name, idempotent(producer, 1, b"o", epoch=0)).error_code == 47


def test_nobody_names_the_number_it_gets(peer: Peer) -> None:
    known = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
    for brought in (known, 999_999):
        answer = peer.ask(InitProducerIdRequest(transactional_id=None, producer_id=brought, producer_epoch=3))
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id not in (known, 999_999)


@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 5}, {"transactional_id": ""}])
def test_half_an_identity_is_refused(peer: Peer, half: dict[str, Any]) -> None:
    answer = peer.ask(InitProducerIdRequest(**{"transactional_id": None, **half}))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (42, -1, -1)


def test_no_two_producers_get_the_same_number(broker: RunningBroker, peer: Peer) -> None:
    with Peer(broker) as other:
        numbers = [each.ask(InitProducerIdRequest(transactional_id=None)).producer_id for each in [peer, other] * 20]
    assert len(set(numbers)) == 40


def metadata(peer: Peer, name: str, *, allow: bool = True) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allow)
    code: int = peer.ask(request).topics[0].error_code
    return code


def test_a_topic_is_created_when_it_is_first_named_where_that_is_allowed(peer: Peer, name: str) -> None:
    assert metadata(peer, name, allow=False) == 3
    assert metadata(peer, name) == 0
    assert produce(peer, name, batch(b"x")).error_code == 0


def test_a_name_that_is_no_topic_is_not_created(peer: Peer) -> None:
    assert metadata(peer, "no topic!") == 17
    assert metadata(peer, "no topic!", allow=False) == 17


def test_no_topic_is_created_where_the_broker_forbids_it(tmp_path: Path, name: str) -> None:
    with running(tmp_path, auto_create_topics_enable="false") as broker, Peer(broker) as peer:
        assert metadata(peer, name) == 3
        assert produce(peer, name, batch(b"x")).error_code == 3


def test_topics_records_and_producers_survive_a_restart(tmp_path: Path, name: str) -> None:
    with running(tmp_path) as broker, Peer(broker) as peer:
        topic_id = create(peer, name, partitions=2, retention_ms="-1")
        producer = peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id
        produce(peer, name, idempotent(producer, 0, b"a", b"b"))
        produce(peer, name, batch(b"other"), partition=1)
    with running(tmp_path) as broker, Peer(broker) as peer:
        assert values(fetch(peer, "", topic_id=topic_id, version=13)) == [b"a", b"b"]
        assert values(fetch(peer, name, partition=1)) == [b"other"]
        assert produce(peer, name, idempotent(producer, 0, b"a", b"b")).base_offset == 0
        assert produce(peer, name, idempotent(producer, 2, b"c")).base_offset == 2
        assert peer.ask(InitProducerIdRequest(transactional_id=None)).producer_id > producer
