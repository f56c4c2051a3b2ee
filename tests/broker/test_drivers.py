"""What a broker keeps beside the logs: metadata, partitions, producer ids, groups; whatever befalls it."""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import CommitOffsets, FetchOffsets, OffsetToCommit
from millpond.core.groups.records import OffsetCommitted
from millpond.core.groups.stores import OffsetChange, OffsetStore
from millpond.core.metadata.controller import NewTopic, TopicToDelete, create_topics, delete_topics
from millpond.model.errors import DiskFailed, InvalidRecord, InvalidSetting, StorageError
from millpond.model.ids import Offset, TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord, encode_batch, encode_values
from millpond.testing import SimDisk, Simulation, simulate

AT = TopicPartition("orders", 0)
Steps = Callable[[Simulation, SimDisk], Awaitable[None]]


def on_a_simulated_disk(steps: Steps) -> Callable[[], None]:
    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            await steps(sim, SimDisk(sim.loop.chance("disk")))

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


async def start(
    sim: Simulation,
    disk: SimDisk,
    *,
    node_id: int = 1,
    offset_store: OffsetStore | None = None,
    told: list[BaseException] | None = None,
) -> Broker:
    def fail(error: BaseException) -> None:
        if told is None:
            raise error
        told.append(error)

    configs = {"offsets.topic.num.partitions": "2"}
    settings = BrokerSettings(
        data_directory="data", node_id=node_id, port=0, configs=configs, offset_store=offset_store
    )
    return await Broker.start(settings, filesystem=disk, clock=sim.clock, rng=random.Random(7), on_error=fail)


async def create(broker: Broker, name: str, *, partitions: int = 1) -> None:
    node, wanted = broker.node, [NewTopic(name=name, partitions=partitions)]
    await node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))


async def delete(broker: Broker, name: str) -> None:
    node, wanted = broker.node, [TopicToDelete(name=name)]
    await node.metadata.decide(lambda image: delete_topics(image, wanted, static=node.static))


async def append(broker: Broker, topic: str, value: bytes) -> int:
    partition = broker.node.partitions.named(topic, 0)
    assert partition is not None
    appended = partition.append(bytearray(encode_values([value], timestamp=TimestampMs(1))))
    await partition.wait_visible(appended)
    return appended.base_offset


@on_a_simulated_disk
async def test_a_topic_that_nobody_uses_costs_the_disk_nothing_but_its_metadata(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    before = disk.list("data")
    await create(broker, "orders", partitions=1000)
    assert disk.list("data") == before
    assert await append(broker, "orders", b"first") == 0
    assert disk.list("data") == sorted([*before, "orders-0"])
    await delete(broker, "orders")
    await broker.stop()


@on_a_simulated_disk
async def test_a_topic_created_anew_finds_nothing_of_the_old_one(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    for number in range(3):
        await create(broker, "orders")
        assert await append(broker, "orders", b"%d" % number) == 0
        await delete(broker, "orders")
    await create(broker, "orders")
    disk.end_process()
    broker = await start(sim, disk)
    assert await append(broker, "orders", b"new") == 0
    await broker.stop()


@on_a_simulated_disk
async def test_what_could_not_be_opened_is_told_until_it_can_be(sim: Simulation, disk: SimDisk) -> None:
    told: list[BaseException] = []
    broker = await start(sim, disk, told=told)
    partitions = broker.node.partitions
    disk.make_directory("data/orders-0")  # by somebody else
    disk.fail("sync", path_pattern="data/orders-0/*", times=None)
    await create(broker, "orders")
    assert [type(each) for each in told] == [DiskFailed]
    await create(broker, "another")
    assert list(partitions.failures) == [AT]
    disk.heal()
    partitions.open_what_failed(broker.node.image)
    assert partitions.failures == {}
    assert await append(broker, "orders", b"first") == 0
    await broker.stop()


@on_a_simulated_disk
async def test_topics_and_records_are_there_after_a_restart_and_a_power_cut(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders", partitions=3)
    assert await append(broker, "orders", b"first") == 0
    await broker.stop()
    broker = await start(sim, disk)
    assert len(broker.node.image.topics["orders"].partitions) == 3
    assert await append(broker, "orders", b"second") == 1
    disk.crash()
    broker = await start(sim, disk)
    partition = broker.node.partitions.named("orders", 0)
    assert partition is not None
    assert partition.high_watermark == 2
    await broker.stop()


@on_a_simulated_disk
async def test_a_topic_created_anew_finds_nothing_of_the_one_that_was_deleted(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    await append(broker, "orders", b"old")
    await delete(broker, "orders")
    assert broker.node.partitions.named("orders", 0) is None
    await create(broker, "orders")
    assert await append(broker, "orders", b"new") == 0
    await broker.stop()
    assert [name for name in disk.list("data") if name.startswith("orders")] == ["orders-0"]


@on_a_simulated_disk
async def test_a_change_goes_on_when_whoever_asked_for_it_is_gone(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    asked = asyncio.create_task(create(broker, "orders"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await create(broker, "orders")  # as a client that tries again does
    assert "orders" in broker.node.image.topics
    await broker.stop()
    broker = await start(sim, disk)
    assert "orders" in broker.node.image.topics
    await broker.stop()


@on_a_simulated_disk
async def test_a_topic_that_is_made_while_the_broker_stops_leaves_no_file_open(sim: Simulation, disk: SimDisk) -> None:
    for turns in range(40):
        broker = await start(sim, disk)
        asked = asyncio.create_task(create(broker, f"made-{turns}", partitions=3))
        stopping = asyncio.create_task(broker.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked, stopping])
        await stopping
        assert disk.open_files == 0


@on_a_simulated_disk
async def test_producer_ids_are_given_out_once_even_across_a_power_cut(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    ids = await asyncio.gather(*(broker.node.producer_ids.take() for _ in range(20)))
    disk.crash()
    broker = await start(sim, disk)
    ids += [await broker.node.producer_ids.take() for _ in range(20)]
    assert len(set(ids)) == 40
    await broker.stop()


@on_a_simulated_disk
async def test_what_is_kept_is_seen_also_where_the_producer_has_hung_up(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    partition = broker.node.partitions.named("orders", 0)
    assert partition is not None
    partition.append(bytearray(encode_values([b"value"], timestamp=TimestampMs(1))))  # and nobody waits for it
    waiter = asyncio.get_running_loop().create_future()
    partition.add_waiter(waiter)
    await waiter
    assert partition.high_watermark == 1
    await broker.stop()


@on_a_simulated_disk
async def test_an_acknowledged_offset_survives_a_power_cut(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    assert await commit(broker, "readers", 17) == GroupError.NONE
    disk.crash()
    broker = await start(sim, disk)
    assert await committed(broker, "readers") == 17
    await broker.stop()


async def commit(broker: Broker, group: str, offset: int) -> int:
    """The answer's error, of the one partition."""
    offsets = (OffsetToCommit(AT, Offset(offset)),)
    answer = await broker.node.groups.ask(group, lambda token: CommitOffsets(token=token, offsets=offsets))
    [(_, error)] = answer.partitions
    return int(error)


async def committed(broker: Broker, group: str) -> int | None:
    found = await broker.node.groups.ask(group, lambda token: FetchOffsets(token=token, partitions=(AT,)))
    assert found.error == GroupError.NONE
    [(_, record)] = found.offsets
    return record.offset if record is not None else None


@on_a_simulated_disk
async def test_a_commit_that_the_disk_refuses_is_answered_so_and_the_groups_go_on(
    sim: Simulation, disk: SimDisk
) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    assert await commit(broker, "readers", 17) == GroupError.NONE
    disk.fail("write", error=errno.ENOSPC)
    assert await commit(broker, "readers", 18) == GroupError.COORDINATOR_NOT_AVAILABLE
    assert await committed(broker, "readers") == 17
    assert await commit(broker, "readers", 19) == GroupError.NONE
    disk.crash()
    broker = await start(sim, disk)
    assert await committed(broker, "readers") == 19
    await broker.stop()


@on_a_simulated_disk
async def test_a_record_of_groups_that_cannot_be_read_is_told_of_and_left_out(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await create(broker, "orders")
    assert await commit(broker, "readers", 17) == GroupError.NONE
    for number in range(2):
        partition = broker.node.partitions.named("__consumer_offsets", number)
        assert partition is not None
        nonsense = NewRecord(b"", key=b"\0\1\0\x09cut", timestamp=TimestampMs(1))
        await partition.wait_visible(partition.append(bytearray(encode_batch([nonsense]))))
    await broker.stop()
    told: list[BaseException] = []
    broker = await start(sim, disk, told=told)
    assert [type(error) for error in told] == [InvalidRecord] * 2
    assert await committed(broker, "readers") == 17
    await broker.stop()


class KeptInMemory:
    """An offset store that outlives brokers, and fails when told to."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, TopicPartition], OffsetCommitted] = {}
        self.failures: list[Exception] = []

    async def load(self) -> list[OffsetCommitted]:
        await asyncio.sleep(1)
        self._fail()
        return list(self.offsets.values())

    async def keep(self, changes: Sequence[OffsetChange]) -> None:
        await asyncio.sleep(1)
        self._fail()
        for each in changes:
            self.offsets.pop((each.group, each.at), None)
            if isinstance(each, OffsetCommitted):
                self.offsets[each.group, each.at] = each

    async def close(self) -> None:
        self.failures.append(ValueError("closed"))

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()


@on_a_simulated_disk
async def test_an_offset_store_keeps_offsets_in_place_of_the_log(sim: Simulation, disk: SimDisk) -> None:
    store = KeptInMemory()
    told: list[BaseException] = []
    broker = await start(sim, disk, offset_store=store, told=told)
    await create(broker, "orders")
    for group, offset in [("readers", 17), ("writers", 5), ("readers", 18)]:
        assert await commit(broker, group, offset) == GroupError.NONE
        assert store.offsets[group, AT].offset == offset
    store.failures.append(OSError("the database is away"))
    assert await commit(broker, "readers", 19) == GroupError.COORDINATOR_NOT_AVAILABLE
    assert await committed(broker, "readers") == 18
    await broker.stop()
    store.failures.clear()
    broker = await start(sim, disk, offset_store=store, told=told)
    assert [await committed(broker, group) for group in ("readers", "writers", "nobody")] == [18, 5, None]
    await broker.stop()
    assert [str(error) for error in told] == ["the database is away"]


@on_a_simulated_disk
async def test_while_an_offset_store_cannot_be_loaded_nobody_is_told_that_there_is_nothing(
    sim: Simulation, disk: SimDisk
) -> None:
    store = KeptInMemory()
    told: list[BaseException] = []
    broker = await start(sim, disk, offset_store=store, told=told)
    await create(broker, "orders")
    assert await commit(broker, "readers", 17) == GroupError.NONE
    await broker.stop()
    store.failures = [OSError("away")] * 2
    broker = await start(sim, disk, offset_store=store, told=told)
    found = await broker.node.groups.ask("readers", lambda token: FetchOffsets(token=token, partitions=(AT,)))
    assert found.error == GroupError.COORDINATOR_LOAD_IN_PROGRESS
    assert await committed(broker, "readers") == 17
    await broker.stop()


@on_a_simulated_disk
async def test_a_data_directory_belongs_to_one_node(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await broker.stop()
    with pytest.raises(InvalidSetting, match="belongs to node 1"):
        await start(sim, disk, node_id=2)


@on_a_simulated_disk
async def test_a_data_directory_that_does_not_say_whose_it_is_is_refused(sim: Simulation, disk: SimDisk) -> None:
    broker = await start(sim, disk)
    await broker.stop()
    path = "data/node"
    file = disk.open(path)
    file.write(0, [b"garbage"])
    file.close()
    with pytest.raises(StorageError, match="not known whose data this is; put that file back"):
        await start(sim, disk)
    disk.remove(path)
    await (await start(sim, disk)).stop()
