"""When a produce is answered that waits for a sync, and with what: through the dispatcher, on a simulated disk."""

import asyncio
import errno

import pytest

from millpond.api.kafka.dispatch import Dispatcher
from millpond.app.broker import Broker
from millpond.broker.drivers.partition import Partition
from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.net.answers import Answer, Promise
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.headers import parse_response_header, request_frame
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millpond.protocol.records import encode_values
from millpond.testing import SimDisk, Simulation
from tests.broker.test_drivers import create, on_a_simulated_disk, start

VERSION = 9
NOT_LEADER, STORAGE_ERROR = 6, 56
Answering = asyncio.Future[Answer | None]


class Client:
    """One connection, as the dispatcher sees it."""

    peer = ("127.0.0.1", 1)
    extra = None

    def __init__(self, broker: Broker) -> None:
        self._dispatcher = Dispatcher()
        self._dispatcher.open(broker.node)

    def close(self) -> None:
        pytest.fail("the connection was closed")

    def answer_alone(self) -> None:
        pass

    def when_lost(self, then: object) -> None:
        pass

    def produce(self, *, acks: int = -1, partitions: int = 1) -> Answering:
        batch = encode_values([b"value"], timestamp=TimestampMs(1))
        parts = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
        topics = [TopicProduceData(name="orders", partition_data=parts)]
        request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)
        frame = b"".join(request_frame(request, VERSION, correlation_id=1, client_id="test"))
        promise = self._dispatcher.handle(memoryview(bytearray(frame[4:])), self)
        assert isinstance(promise, Promise)
        return awaited(promise)


def awaited(promise: Promise) -> Answering:
    """Who cancels it is as a connection that is gone."""
    answering: Answering = asyncio.get_running_loop().create_future()

    def settle(promise: Promise) -> None:
        try:
            answering.set_result(promise.result())
        except Exception as error:
            answering.set_exception(error)

    promise.when_done(settle)
    answering.add_done_callback(lambda ended: promise.abandon() if ended.cancelled() else None)
    return answering


def told(answering: Answering) -> list[PartitionProduceResponse]:
    frame = memoryview(b"".join(answering.result() or ()))
    _, position = parse_response_header(frame, header_version=1)
    return decode(ProduceResponse, frame, VERSION, position)[0].responses[0].partition_responses


def led(broker: Broker, number: int = 0) -> Partition:
    partition = broker.node.partitions.named("orders", number)
    assert partition is not None
    return partition


async def until_told(answering: Answering) -> list[PartitionProduceResponse]:
    await asyncio.wait([answering])
    return told(answering)


@pytest.mark.parametrize("acks", [-1, 1])
def test_an_answer_is_made_when_its_bytes_are_synced_and_not_before(acks: int) -> None:
    async def steps(sim: Simulation, disk: SimDisk) -> None:
        broker = await start(sim, disk)
        await create(broker, "orders")
        client, log = Client(broker), led(broker).log
        durable: list[int] = []
        first = client.produce(acks=acks)
        first.add_done_callback(lambda _: durable.append(log.durable_offset))
        while log._syncing_to < 1:  # noqa: ASYNC110 - its round runs and covers it, and nobody tells when
            await asyncio.sleep(0)
        second = client.produce(acks=acks)  # which that round does not cover
        await asyncio.wait([first])
        assert log.durable_offset == 1
        assert not second.done()
        [answer] = await until_told(second)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert log.durable_offset == 2
        assert durable == [1]
        await broker.stop()

    on_a_simulated_disk(steps)()


@on_a_simulated_disk
async def test_a_request_for_several_partitions_is_answered_when_all_are_synced(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders", partitions=3)
    answers = await until_told(Client(broker).produce(partitions=3))
    assert [(each.index, each.error_code, each.base_offset) for each in answers] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert [led(broker, number).log.durable_offset for number in range(3)] == [1, 1, 1]
    await broker.stop()


@on_a_simulated_disk
async def test_what_the_disk_could_not_sync_is_refused(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    client = Client(broker)
    answers = [client.produce(), client.produce(acks=1)]
    disk.fail("sync", error=errno.EIO)
    assert [(await until_told(each))[0].error_code for each in answers] == [STORAGE_ERROR] * 2
    await broker.stop()


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_was_synced_after_another_came_to_lead_is_not_acknowledged(acks: int) -> None:
    """Even where this broker knows by then that something at the same offset is kept everywhere."""

    async def steps(sim: Simulation, disk: SimDisk) -> None:
        broker = await start(sim, disk)
        await create(broker, "orders")
        partition = led(broker)
        answering = Client(broker).produce(acks=acks)
        partition.follow(LeaderEpoch(partition.leader_epoch + 1))
        partition.learn_high_watermark(partition.log.next_offset)
        [answer] = await until_told(answering)
        assert answer.error_code == NOT_LEADER
        await broker.stop()

    on_a_simulated_disk(steps)()


@on_a_simulated_disk
async def test_a_client_that_is_gone_before_the_sync_keeps_nobody_from_an_answer(
    sim: Simulation, disk: SimDisk
) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    client = Client(broker)
    gone, there = client.produce(), client.produce()
    gone.cancel()
    [answer] = await until_told(there)
    assert (answer.error_code, answer.base_offset) == (0, 1)
    await broker.stop()


@on_a_simulated_disk
async def test_a_bug_in_one_answer_fails_that_one_alone(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    partition = led(broker)
    client = Client(broker)
    broken, whole = client.produce(), client.produce()
    known = type(partition).may_acknowledge

    def fail_once(self: Partition, *appended: object, **how: object) -> bool:
        patch.undo()
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "may_acknowledge", fail_once)
        [answer] = await until_told(whole)
    assert Partition.may_acknowledge is known
    assert isinstance(broken.exception(), ZeroDivisionError)
    assert answer.error_code == 0
    await broker.stop()
