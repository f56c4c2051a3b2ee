"""Three brokers, each with a gRPC door: any of them answers for what any of them leads."""

from collections.abc import Iterator

import grpc
import pytest

from millpond.api.grpc.proto.millpond.v1 import delays_pb2, groups_pb2, queues_pb2, topics_pb2
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.app.clock import SystemClock
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, decode_batch, encode_batch
from tests.api.grpc.asking import SECONDS_MAX, Door
from tests.api.three_brokers import NODES, Three

pytestmark = pytest.mark.slow

TOPIC = "everywhere"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Door]]:
    with Three(tmp_path_factory.mktemp("three")) as three:
        channels = {node: grpc.insecure_channel(f"127.0.0.1:{three.brokers[node].grpc_port}") for node in NODES}
        found = {node: Door(channel) for node, channel in channels.items()}
        while any(len(three.door(node).done("GET", "/api/v1/cluster")["brokers"]) < 3 for node in NODES):
            pass
        wanted = topics_pb2.CreateTopicRequest(name=TOPIC, partitions=3, replication_factor=3)
        created = found[1].topics.CreateTopic(wanted, timeout=SECONDS_MAX)
        assert {each.leader for each in created.partitions} == set(NODES)
        while any(three.door(node).get(f"/api/v1/topics/{TOPIC}").status != 200 for node in NODES):
            pass
        yield found
        for channel in channels.values():
            channel.close()


def test_messages_and_batches_go_through_every_broker(doors: dict[int, Door]) -> None:
    for partition in range(3):
        for number, door in enumerate(doors.values()):
            message = wire.NewMessage(topic=TOPIC, partition=partition, value=b"message")
            assert door.produce(message) == [(partition, 2 * number)]
            batch = bytes(encode_batch([NewRecord(b"raw", None, TimestampMs(SystemClock().wall_ms()))]))
            (kept,) = door.append(wire.ProduceBatchRequest(topic=TOPIC, partition=partition, batch=batch))
            assert (kept.base_offset, kept.failure.code) == (2 * number + 1, "")
    for door in doors.values():
        messages = door.consume(TOPIC)
        for partition in range(3):
            found = [(each.offset, each.value) for each in messages if each.partition == partition]
            assert found == [(offset, b"raw" if offset % 2 else b"message") for offset in range(6)]
            request = wire.FetchBatchesRequest(topic=TOPIC, partition=partition, start=wire.Start(offset=5))
            (answer,) = door.messages.FetchBatches(request, timeout=SECONDS_MAX)
            assert [each.value for each in decode_batch(memoryview(answer.batches))] == [b"raw"]
            assert answer.next_offset == 6


def test_queues_delays_and_groups_are_served_by_every_broker(doors: dict[int, Door]) -> None:
    first, second, third = doors.values()
    sent = [queues_pb2.NewQueueMessage(key=b"%d" % number, value=b"%d" % number) for number in range(30)]
    answer = first.queues.Send(queues_pb2.SendRequest(topic="shared", messages=sent), timeout=SECONDS_MAX)
    assert len(answer.messages) == 30
    found: list[bytes] = []
    while len(found) < 30:
        received = second.queues.Receive(queues_pb2.ReceiveRequest(topic="shared", group="crew", wait_ms=10_000))
        found += [each.message.value for each in received.messages]
        receipts = [each.receipt for each in received.messages]
        settled = third.queues.Ack(queues_pb2.AckRequest(topic="shared", group="crew", receipts=receipts))
        assert (settled.settled, list(settled.refused)) == (len(receipts), [])
    assert sorted(found, key=int) == [b"%d" % number for number in range(30)]
    for door in doors.values():
        lag = door.groups.GetLag(groups_pb2.GetLagRequest(group="crew"), timeout=SECONDS_MAX)
        assert (len(lag.partitions) > 0, lag.messages) == (True, 0)
    later = queues_pb2.NewQueueMessage(value=b"later", delay_ms=3_600_000)
    (parked,) = first.queues.Send(queues_pb2.SendRequest(topic="shared", messages=[later])).messages
    for door in doors.values():
        page = door.delays.ListDelays(delays_pb2.ListDelaysRequest(topic="shared"), timeout=SECONDS_MAX)
        assert [each.message_id for each in page.messages] == [parked.message_id]
    third.delays.CancelDelay(delays_pb2.CancelDelayRequest(message_id=parked.message_id), timeout=SECONDS_MAX)
