"""States of machines at the leaders of partitions: kept when that is said, in order, fenced, and not without bounds."""

import asyncio
from unittest.mock import patch

import pytest

from millpond.broker.drivers import state_shard
from millpond.broker.drivers.state_shard import StateShard
from millpond.broker.drivers.states import StateKey, States
from millpond.broker.operations.produce import begin
from millpond.core.delivery.kept import KeptStates
from millpond.core.metadata.controller import TopicToDelete, delete_topics
from millpond.core.metadata.internal_topics import STATES
from millpond.model.errors import BatchTooLarge, CoordinatorUnavailable, FencedState, InvalidRecord, InvalidTopicName
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import KIB, STATE_DOCUMENT_BYTES_MAX
from millpond.protocol.records import NewRecord, encode_batch
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_cluster import until
from tests.broker.test_movement import with_brokers

ORDERS = bytes(range(16))
KEY = StateKey("share", "workers", ORDERS, 0)
OTHER = StateKey("share", "workers", ORDERS, 1)
FEW = {"share.coordinator.state.topic.num.partitions": "3"}


def states_of(machine: Machine) -> States:
    assert machine.broker is not None
    return machine.broker.node.states


async def load(machine: Machine, epoch: int, key: StateKey = KEY) -> list[bytes]:
    return await machine.host.run(states_of(machine).load(key, epoch))


async def keep(machine: Machine, epoch: int, document: bytes, *, whole: bool = False, key: StateKey = KEY) -> None:
    async def calling() -> None:
        await states_of(machine).keep(key, epoch, document, whole=whole)

    await machine.host.run(calling())


@with_brokers(1, configs=FEW)
async def test_a_lone_broker_finds_after_a_power_cut_what_it_kept(cluster: SimCluster) -> None:
    machine = cluster[1]
    assert await load(machine, 1) == []
    await keep(machine, 1, b"all", whole=True)
    await keep(machine, 1, b"+1")
    await keep(machine, 1, b"+2")
    machine.cut_power()
    await machine.start()
    assert await load(machine, 2) == [b"all", b"+1", b"+2"]
    await keep(machine, 2, b"all of it", whole=True)
    machine.kill()
    await machine.start()
    assert await load(machine, 3) == [b"all of it"]


@with_brokers(1, configs=FEW)
async def test_the_topic_is_made_when_it_is_first_needed(cluster: SimCluster) -> None:
    machine = cluster[1]
    assert machine.broker is not None
    assert STATES not in machine.broker.node.image.topics
    await load(machine, 1)
    assert len(machine.broker.node.image.topics[STATES].partitions) == 3


@with_brokers(1, configs=FEW)
async def test_who_loads_in_a_newer_epoch_fences_the_others_also_after_a_restart(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 5)
    await keep(machine, 5, b"5", whole=True)
    await load(machine, 6)
    with pytest.raises(FencedState):
        await keep(machine, 5, b"late")
    machine.cut_power()
    await machine.start()
    with pytest.raises(FencedState):
        await load(machine, 5)
    with pytest.raises(FencedState):
        await keep(machine, 5, b"late")
    assert await load(machine, 6) == [b"5"]


@with_brokers(1, configs=FEW)
async def test_documents_take_effect_in_the_order_of_the_calls(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 1)
    states = states_of(machine)

    async def all_at_once() -> None:
        await asyncio.gather(*(states.keep(KEY, 1, b"%d" % n, whole=n == 3) for n in range(50)))

    await machine.host.run(all_at_once())
    assert await load(machine, 2) == [b"%d" % n for n in range(3, 50)]


@with_brokers(1, configs={"share.coordinator.state.topic.num.partitions": "1"})
async def test_many_keys_share_a_commit(cluster: SimCluster) -> None:
    machine = cluster[1]
    keys = [StateKey("share", f"group-{n}", ORDERS, n) for n in range(100)]
    states = states_of(machine)
    await load(machine, 1)
    assert machine.broker is not None
    partition = machine.broker.node.partitions.named(STATES, 0)
    assert partition is not None

    async def all_at_once() -> int:
        await asyncio.gather(*(states.load(key, 1) for key in keys))
        before = partition.log.appended_batches
        await asyncio.gather(*(states.keep(key, 1, key.group.encode(), whole=True) for key in keys))
        return partition.log.appended_batches - before

    assert await machine.host.run(all_at_once()) <= 2
    for key in keys:
        assert await load(machine, 2, key) == [key.group.encode()]


@with_brokers(1, configs=FEW)
async def test_what_is_forgotten_is_gone_and_its_writer_has_to_load(cluster: SimCluster) -> None:
    machine = cluster[1]
    elsewhere = StateKey("share", "others", ORDERS, 0)
    for key in (KEY, OTHER, elsewhere):
        await load(machine, 1, key)
        await keep(machine, 1, b"kept", whole=True, key=key)
    await machine.host.run(states_of(machine).forget(KEY))
    with pytest.raises(FencedState):
        await keep(machine, 1, b"more")
    assert await load(machine, 1) == []
    assert await load(machine, 1, OTHER) == [b"kept"]
    await machine.host.run(states_of(machine).forget_group("share", "workers"))
    assert await load(machine, 2, OTHER) == []
    assert await load(machine, 2, elsewhere) == [b"kept"]


async def made(machine: Machine, topic: str) -> bytes:
    await machine.create_topic(topic)
    assert machine.broker is not None
    return machine.broker.node.image.topics[topic].topic_id


async def deleted(machine: Machine, topic: str) -> None:
    assert machine.broker is not None
    node = machine.broker.node
    wanted = [TopicToDelete(name=topic)]
    await machine.host.run(node.metadata.decide(lambda image: delete_topics(image, wanted, static=node.static)))


@with_brokers(1, configs=FEW)
async def test_states_of_a_deleted_topic_are_forgotten(cluster: SimCluster) -> None:
    machine = cluster[1]
    key = StateKey("share", "workers", await made(machine, "orders"), 0)
    await load(machine, 1, key)
    await keep(machine, 1, b"kept", whole=True, key=key)
    await deleted(machine, "orders")
    assert await load(machine, 0, key) == []


@with_brokers(1, configs=FEW)
async def test_and_those_of_a_topic_that_was_deleted_while_nobody_looked(cluster: SimCluster) -> None:
    machine = cluster[1]
    gone, there = [StateKey("share", "workers", await made(machine, name), 0) for name in ("orders", "bills")]
    for key in (gone, there):
        await load(machine, 1, key)
        await keep(machine, 1, b"kept", whole=True, key=key)
    machine.kill()
    await machine.start()
    await deleted(machine, "orders")  # the shards are not in memory yet
    assert await load(machine, 2, gone) == [b"kept"]
    assert await load(machine, 2, there) == [b"kept"]
    await asyncio.sleep(state_shard.SWEEP_SECONDS + 1)
    assert await load(machine, 0, gone) == []
    assert await load(machine, 3, there) == [b"kept"]


@with_brokers(1, configs=FEW)
async def test_a_document_that_is_too_large_is_refused_and_costs_nothing(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 1)
    await keep(machine, 1, b"all", whole=True)
    with pytest.raises(BatchTooLarge):
        await keep(machine, 1, bytes(STATE_DOCUMENT_BYTES_MAX + 1), whole=True)
    await keep(machine, 1, b"+1")
    await keep(machine, 1, bytes(STATE_DOCUMENT_BYTES_MAX), whole=True)
    assert await load(machine, 2) == [bytes(STATE_DOCUMENT_BYTES_MAX)]


@with_brokers(1, configs={"share.coordinator.state.topic.num.partitions": "1"})
async def test_a_log_that_grows_loses_what_is_no_longer_needed(cluster: SimCluster) -> None:
    """A key that hardly changes holds its start back, until it is written once more."""
    machine = cluster[1]
    for key in (KEY, OTHER):
        await load(machine, 1, key)
    await keep(machine, 1, b"quiet", whole=True)
    await keep(machine, 1, b"+1")
    assert machine.broker is not None
    partition = machine.broker.node.partitions.named(STATES, 0)
    assert partition is not None
    for n in range(30):
        await keep(machine, 1, b"%d" % n + bytes(1000 * KIB), whole=True, key=OTHER)
    await until(lambda: partition.log.size_bytes() <= state_shard.PRUNE_BYTES_MIN)
    assert partition.log.start_offset > 4
    await keep(machine, 1, b"+2")
    machine.cut_power()
    await machine.start()
    assert await load(machine, 2) == [b"quiet", b"+1", b"+2"]
    assert [document[:2] for document in await load(machine, 2, OTHER)] == [b"29"]


@with_brokers(1, configs=FEW)
async def test_a_log_is_not_made_shorter_for_ever_where_nothing_goes(cluster: SimCluster) -> None:
    """Somebody who is wrong about what is needed would otherwise stop the broker: nothing in the round waits."""
    machine = cluster[1]
    await load(machine, 1)
    await keep(machine, 1, b"quiet", whole=True)
    shard = next(iter(states_of(machine)._shards.values()))
    rounds = 0

    async def delete_nothing(before: Offset) -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 10, "it goes round and round"

    before_the_start = property(lambda self: Offset(shard._partition.log.start_offset - 1))
    with (
        patch.object(KeptStates, "oldest", before_the_start),
        patch.object(StateShard, "_is_long", lambda self: True),
        patch.object(type(shard._partition.log), "delete_before", lambda self, before: delete_nothing(before)),
    ):
        await shard._prune()
    assert rounds == 0


# Three brokers

KEPT_BY_TWO = {**FEW, "min.insync.replicas": "2"}


def leader_of(cluster: SimCluster, key: StateKey = KEY) -> Machine:
    broker = cluster.up[0].broker
    assert broker is not None
    number = broker.node.states._partition_of(key)
    return cluster[broker.node.image.topics[STATES].partitions[number].leader]


def others_than(cluster: SimCluster, machine: Machine) -> list[Machine]:
    return [each for each in cluster.machines.values() if each is not machine]


async def known_by_all(cluster: SimCluster) -> None:
    def is_known() -> bool:
        return all(STATES in each.broker.node.image.topics for each in cluster.up if each.broker is not None)

    await until(is_known)


@with_brokers(seeds=3, configs=FEW)
async def test_any_broker_may_write_and_the_next_one_finds_it(cluster: SimCluster) -> None:
    written: list[bytes] = []
    for epoch, machine in enumerate(cluster.up * 2, 1):
        assert await load(machine, epoch) == written
        await keep(machine, epoch, b"%d" % epoch)
        written.append(b"%d" % epoch)
    for machine in cluster.up[:-1]:
        with pytest.raises(FencedState):
            await keep(machine, 1, b"late")


@with_brokers(seeds=3, configs=KEPT_BY_TWO)
async def test_what_was_kept_outlives_who_kept_it_and_writers_go_on(cluster: SimCluster) -> None:
    await load(cluster[1], 1)
    await known_by_all(cluster)
    leader = leader_of(cluster)
    writer, other = others_than(cluster, leader)
    await load(writer, 2)
    await keep(writer, 2, b"all", whole=True)
    leader.cut_power()
    await keep(writer, 2, b"+1")  # waits for another leader
    assert leader_of(cluster) is not leader
    assert await load(other, 3) == [b"all", b"+1"]
    with pytest.raises(FencedState):
        await keep(writer, 2, b"+2")
    await leader.start()


@with_brokers(seeds=3, configs=KEPT_BY_TWO)
async def test_an_answer_that_is_lost_does_not_make_a_change_count_twice(cluster: SimCluster) -> None:
    await load(cluster[1], 1)
    await known_by_all(cluster)
    leader = leader_of(cluster)
    writer, other = others_than(cluster, leader)
    await load(writer, 2)
    await keep(writer, 2, b"+1")
    cluster.sim.network.cut_one_way(source=leader.name, target=writer.name)
    change = asyncio.create_task(keep(writer, 2, b"+2"))
    await asyncio.sleep(3)
    assert not change.done()
    cluster.sim.network.heal()
    await change
    assert await load(other, 3) == [b"+1", b"+2"]


@with_brokers(seeds=3, configs=KEPT_BY_TWO)
async def test_without_enough_replicas_nothing_is_said_to_be_kept_and_only_a_whole_document_goes_on(
    cluster: SimCluster,
) -> None:
    await load(cluster[1], 1)
    await known_by_all(cluster)
    leader = leader_of(cluster)
    await load(leader, 2)
    await keep(leader, 2, b"all", whole=True)
    cluster.sim.network.partition([leader.name], [each.name for each in others_than(cluster, leader)])
    with pytest.raises(CoordinatorUnavailable):
        await keep(leader, 2, b"+1")
    cluster.sim.network.heal()
    with pytest.raises(CoordinatorUnavailable):
        await keep(leader, 2, b"+2")
    await keep(leader, 2, b"all and +1 and +2", whole=True)
    await keep(leader, 2, b"+3")
    assert await load(others_than(cluster, leader)[0], 3) == [b"all and +1 and +2", b"+3"]


@with_brokers(seeds=2, configs=FEW)
async def test_a_group_is_forgotten_on_every_broker(cluster: SimCluster) -> None:
    keys = [StateKey("share", "workers", ORDERS, number) for number in range(10)]
    for key in keys:
        await load(cluster[1], 1, key)
        await keep(cluster[1], 1, b"kept", whole=True, key=key)
    await known_by_all(cluster)
    await cluster[2].host.run(states_of(cluster[2]).forget_group("share", "workers"))
    assert [await load(cluster[3], 0, key) for key in keys] == [[]] * len(keys)


@with_brokers(configs={"share.coordinator.state.topic.num.partitions": "1"})
async def test_large_states_of_many_keys_are_loaded_together_from_another_broker(cluster: SimCluster) -> None:
    """More than fits one answer."""
    keys = [StateKey("share", f"group-{number}", ORDERS, 0) for number in range(20)]
    await load(cluster[1], 1)
    await known_by_all(cluster)
    writer = others_than(cluster, leader_of(cluster))[0]

    async def write_all() -> None:
        states = states_of(writer)
        await asyncio.gather(*(states.load(key, 1) for key in keys))
        await asyncio.gather(*(states.keep(key, 1, large(key), whole=True) for key in keys))

    async def load_all() -> list[list[bytes]]:
        states = states_of(writer)
        return await asyncio.gather(*(states.load(key, 2) for key in keys))

    await writer.host.run(write_all())
    assert await writer.host.run(load_all()) == [[large(key)] for key in keys]


def large(key: StateKey) -> bytes:
    return key.group.encode() + bytes(STATE_DOCUMENT_BYTES_MAX - 100)


@with_brokers(1, configs=FEW)
async def test_who_waits_when_a_broker_stops_is_told(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 1)
    machine.disk.slow_sync(5, 5)

    async def kept() -> None:
        await states_of(machine).keep(KEY, 1, b"all", whole=True)

    waiting = asyncio.create_task(machine.host.run(kept()))
    await asyncio.sleep(0.1)
    states = states_of(machine)
    await machine.host.run(states.close())
    with pytest.raises(CoordinatorUnavailable):
        await waiting


@with_brokers(1, configs={"share.coordinator.state.topic.num.partitions": "1"})
async def test_a_record_that_cannot_be_read_makes_states_unavailable_rather_than_forgetful(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 1)
    await keep(machine, 1, b"all", whole=True)
    machine.kill()
    await machine.start()
    assert machine.broker is not None
    partition = machine.broker.node.partitions.named(STATES, 0)
    assert partition is not None
    of_a_later_version = NewRecord(b"\0\7", key=b"\0\7", timestamp=TimestampMs(0))
    machine.host.look(lambda: partition.append(bytearray(encode_batch([of_a_later_version]))))
    with pytest.raises(CoordinatorUnavailable):
        await load(machine, 2)
    (told,) = cluster.failures
    assert isinstance(told, InvalidRecord)
    cluster.failures.clear()


@with_brokers(1, configs=FEW)
async def test_nobody_but_the_broker_itself_writes_to_the_topic(cluster: SimCluster) -> None:
    machine = cluster[1]
    await load(machine, 1)
    assert machine.broker is not None
    partition = machine.broker.node.partitions.named(STATES, 0)
    assert partition is not None
    batch = encode_batch([NewRecord(b"value", key=b"key")])
    assert isinstance(begin(partition, batch, now_ms=0, acks_all=True).error, InvalidTopicName)
