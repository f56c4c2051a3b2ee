"""Produce, ProduceStream and ProduceBatches: what is answered is kept, in order, and what is refused is told."""

import queue
from collections.abc import Iterator

import grpc
import pytest

from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.sending import MESSAGES_MAX
from millpond.client.hashing import murmur2
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, encode_batch
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused


def batch_of(broker: InProcessBroker, *values: bytes) -> bytes:
    now_ms = TimestampMs(broker.clock.wall_ms())
    return bytes(encode_batch([NewRecord(value, None, now_ms) for value in values]))


def test_messages_are_answered_with_their_places(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("places", partitions=3)
    messages = [wire.NewMessage(topic="places", value=b"%d" % number, partition=number % 3) for number in range(9)]
    assert door.produce(*messages) == [(number % 3, number // 3) for number in range(9)]
    assert door.produce() == []


def test_a_message_comes_back_as_it_was_sent(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("whole")
    now_ms = broker.clock.wall_ms()
    headers = [wire.Header(name="a", value=b"1"), wire.Header(name="a", value=b""), wire.Header(name="nothing")]
    full = wire.NewMessage(topic="whole", key=b"k", value=b"v", headers=headers, timestamp_ms=now_ms - 5)
    bare, empty = wire.NewMessage(topic="whole"), wire.NewMessage(topic="whole", key=b"", value=b"")
    door.produce(full, bare, empty)
    first, second, third = door.consume("whole")
    assert (first.key, first.value, list(first.headers), first.timestamp_ms) == (b"k", b"v", headers, now_ms - 5)
    assert not second.HasField("key")
    assert not second.HasField("value")
    assert third.HasField("key")
    assert third.HasField("value")
    assert [(each.topic, each.partition, each.offset) for each in (first, second, third)] == [
        ("whole", 0, number) for number in range(3)
    ]


def test_a_key_goes_where_kafkas_clients_put_it(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("keys", partitions=7)
    keys = [b"key-%d" % number for number in range(50)]
    places = door.produce(*[wire.NewMessage(topic="keys", key=key, value=b"") for key in keys])
    assert [partition for partition, _ in places] == [(murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]


def test_a_topic_is_made_for_who_writes_to_it(door: Door) -> None:
    assert door.produce(wire.NewMessage(topic="made", value=b"first")) == [(0, 0)]


def test_a_refused_request_says_why(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("refusing", configs={"max.message.bytes": "1000"})
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic_or_partition", naming="partition 1 of refusing"):
        door.produce(wire.NewMessage(topic="refusing", partition=1))
    with refused(invalid, "invalid_field", naming="messages[1].partition is -1"):
        door.produce(wire.NewMessage(topic="refusing"), wire.NewMessage(topic="refusing", partition=-1))
    with refused(invalid, "invalid_field", naming="timestamp_ms is -2"):
        door.produce(wire.NewMessage(topic="refusing", timestamp_ms=-2))
    with refused(invalid, "invalid_topic_name"):
        door.produce(wire.NewMessage(topic="no/topic"))
    with refused(invalid, "batch_too_large"):
        door.produce(wire.NewMessage(topic="refusing", value=b"x" * 2_000))
    with refused(invalid, "invalid_topic_name", naming="Millpond's own"):
        door.produce(wire.NewMessage(topic="__consumer_offsets", value=b"x"))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too_many_messages"):
        door.produce(*[wire.NewMessage(topic="refusing")] * (MESSAGES_MAX + 1))
    assert door.consume("refusing") == []


def test_of_many_messages_it_is_told_how_many_were_kept(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "1000"})
    broker.create_topic("roomy")
    messages = [wire.NewMessage(topic="roomy", value=b"kept"), wire.NewMessage(topic="small", value=b"x" * 2_000)]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "batch_too_large", naming="1 of 2 messages were not kept"):
        door.produce(*messages)
    assert [each.value for each in door.consume("roomy")] == [b"kept"]


def test_a_request_that_is_too_large_is_not_taken(broker: InProcessBroker, door: Door) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        door.produce(wire.NewMessage(topic="large", value=b"x" * (5 << 20)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stream_is_answered_in_order_and_goes_on_after_a_failure(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("stream")
    requests = [
        wire.ProduceRequest(messages=[wire.NewMessage(topic="stream", value=b"%d" % number)] * 2)
        for number in range(500)
    ]
    requests.insert(100, wire.ProduceRequest(messages=[wire.NewMessage(topic="stream", partition=9)]))
    answers = list(door.messages.ProduceStream(iter(requests), timeout=SECONDS_MAX))
    failed = answers.pop(100)
    assert (failed.failure.code, failed.failure.retriable) == ("unknown_topic_or_partition", False)
    assert "partition 9 of stream" in failed.failure.detail
    assert [place.offset for answer in answers for place in answer.places] == list(range(1_000))
    assert [each.value for each in door.consume("stream")] == [b"%d" % (number // 2) for number in range(1_000)]


def test_a_stream_answers_before_its_end(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("talk")
    sending: queue.SimpleQueue[wire.ProduceRequest | None] = queue.SimpleQueue()
    answers = door.messages.ProduceStream(iter(sending.get, None), timeout=SECONDS_MAX)
    for offset in range(3):
        sending.put(wire.ProduceRequest(messages=[wire.NewMessage(topic="talk", value=b"hello")]))
        assert next(answers).places[0].offset == offset
    sending.put(None)
    assert list(answers) == []


def test_raw_batches_are_kept_as_they_are(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("raw", partitions=2)
    batches = [batch_of(broker, b"%d-a" % number, b"%d-b" % number) for number in range(10)]
    requests = [wire.ProduceBatchRequest(topic="raw", partition=1, batch=batch) for batch in batches]
    assert [each.base_offset for each in door.append(*requests)] == list(range(0, 20, 2))
    values = [each.value for each in door.consume("raw", partition=1)]
    assert values == [b"%d-%s" % (number, which) for number in range(10) for which in (b"a", b"b")]


def hostile(batch: bytes) -> Iterator[tuple[wire.ProduceBatchRequest, str]]:
    yield wire.ProduceBatchRequest(topic="hostile", partition=0, batch=b""), "invalid_record"
    yield wire.ProduceBatchRequest(topic="hostile", partition=0, batch=b"no batch"), "invalid_record"
    yield wire.ProduceBatchRequest(topic="hostile", partition=0, batch=batch[:-1] + b"!"), "corrupt_batch"
    yield wire.ProduceBatchRequest(topic="hostile", partition=1, batch=batch), "unknown_topic_or_partition"
    yield wire.ProduceBatchRequest(topic="hostile", partition=-1, batch=batch), "invalid_request"
    yield wire.ProduceBatchRequest(topic="nowhere", partition=0, batch=batch), "unknown_topic_or_partition"


def test_a_batch_that_is_none_is_refused_and_the_next_is_kept(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("hostile")
    batch = batch_of(broker, b"good")
    requests, codes = zip(*hostile(batch), strict=True)
    *failed, kept = door.append(*requests, wire.ProduceBatchRequest(topic="hostile", partition=0, batch=batch))
    assert tuple(each.failure.code for each in failed) == codes
    assert (kept.base_offset, kept.HasField("failure")) == (0, False)
