"""Partitions on three brokers: copied, kept when a leader dies, and the same everywhere in the end."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from millpond.broker.drivers.followers import FETCH_WAIT_MS
from millpond.broker.operations.fetch import Wanted, fetch_now
from millpond.broker.operations.produce import begin, finish, time_is_up
from millpond.model.errors import LogCorrupted
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from millpond.protocol.records import decode_batch, encode_values, iter_batches
from millpond.testing import Simulation, simulate
from millpond.testing.hosts import HostDown
from tests.broker.clusters import Machine, SimCluster

AT = TopicPartition("orders", 0)
Steps = Callable[[SimCluster], Awaitable[None]]


def with_three(steps: Steps) -> Callable[[int], None]:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test(seed: int) -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 3)
            await cluster.start_all()
            assert await cluster[1].create_topic("orders", replication=3)
            await steps(cluster)
            await cluster.stop_all()

        simulate(seed, scenario, virtual_seconds_max=600)

    test.__name__ = steps.__name__
    return test


async def until(fact: Callable[[], bool], *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 -- facts are plain values, and tell nobody when they change
            await asyncio.sleep(0.05)


def leader_of(cluster: SimCluster) -> Machine | None:
    for machine in cluster.up:
        partition = machine.broker.node.partitions.named(*AT) if machine.broker else None
        if (
            partition is not None
            and partition.leading is not None
            and machine.broker
            and machine.broker.life.holds_lease()
        ):
            return machine
    return None


async def send(cluster: SimCluster, value: bytes, *, acks_all: bool = True) -> None:
    """Until somebody acknowledges it; so it may be there twice."""
    while True:
        machine = leader_of(cluster)
        if machine is not None and machine.broker is not None:
            try:
                if await machine.host.run(_send(machine, value, acks_all=acks_all)):
                    return
            except HostDown:
                pass
        await asyncio.sleep(0.1)


async def _send(machine: Machine, value: bytes, *, acks_all: bool, topic: str = "orders") -> bool:
    assert machine.broker is not None
    node = machine.broker.node
    batch = bytearray(encode_values([value], timestamp=TimestampMs(node.clock.wall_ms())))
    pending = begin(node.find(topic, b"", 0), batch, now_ms=node.clock.wall_ms(), acks_all=acks_all)
    (produced,) = await finish([pending], until=time_is_up(5000))
    return produced.error is None


def values_on(machine: Machine) -> list[bytes | None]:
    partition = machine.broker.node.partitions.named(*AT) if machine.broker else None
    if partition is None:
        return []
    log, found = partition.log, []
    at = log.start_offset
    while at < log.next_offset:
        part = log.read(at, bytes_max=1 << 20)
        found += [record.value for place, _ in iter_batches(part.data) for record in decode_batch(part.data, place)]
        at = part.next_offset
    return found


def unique(values: list[bytes | None]) -> list[bytes | None]:
    return list(dict.fromkeys(values))


def isr_of(cluster: SimCluster) -> set[int]:
    machine = cluster.up[0]
    partition = machine.broker.node.image.partition(AT) if machine.broker else None
    return set(partition.isr) if partition is not None else set()


@with_three
async def test_what_is_acknowledged_is_on_all_three(cluster: SimCluster) -> None:
    values = [b"%d" % number for number in range(20)]
    for value in values:
        await send(cluster, value)
        assert sum(value in values_on(machine) for machine in cluster.up) == 3
    assert [unique(values_on(machine)) for machine in cluster.up] == [values] * 3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_topic_made_while_a_broker_is_away_is_copied_there_when_it_is_back(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 3)
        await cluster.start_all()
        away = cluster[3]
        away.kill()
        await until(lambda: all(not each.broker.node.image.is_live(3) for each in cluster.up if each.broker))
        assert await cluster[1].create_topic("orders", replication=3)
        await send(cluster, b"made by two of three")
        assert isr_of(cluster) == {1, 2}
        await away.start()
        await until(lambda: isr_of(cluster) == {1, 2, 3})
        assert [unique(values_on(machine)) for machine in cluster.up] == [[b"made by two of three"]] * 3
        await cluster.stop_all()

    simulate(seed, scenario, virtual_seconds_max=600)


@with_three
async def test_a_leader_that_finds_its_log_damaged_says_so(cluster: SimCluster) -> None:
    await send(cluster, b"rots on one of three disks")
    leader = leader_of(cluster)
    assert leader is not None
    assert leader.broker is not None
    leader.disk.rot(f"data/{AT}/{0:020d}.log", position=70, bit=1)
    wanted = Wanted(leader.broker.node.find(AT.topic, b"", 0), Offset(0), 1000, LeaderEpoch(-1))
    [fetched] = leader.host.look(lambda: fetch_now([wanted], bytes_min=0, bytes_max=1000)) or []
    assert isinstance(fetched.error, LogCorrupted)
    assert cluster.failures == [fetched.error]
    cluster.failures.clear()


def reads_damage(machine: Machine) -> bool:
    """What a consumer meets there that begins at the beginning."""
    assert machine.broker is not None
    wanted = Wanted(machine.broker.node.find(AT.topic, b"", 0), Offset(0), 1000, LeaderEpoch(-1))
    [fetched] = machine.host.look(lambda: fetch_now([wanted], bytes_min=0, bytes_max=1000)) or []
    return isinstance(fetched.error, LogCorrupted)


def is_whole(machine: Machine, values: list[bytes]) -> bool:
    try:
        return unique(values_on(machine)) == values
    except LogCorrupted:
        return False


@pytest.mark.parametrize("power_is_cut", [False, True])
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_leader_whose_log_is_damaged_gives_way_and_copies_it_anew(seed: int, *, power_is_cut: bool) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 3)
        await cluster.start_all()
        assert await cluster[1].create_topic("orders", replication=3)
        values = [b"message %d" % number for number in range(10)]
        for value in values:
            await send(cluster, value)
        await until(lambda: isr_of(cluster) == {1, 2, 3})
        damaged = leader_of(cluster)
        assert damaged is not None
        damaged.disk.rot(f"data/{AT}/{0:020d}.log", position=70, bit=1)
        assert reads_damage(damaged)
        if power_is_cut:
            await asyncio.sleep(sim.rng.random() * 2)
            damaged.cut_power()
            await damaged.start()
        else:
            await until(lambda: leader_of(cluster) not in (None, damaged))
        for number in range(10, 20):
            values.append(b"message %d" % number)
            await send(cluster, values[-1])
        if not power_is_cut:
            await until(lambda: isr_of(cluster) == {1, 2, 3} and all(is_whole(each, values) for each in cluster.up))
        leader = leader_of(cluster)
        assert leader is not None
        assert is_whole(leader, values) or leader is damaged
        cluster.failures.clear()
        await cluster.stop_all()

    simulate(seed, scenario, virtual_seconds_max=600)


@with_three
async def test_a_follower_that_reads_damage_says_so_and_goes_on_following(cluster: SimCluster) -> None:
    await send(cluster, b"rots on a follower")
    await until(lambda: isr_of(cluster) == {1, 2, 3})
    follower = next(each for each in cluster.up if each is not leader_of(cluster))
    assert follower.broker is not None
    partition = follower.broker.node.partitions.named(*AT)
    assert partition is not None
    await until(lambda: partition.high_watermark == 1)
    follower.disk.rot(f"data/{AT}/{0:020d}.log", position=70, bit=1)
    with pytest.raises(LogCorrupted) as damage:
        partition.read(Offset(0), bytes_max=1)
    assert cluster.failures == [damage.value]
    cluster.failures.clear()
    await send(cluster, b"more")
    await until(lambda: partition.log.next_offset == 2)
    assert isr_of(cluster) == {1, 2, 3}


@with_three
async def test_a_leader_that_loses_power_loses_nothing_that_was_acknowledged(cluster: SimCluster) -> None:
    sent = []
    for round_ in range(3):
        for number in range(10):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        lost = leader_of(cluster)
        assert lost is not None
        lost.cut_power()
        for number in range(10, 15):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        await lost.start()
        await until(lambda: isr_of(cluster) == {1, 2, 3})
    await until(lambda: len({tuple(values_on(machine)) for machine in cluster.up}) == 1)
    assert unique(values_on(cluster[1])) == sent


@with_three
async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_gives_up_what_nobody_has(cluster: SimCluster) -> None:
    await send(cluster, b"before")
    lost = leader_of(cluster)
    assert lost is not None
    others = [machine for machine in cluster.up if machine is not lost]
    cluster.sim.network.partition([lost.name], [machine.name for machine in others])
    attempt = asyncio.create_task(lost.host.run(_send(lost, b"doubtful", acks_all=True)))
    await until(lambda: (found := leader_of(cluster)) is not None and found is not lost)
    await send(cluster, b"meanwhile")
    assert not await attempt
    cluster.sim.network.heal()
    await until(lambda: isr_of(cluster) == {1, 2, 3})
    await send(cluster, b"after")
    await until(lambda: len({tuple(values_on(machine)) for machine in cluster.up}) == 1)
    assert unique(values_on(lost)) == [b"before", b"meanwhile", b"after"]


@with_three
async def test_partitions_that_are_new_are_copied_although_their_followers_wait_at_the_leader_already(
    cluster: SimCluster,
) -> None:
    """A long fetch that is under way does not name them, and would be answered half a second later."""
    loop, late = asyncio.get_running_loop(), 0
    await send(cluster, b"so that followers wait")
    for number in range(4):
        topics = [f"new-{number}-{each}" for each in range(4)]
        assert all(await asyncio.gather(*[cluster[1].create_topic(each, replication=3) for each in topics]))
        await until(lambda topics=topics: all(_keeps(*pair) for pair in product(cluster.up, topics)))  # type: ignore[misc]
        for topic in topics:
            began = loop.time()
            leader = next(machine for machine in cluster.up if _leads(machine, topic))
            assert await leader.host.run(_send(leader, b"first", acks_all=True, topic=topic))
            late += loop.time() - began > FETCH_WAIT_MS / 1000 / 2
    assert late <= 2  # where a packet was lost, and sent again


def _keeps(machine: Machine, topic: str) -> bool:
    return machine.broker is not None and machine.broker.node.partitions.named(topic, 0) is not None


def _leads(machine: Machine, topic: str) -> bool:
    partition = machine.broker.node.partitions.named(topic, 0) if machine.broker else None
    return partition is not None and partition.leading is not None


@with_three
async def test_two_changes_at_once_do_not_end_a_stream(cluster: SimCluster) -> None:
    await send(cluster, b"so that followers wait")
    await asyncio.sleep(0.1)
    for machine in cluster.up:
        followers = machine.broker._parts.followers if machine.broker else None
        assert followers is not None
        before = dict(followers._tasks)
        for stream in before:
            followers._asked[stream] = frozenset()
        followers._arrange()
        followers._arrange()
        await asyncio.sleep(0.1)
        assert followers._tasks == before
