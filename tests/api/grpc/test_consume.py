"""Consume and FetchBatches: from where, until when, and what it costs to wait for a reader."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.model.ids import TimestampMs
from millpond.model.limits import MIB
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, parse_header
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused


def fill(door: Door, topic: str, count: int, **options: Any) -> None:  # noqa: ANN401
    door.produce(*[wire.NewMessage(topic=topic, value=b"%d" % number, **options) for number in range(count)])


def numbers(messages: list[wire.Message]) -> list[int]:
    return [int(each.value) for each in messages]


def test_it_ends_where_the_topic_ended(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("ending")
    assert door.consume("ending") == []
    fill(door, "ending", 3_000)
    assert numbers(door.consume("ending")) == list(range(3_000))
    assert numbers(door.consume("ending", start=wire.Start(offset=2_990))) == list(range(2_990, 3_000))
    assert numbers(door.consume("ending", count=5)) == list(range(5))
    assert door.consume("ending", start=wire.Start(latest=True)) == []
    assert numbers(door.consume("ending", start=wire.Start(earliest=True), count=1)) == [0]


def test_who_starts_behind_the_end_is_refused_also_where_nothing_is_followed(
    broker: InProcessBroker, door: Door
) -> None:
    broker.create_topic("behind")
    fill(door, "behind", 3)
    assert door.consume("behind", partition=0, start=wire.Start(offset=3)) == []
    with refused(
        grpc.StatusCode.OUT_OF_RANGE, "offset_out_of_range", naming="offset 4 is not in behind-0, which has 0 to 3"
    ):
        door.consume("behind", partition=0, start=wire.Start(offset=4))
    request = wire.FetchBatchesRequest(topic="behind", partition=0, start=wire.Start(offset=4))
    with refused(grpc.StatusCode.OUT_OF_RANGE, "offset_out_of_range"):
        list(door.messages.FetchBatches(request, timeout=SECONDS_MAX))


def test_it_starts_at_a_time(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("timed")
    now_ms = broker.clock.wall_ms()
    for number in range(10):
        door.produce(wire.NewMessage(topic="timed", value=b"%d" % number, timestamp_ms=now_ms - 1_000 + number * 10))
    start = wire.Start(timestamp_ms=now_ms - 1_000 + 55)
    assert numbers(door.consume("timed", start=start)) == [6, 7, 8, 9]
    assert door.consume("timed", start=wire.Start(timestamp_ms=now_ms + 1_000)) == []


def test_all_partitions_come_each_in_its_order(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("several", partitions=3)
    for partition in range(3):
        fill(door, "several", 2_500, partition=partition)
    messages = door.consume("several")
    for partition in range(3):
        assert numbers([each for each in messages if each.partition == partition]) == list(range(2_500))
    assert numbers(door.consume("several", partition=2)) == list(range(2_500))


def test_next_offset_is_where_to_go_on(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("going-on")
    for _ in range(20):
        door.produce(*[wire.NewMessage(topic="going-on", value=b"x" * 50_000)] * 10)
    offset, answers = 0, 0
    for answer in door.messages.Consume(wire.ConsumeRequest(topic="going-on"), timeout=SECONDS_MAX):
        assert [each.offset for each in answer.messages] == list(range(offset, answer.next_offset))
        offset, answers = answer.next_offset, answers + 1
    assert offset == 200
    assert answers > 10, "one answer holds little"


def test_a_follower_gets_what_comes_later(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("following", partitions=2)
    request = wire.ConsumeRequest(topic="following", follow=True)
    answers = door.messages.Consume(request, timeout=SECONDS_MAX)
    for number in range(5):
        door.produce(wire.NewMessage(topic="following", value=b"%d" % number, partition=number % 2))
        (message,) = next(answers).messages
        assert (message.partition, message.value) == (number % 2, b"%d" % number)
    answers.cancel()


def waiters(broker: InProcessBroker, topic: str) -> int:
    async def count() -> int:
        partition = broker.broker.node.partitions.named(topic, 0)
        assert partition is not None
        return len(partition._waiting)

    return broker.run(count)


def wait_for(broker: InProcessBroker, topic: str, wanted: int) -> None:
    """Each look is a turn of the broker's loop; a test that waits in vain is ended from outside."""
    while waiters(broker, topic) != wanted:
        pass


def test_a_deadline_ends_the_wait_and_frees_what_it_held(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("deadline")
    answers = door.messages.Consume(wire.ConsumeRequest(topic="deadline", follow=True), timeout=0.3)
    wait_for(broker, "deadline", 1)
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for(broker, "deadline", 0)


@pytest.mark.parametrize("call", ["Consume", "FetchBatches"])
def test_a_cancelled_call_frees_what_it_held(broker: InProcessBroker, door: Door, call: str) -> None:
    topic = f"cancelled-{call}"
    broker.create_topic(topic)
    request = {"Consume": wire.ConsumeRequest, "FetchBatches": wire.FetchBatchesRequest}[call](topic=topic, follow=True)
    answers = getattr(door.messages, call)(request, timeout=SECONDS_MAX)
    wait_for(broker, topic, 1)
    answers.cancel()
    wait_for(broker, topic, 0)
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_a_connection_that_is_gone_frees_what_it_held(broker: InProcessBroker) -> None:
    broker.create_topic("gone")
    with grpc.insecure_channel(broker.grpc_address) as channel:
        answers = Door(channel).messages.Consume(wire.ConsumeRequest(topic="gone", follow=True))
        wait_for(broker, "gone", 1)
        del answers
    wait_for(broker, "gone", 0)


def test_what_cannot_be_read_is_refused(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("two", partitions=2)
    missing, invalid = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT
    with refused(missing, "unknown_topic_or_partition", naming="nowhere"):
        door.consume("nowhere")
    with refused(missing, "unknown_topic_or_partition", naming="partition 2 of two"):
        door.consume("two", partition=2)
    with refused(invalid, "invalid_field", naming="partition is -1"):
        door.consume("two", partition=-1)
    with refused(invalid, "invalid_field", naming="an offset is of one partition"):
        door.consume("two", start=wire.Start(offset=0))
    with refused(invalid, "invalid_field", naming="start.offset is -1"):
        door.consume("two", partition=0, start=wire.Start(offset=-1))
    with refused(grpc.StatusCode.OUT_OF_RANGE, "offset_out_of_range"):
        door.consume("two", partition=0, start=wire.Start(offset=7), follow=True)
    with refused(missing, "unknown_topic_or_partition"):
        list(door.messages.FetchBatches(wire.FetchBatchesRequest(topic="nowhere"), timeout=SECONDS_MAX))


# Raw batches, and a reader that is slow


def batches_of(data: bytes) -> Iterator[memoryview]:
    position = 0
    while position < len(data):
        size = parse_header(data, position).size
        yield memoryview(data)[position : position + size]
        position += size


def test_raw_batches_come_as_they_were_sent(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("as-sent")
    now_ms = TimestampMs(broker.clock.wall_ms())
    sent = [bytes(encode_batch([NewRecord(b"%d" % number, None, now_ms)] * 3)) for number in range(10)]
    door.append(*[wire.ProduceBatchRequest(topic="as-sent", partition=0, batch=batch) for batch in sent])
    request = wire.FetchBatchesRequest(topic="as-sent", start=wire.Start(offset=4))
    answers = list(door.messages.FetchBatches(request, timeout=SECONDS_MAX))
    records = [record for answer in answers for batch in batches_of(answer.batches) for record in decode_batch(batch)]
    assert [(each.offset, each.value) for each in records] == [
        (offset, b"%d" % (offset // 3)) for offset in range(3, 30)
    ]
    assert answers[-1].next_offset == 30


@pytest.mark.parametrize("call", ["Consume", "FetchBatches"])
def test_a_slow_reader_is_not_read_ahead_for(broker: InProcessBroker, door: Door, call: str) -> None:
    topic, batches, size = f"slow-{call}", 96, 500_000
    broker.create_topic(topic)
    now_ms = TimestampMs(broker.clock.wall_ms())
    batch = bytes(encode_batch([NewRecord(bytes(size // 10), None, now_ms)] * 10))
    append = [wire.ProduceBatchRequest(topic=topic, partition=0, batch=batch)] * batches
    assert [each.base_offset for each in door.append(*append)] == list(range(0, batches * 10, 10))

    async def fetched_bytes() -> int:
        partition = broker.broker.node.partitions.named(topic, 0)
        assert partition is not None
        return partition.fetched_bytes

    request = {"Consume": wire.ConsumeRequest, "FetchBatches": wire.FetchBatchesRequest}[call](topic=topic)
    # Without the probe, by which gRPC takes more and more ahead of its reader, up to 16 MiB and what is on the way.
    options = [("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(broker.grpc_address, options=options) as channel:
        answers = getattr(Door(channel).messages, call)(request, timeout=SECONDS_MAX)
        next(answers)
        for _ in range(200):  # the broker answers others meanwhile, and could have read everything
            door.produce(wire.NewMessage(topic="meanwhile", value=b"x"))
        assert broker.run(fetched_bytes) < 16 * MIB
        last = deque(answers, maxlen=1)[0]
    assert last.next_offset == batches * 10
    assert broker.run(fetched_bytes) >= batches * size
