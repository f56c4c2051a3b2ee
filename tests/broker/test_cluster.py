"""Three brokers and their metadata: founding, changes through any of them, deaths, fencing, strangers."""

import asyncio
from collections.abc import Awaitable, Callable

from millpond.testing import Simulation, simulate
from tests.broker.clusters import SimCluster

Steps = Callable[[SimCluster], Awaitable[None]]


def with_three(steps: Steps) -> Callable[[], None]:
    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 3)
            await steps(cluster)
            cluster.check()

        simulate(1, scenario, virtual_seconds_max=600)

    test.__name__ = steps.__name__
    return test


async def until(fact: Callable[[], bool], *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.05)


def all_have(cluster: SimCluster, *topics: str) -> bool:
    return all(set(topics) <= machine.broker.node.image.topics.keys() for machine in cluster.up if machine.broker)


@with_three
async def test_three_brokers_found_a_cluster_and_know_each_other(cluster: SimCluster) -> None:
    await cluster.start_all()
    await until(lambda: all(len(m.broker.node.image.live_brokers()) == 3 for m in cluster.up if m.broker))
    await cluster.stop_all()


@with_three
async def test_a_topic_made_through_any_broker_is_seen_by_all_and_survives_a_restart(cluster: SimCluster) -> None:
    await cluster.start_all()
    for machine in cluster.up:
        assert await machine.create_topic(f"by-{machine.node_id}")
    names = [f"by-{node_id}" for node_id in cluster.machines]
    await until(lambda: all_have(cluster, *names))
    await cluster.stop_all()
    await cluster.start_all()
    assert all_have(cluster, *names)
    await cluster.stop_all()
