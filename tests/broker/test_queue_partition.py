"""A queue group on a partition of a real broker, on a simulated machine: what it hands out, and who is woken."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_keeper import QueueKeeper
from millpond.broker.drivers.queue_partition import QueuePartition, Taken, Want
from millpond.broker.drivers.queue_reader import AHEAD_BYTES
from millpond.broker.operations import share
from millpond.core.delivery.headers import PRIORITY, TTL_MS
from millpond.core.delivery.ledger import Change, Ledger, Verdict
from millpond.core.delivery.sessions import PartitionId
from millpond.core.delivery.states import Outcome
from millpond.model.errors import LeaseLost
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import NewRecord, encode_batch
from millpond.storage.segment import Slice
from millpond.storage.segments import Segments
from millpond.testing import Simulation
from tests.broker.clusters import Machine, SimCluster

WAIT_MS = 60_000
T = TypeVar("T")
Scenario = Callable[[Machine, Partition], Awaitable[T]]


def on_a_broker(scenario: Scenario[T], **configs: str) -> T:
    async def run(sim: Simulation) -> T:
        named = {name.replace("__", "."): value for name, value in configs.items()}
        cluster = SimCluster(sim, 1, configs=named)
        await cluster.start_all()
        machine = cluster[1]
        assert machine.broker is not None
        assert await machine.create_topic("jobs")
        partition = machine.broker.node.partitions.named("jobs", 0)
        assert partition is not None
        result = await machine.host.run(as_coroutine(scenario(machine, partition)))
        await cluster.stop_all()
        return result

    with Simulation(7, steps_max=200_000) as simulation:
        return simulation.run(run)


async def as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def append(
    machine: Machine, partition: Partition, *headers: tuple[str, bytes], count: int = 1, key: bytes | None = None
) -> None:
    stamp = TimestampMs(machine.cluster.sim.clock.wall_ms())
    records = [NewRecord(b"x", key=key, timestamp=stamp, headers=headers) for _ in range(count)]
    await partition.wait_visible(partition.append(bytearray(encode_batch(records))))


async def opened(machine: Machine, partition: Partition) -> QueuePartition:
    assert machine.broker is not None
    return await machine.broker.node.queues.at("g", partition)


async def receive(
    queue: QueuePartition, count: int = 1, *, holder: str = "anna", bytes_max: int = 1 << 20
) -> list[int]:
    taken = queue.take(Want(holder, count, bytes_max, lock_ms=600_000))
    await queue.keep()
    return [at for each in taken.deliveries for at in range(each.first, each.last + 1)]


def test_what_comes_later_with_a_higher_priority_goes_first() -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[int]:
        queue = await opened(machine, partition)
        await append(machine, partition, (PRIORITY, b"low"), count=5)
        first = await receive(queue)
        await append(machine, partition, (PRIORITY, b"high"))
        return first + await receive(queue, 2)

    assert on_a_broker(scenario, millpond__priority="strict") == [0, 5, 1]


def test_consumers_that_have_enough_do_not_wake_one_another() -> None:
    """It would go on without time passing: the simulation counts the steps."""

    async def scenario(machine: Machine, partition: Partition) -> None:
        assert machine.broker is not None
        node, at = machine.broker.node, PartitionId(partition.topic_id, 0)
        await append(machine, partition, count=10)
        queue = await opened(machine, partition)
        wants = [Want(holder, 5, 1 << 20, lock_ms=600_000) for holder in ("anna", "bert")]
        for want in wants:
            await receive(queue, 5, holder=want.holder)
        assert queue.ledger.ready
        results = await asyncio.gather(*(share.take(node, "g", [at], want, wait_ms=5000) for want in wants))
        assert results == [{}, {}]

    on_a_broker(scenario, millpond__max__unacked__per__consumer="2")


def test_messages_that_have_outlived_their_time_do_not_stand_in_the_way() -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[int]:
        queue = await opened(machine, partition)
        for _ in range(3):
            await append(machine, partition, (TTL_MS, b"10"))
        await append(machine, partition)
        await asyncio.sleep(1)
        return await receive(queue, bytes_max=100)

    assert on_a_broker(scenario) == [3]


def test_an_acknowledgement_of_what_another_has_finished_is_refused() -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[object]:
        assert machine.broker is not None
        node, at = machine.broker.node, PartitionId(partition.topic_id, 0)
        await append(machine, partition)
        queue = await opened(machine, partition)
        await receive(queue)
        accept, reject = [Verdict(0, 0, Outcome.ACCEPT)], [Verdict(0, 0, Outcome.REJECT)]
        answers = [
            await share.settle(node, "g", holder, {at: said}) for holder, said in (("anna", accept), ("bert", reject))
        ]
        return [type(each[at]).__name__ for each in answers]

    assert on_a_broker(scenario) == ["NoneType", "LeaseLost"]


def test_what_is_refused_of_an_acknowledgement_leaves_what_comes_next() -> None:
    async def scenario(machine: Machine, partition: Partition) -> None:
        assert machine.broker is not None
        node, at = machine.broker.node, PartitionId(partition.topic_id, 0)
        await append(machine, partition, count=2)
        await receive(await opened(machine, partition), holder="bert")
        want = Want("anna", count_max=1, bytes_max=1 << 20, lock_ms=600_000)
        begun = share.begin(node, "g", "anna", {at: [Verdict(0, 0, Outcome.ACCEPT)]}, [at], want)
        assert begun is not None
        assert isinstance(begun.settled[at], LeaseLost)
        assert offsets_of(begun.results[at]) == [1]

    on_a_broker(scenario)


def test_every_acknowledgement_is_heard_also_where_enough_was_taken_elsewhere() -> None:
    async def scenario(machine: Machine, partition: Partition) -> None:
        assert machine.broker is not None
        node = machine.broker.node
        assert await machine.create_topic("others")
        other = node.partitions.named("others", 0)
        assert other is not None
        here, there = PartitionId(partition.topic_id, 0), PartitionId(other.topic_id, 0)
        for each in (partition, other):
            await append(machine, each, count=2)
            await receive(await opened(machine, each))
        want = Want("anna", count_max=1, bytes_max=1 << 20, lock_ms=600_000)
        said = {at: [Verdict(0, 0, Outcome.ACCEPT)] for at in (there, here)}
        begun = share.begin(node, "g", "anna", said, [here, there], want)
        assert begun is not None
        assert begun.settled == {here: None, there: None}
        assert {at: offsets_of(got) for at, got in begun.results.items()} == {here: [1]}
        assert (await opened(machine, other)).ledger.start == 1

    on_a_broker(scenario)


def offsets_of(result: share.Result) -> list[int]:
    assert isinstance(result, share.Got)
    return [at for each in result.taken.deliveries for at in range(each.first, each.last + 1)]


def test_who_waits_is_woken_when_the_letter_before_the_next_of_its_key_is_sent() -> None:
    async def scenario(machine: Machine, partition: Partition) -> int:
        await append(machine, partition, count=2, key=b"a")
        queue = await opened(machine, partition)
        assert await receive(queue, 2) == [0]
        waiting = asyncio.get_running_loop().create_task(receive_waiting(machine, partition, "bert"))
        await asyncio.sleep(1)
        await queue.acknowledge([Verdict(0, 0, Outcome.REJECT)], holder="anna")
        assert await waiting == [1]
        return machine.cluster.sim.clock.monotonic_ms()

    assert on_a_broker(scenario, millpond__order="key") < WAIT_MS


def test_who_waits_is_woken_when_deleted_messages_let_the_next_of_their_keys_through() -> None:
    async def scenario(machine: Machine, partition: Partition) -> int:
        for key in (b"a", b"b", b"a", b"b"):
            await append(machine, partition, key=key)
        queue = await opened(machine, partition)
        assert await receive(queue, 4) == [0, 1]
        waiting = asyncio.get_running_loop().create_task(receive_waiting(machine, partition, "bert"))
        await asyncio.sleep(1)
        await partition.log.delete_before(Offset(2))
        assert await receive(queue, 1, holder="carl") == [2]
        before = machine.cluster.sim.clock.monotonic_ms()
        assert await waiting == [3]
        return machine.cluster.sim.clock.monotonic_ms() - before

    assert on_a_broker(scenario, millpond__order="key") < WAIT_MS


def test_who_waits_is_woken_when_others_have_room_again() -> None:
    async def scenario(machine: Machine, partition: Partition) -> int:
        await append(machine, partition)
        queue = await opened(machine, partition)
        assert await receive(queue) == [0]
        await append(machine, partition)
        waiting = asyncio.get_running_loop().create_task(receive_waiting(machine, partition, "bert"))
        await asyncio.sleep(1)
        await queue.acknowledge([Verdict(0, 0, Outcome.ACCEPT)], holder="anna")
        assert await waiting == [1]
        return machine.cluster.sim.clock.monotonic_ms()

    assert on_a_broker(scenario, group__share__partition__max__record__locks="1") < WAIT_MS


async def receive_waiting(machine: Machine, partition: Partition, holder: str) -> list[int]:
    assert machine.broker is not None
    want = Want(holder, 1, 1 << 20, lock_ms=600_000)
    at = PartitionId(partition.topic_id, 0)
    result = (await share.take(machine.broker.node, "g", [at], want, wait_ms=WAIT_MS))[at]
    assert isinstance(result, share.Got)
    return [each.first for each in result.taken.deliveries]


def test_a_broker_whose_clock_went_back_opens_its_queues() -> None:
    """It leads in the same epoch as before its restart, and its sessions count by the clock."""

    async def run(sim: Simulation) -> list[int]:
        cluster = SimCluster(sim, 1)
        await cluster.start_all()
        machine = cluster[1]
        assert await machine.create_topic("jobs")
        received = await machine.host.run(use(machine))
        machine.kill()
        sim.clock.jump(machine.name, ms=-3_600_000)
        await machine.start()
        received += await machine.host.run(use(machine))
        await cluster.stop_all()
        return received

    async def use(machine: Machine) -> list[int]:
        assert machine.broker is not None
        partition = machine.broker.node.partitions.named("jobs", 0)
        assert partition is not None
        await append(machine, partition)
        return await receive(await opened(machine, partition))

    with Simulation(7) as simulation:
        assert simulation.run(run) == [0, 1]


def reads_noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is read of partitions from now on."""
    sizes: list[int] = []
    original = Partition.read

    def read(self: Partition, start: Offset, *, bytes_max: int) -> Slice:
        found = original(self, start, bytes_max=bytes_max)
        sizes.append(len(found.data))
        return found

    monkeypatch.setattr(Partition, "read", read)
    return sizes


def test_takes_of_one_message_each_read_a_few_that_come_next_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(machine: Machine, partition: Partition) -> tuple[list[int], list[int]]:
        for _ in range(300):
            await append(machine, partition)
        queue = await opened(machine, partition)
        received = await receive(queue)  # looks at all
        sizes.clear()
        for _ in range(249):
            received += await receive(queue)
        return received, list(sizes)

    sizes = reads_noted(monkeypatch)
    received, read = on_a_broker(scenario)
    assert received == list(range(250))
    assert 1 <= len(read) <= 3
    assert all(size <= AHEAD_BYTES for size in read)


def test_a_take_of_all_there_is_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[int]:
        queue = await opened(machine, partition)
        await append(machine, partition)
        assert await receive(queue) == [0]
        sizes.clear()
        await append(machine, partition)
        assert await receive(queue) == [1]
        return list(sizes)

    sizes = reads_noted(monkeypatch)
    assert all(size < 100 for size in on_a_broker(scenario))


def test_a_message_that_came_back_is_found_before_those_that_were_read_along() -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[int]:
        for _ in range(20):
            await append(machine, partition)
        queue = await opened(machine, partition)
        received = [*await receive(queue), *await receive(queue), *await receive(queue)]
        await queue.acknowledge([Verdict(1, 1, Outcome.RELEASE)], holder="anna", delay_ms=0)
        return received + await receive(queue) + await receive(queue)

    assert on_a_broker(scenario) == [0, 1, 2, 1, 3]


def test_what_compaction_has_replaced_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(machine: Machine, partition: Partition) -> list[int]:
        for _ in range(20):
            await append(machine, partition)
        queue = await opened(machine, partition)
        await receive(queue)
        sizes.clear()
        assert await receive(queue) == [1]
        assert not sizes
        old, log = partition.log.segments.active, partition.log
        old.give_back()  # as of a segment that was sealed
        replacement = log.segments.existing(old.base_offset, next_offset=old.next_offset)
        monkeypatch.setattr(Segments, "holding", lambda self, offset: replacement)
        assert await receive(queue) == [2]
        return list(sizes)

    sizes = reads_noted(monkeypatch)
    assert len(on_a_broker(scenario)) == 1


def test_a_take_is_as_large_as_it_may_be_and_no_larger() -> None:
    async def scenario(machine: Machine, partition: Partition) -> tuple[list[int], list[int]]:
        for _ in range(10):
            await append(machine, partition, ("padding", b"x" * 900))
        queue = await opened(machine, partition)
        return await receive(queue, 10, bytes_max=3_500), await receive(queue, 10, bytes_max=10)

    assert on_a_broker(scenario) == ([0, 1, 2], [3])


def test_what_many_do_at_the_same_time_is_kept_in_few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def send(self: QueueKeeper, ledger: Ledger, changes: list[Change]) -> None:
        sent.append(len(changes))
        original(self, ledger, changes)

    async def scenario(machine: Machine, partition: Partition) -> list[list[int]]:
        for _ in range(20):
            await append(machine, partition)
        queue = await opened(machine, partition)
        sent.clear()
        return await asyncio.gather(*(receive(queue, holder=f"{number}") for number in range(20)))

    original = QueueKeeper._send
    monkeypatch.setattr(QueueKeeper, "_send", send)
    taken = on_a_broker(scenario)
    assert {at for each in taken for at in each} == set(range(20))
    assert sum(sent) == 20
    assert len(sent) <= 2


async def waiting_for_one(machine: Machine, partition: Partition, *holders: str) -> list["asyncio.Task[list[int]]"]:
    """They come one after the other, so that it is known who has waited longest."""
    tasks = []
    for holder in holders:
        tasks.append(asyncio.get_running_loop().create_task(receive_waiting(machine, partition, holder)))
        await asyncio.sleep(1)
    return tasks


def test_one_message_wakes_one_of_those_who_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def take(self: QueuePartition, want: Want) -> Taken:
        looked.append(want.holder)
        return original(self, want)

    async def scenario(machine: Machine, partition: Partition) -> list[list[int]]:
        await opened(machine, partition)
        tasks = await waiting_for_one(machine, partition, "anna", "bert", "carl")
        looked.clear()
        await append(machine, partition)
        await asyncio.sleep(1)
        assert looked == ["anna"]
        await append(machine, partition, count=2)
        return await asyncio.gather(*tasks)

    original = QueuePartition.take
    monkeypatch.setattr(QueuePartition, "take", take)
    assert on_a_broker(scenario) == [[0], [1], [2]]
    assert looked == ["anna", "bert", "carl"]


def test_a_message_whose_taker_goes_when_it_is_woken_is_the_next_ones() -> None:
    async def scenario(machine: Machine, partition: Partition) -> int:
        await opened(machine, partition)
        gone, stays = await waiting_for_one(machine, partition, "anna", "bert")
        partition.listeners.append(gone.cancel)  # told after the queue, which has woken it by then
        await append(machine, partition)
        assert await stays == [0]
        assert gone.cancelled()
        return machine.cluster.sim.clock.monotonic_ms()

    assert on_a_broker(scenario) < WAIT_MS


def test_who_is_woken_and_may_have_no_more_lets_the_next_one_have_it() -> None:
    async def scenario(machine: Machine, partition: Partition) -> int:
        await append(machine, partition)
        await receive(await opened(machine, partition), holder="anna")
        full, free = await waiting_for_one(machine, partition, "anna", "bert")
        await append(machine, partition)
        assert await free == [1]
        full.cancel()
        return machine.cluster.sim.clock.monotonic_ms()

    assert on_a_broker(scenario, millpond__max__unacked__per__consumer="1") < WAIT_MS
