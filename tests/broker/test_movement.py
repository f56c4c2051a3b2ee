"""Who leads when brokers come and go: failover, controlled shutdown, preferred leaders, movements, members."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from millpond.core.metadata.commands import NO_LEADER
from millpond.core.metadata.image import Partition as PartitionFacts
from millpond.testing import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_replication import AT, isr_of, leader_of, send, unique, until, values_on

Steps = Callable[[SimCluster], Awaitable[None]]


def with_brokers(
    size: int = 3, *, seeds: int = 1, configs: Mapping[str, str] | None = None
) -> Callable[[Steps], Callable[[int], None]]:
    def decorate(steps: Steps) -> Callable[[int], None]:
        @pytest.mark.parametrize("seed", range(1, seeds + 1))
        def test(seed: int) -> None:
            async def scenario(sim: Simulation) -> None:
                cluster = SimCluster(sim, size, configs=configs)
                await cluster.start_all()
                await steps(cluster)
                await cluster.stop_all()

            simulate(seed, scenario, virtual_seconds_max=900)

        test.__name__ = steps.__name__
        return test

    return decorate


def facts(machine: Machine) -> PartitionFacts:
    assert machine.broker is not None
    found = machine.broker.node.image.partition(AT)
    assert found is not None
    return found


# Failover


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000"})
async def test_a_controller_that_dies_is_replaced_long_before_a_session_is_over(cluster: SimCluster) -> None:
    assert await cluster[1].create_topic("orders", replication=3, partitions=6)
    lost = cluster.controller()
    assert lost is not None
    lost.cut_power()

    def is_fenced() -> bool:
        return all(m.broker is not None and not m.broker.node.image.is_live(lost.node_id) for m in cluster.up)

    await until(is_fenced, seconds=10)  # of virtual time: an election and a grace, not a session
    await lost.start()


@with_brokers(seeds=3)
async def test_a_controller_that_only_loses_its_place_is_not_fenced(cluster: SimCluster) -> None:
    before = cluster.controller()
    assert before is not None
    assert before.broker is not None
    epoch = before.broker.life.epoch
    quorum = before.broker.node.metadata.quorum
    quorum.transfer()
    await until(lambda: cluster.controller() not in (None, before))
    await asyncio.sleep(10)
    assert before.broker.life.epoch == epoch
    assert before.broker.node.image.is_live(before.node_id)
    assert before.broker.life.holds_lease()


# Controlled shutdown


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"})
async def test_a_broker_that_stops_hands_over_first(cluster: SimCluster) -> None:
    assert await cluster[1].create_topic("orders", replication=3)
    sent: list[bytes] = []
    for round_ in range(3):
        for number in range(3):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        leader = leader_of(cluster)
        assert leader is not None
        await leader.stop()
        await until(lambda: all(len(facts(each).isr) == 2 for each in cluster.up), seconds=5)
        assert all(facts(each).leader not in (leader.node_id, NO_LEADER) for each in cluster.up)
        sent.append(b"%d.while" % round_)
        await send(cluster, sent[-1])
        await leader.start()
        await until(lambda: isr_of(cluster) == {1, 2, 3})
    await until(lambda: len({tuple(values_on(machine)) for machine in cluster.up}) == 1)
    assert unique(values_on(cluster[1])) == sent


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000"})
async def test_a_controller_that_stops_hands_the_quorum_over_too(cluster: SimCluster) -> None:
    controller = cluster.controller()
    assert controller is not None
    await controller.stop()
    assert cluster.controller() is not None
    await controller.start()


@with_brokers()
async def test_the_last_broker_does_not_wait_for_anybody(cluster: SimCluster) -> None:
    assert await cluster[1].create_topic("orders", replication=3)
    first, second, last = cluster.up
    await first.stop()
    await second.stop()
    async with asyncio.timeout(6):
        await last.stop()
