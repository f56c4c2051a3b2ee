"""Three brokers and their metadata: founding, changes through any of them, deaths, fencing, strangers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millpond.model.errors import InvalidSetting
from millpond.testing import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster

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
        while not fact():  # noqa: ASYNC110 - a fact of other machines, in virtual time
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


@with_three
async def test_two_of_three_go_on_and_the_third_catches_up(cluster: SimCluster) -> None:
    await cluster.start_all()
    lost = cluster.controller()
    assert lost is not None
    lost.cut_power()
    assert all([await machine.create_topic(f"without-{machine.node_id}") for machine in cluster.up])
    await until(lambda: all(not m.broker.node.image.is_live(lost.node_id) for m in cluster.up if m.broker))
    broker = await lost.start()
    assert all_have(cluster, *(f"without-{m.node_id}" for m in cluster.up if m is not lost))
    assert broker.node.image.is_live(lost.node_id)
    await cluster.stop_all()


@with_three
async def test_one_of_three_changes_nothing(cluster: SimCluster) -> None:
    await cluster.start_all()
    machine, *others = cluster.up
    for other in others:
        other.kill()
    assert not await machine.create_topic("alone")
    assert machine.broker is not None
    assert "alone" not in machine.broker.node.image.topics
    assert not machine.broker.life.holds_lease()
    for other in others:
        await other.start()
    assert await machine.create_topic("together")
    await cluster.stop_all()


@with_three
async def test_a_broker_that_is_stopped_for_a_while_is_fenced_and_registers_again(cluster: SimCluster) -> None:
    await cluster.start_all()
    paused = next(machine for machine in cluster.up if machine is not cluster.controller())
    others = [machine for machine in cluster.up if machine is not paused]
    epochs = [paused.broker.life.epoch if paused.broker else -1]
    paused.host.pause()
    await until(lambda: all(not m.broker.node.image.is_live(paused.node_id) for m in others if m.broker))
    paused.host.resume()
    await until(lambda: all(m.broker.node.image.is_live(paused.node_id) for m in cluster.up if m.broker))
    assert paused.broker is not None
    await until(lambda: paused.broker is not None and paused.broker.life.holds_lease())
    assert paused.broker.life.epoch > epochs[0]
    await cluster.stop_all()


@with_three
async def test_changes_asked_of_all_brokers_at_once_are_all_made(cluster: SimCluster) -> None:
    await cluster.start_all()
    wanted = [(machine, f"{machine.node_id}-{number}") for machine in cluster.up for number in range(5)]
    made = await asyncio.gather(*(machine.create_topic(name) for machine, name in wanted))
    assert all(made)
    await until(lambda: all_have(cluster, *(name for _, name in wanted)))
    images = [machine.broker.node.image for machine in cluster.up if machine.broker]
    assert images[0] == images[1] == images[2]
    await cluster.stop_all()


# Strangers


@with_three
async def test_a_broker_with_another_secret_is_refused_and_told_what_to_do(cluster: SimCluster) -> None:
    starting = [asyncio.create_task(cluster[node_id].start()) for node_id in (1, 2)]
    with pytest.raises(InvalidSetting, match="cluster secret"):
        await cluster[3].start(cluster_secret=b"something quite different")
    for task in starting:
        await task
    assert await cluster[1].create_topic("orders")
    await cluster.stop_all()


@with_three
async def test_a_broker_of_another_cluster_is_refused(cluster: SimCluster) -> None:
    starting = [asyncio.create_task(cluster[node_id].start()) for node_id in (1, 2)]
    with pytest.raises(InvalidSetting, match="belongs to cluster 'millpond', and broker 3 to 'another'"):
        await cluster[3].start(cluster_id="another")
    for task in starting:
        await task
    await cluster.stop_all()


@with_three
async def test_a_second_broker_with_a_node_id_that_is_taken_is_refused(cluster: SimCluster) -> None:
    await cluster.start_all()
    impostor = SimCluster(cluster.sim, 0)
    impostor.peers = cluster.peers
    second = Machine(impostor, 9)
    second.node_id = 2
    with pytest.raises(InvalidSetting, match="node id 2 is taken"):
        await second.start(host="m9")
    assert await cluster[2].create_topic("still-mine")
    await cluster.stop_all()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster_secret": b"short"}, "openssl rand"),
        ({"configs": {"broker.session.timeout.ms": "500"}}, "two heartbeats"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, object], told: str) -> None:
    async def scenario(sim: Simulation) -> None:
        with pytest.raises(InvalidSetting, match=told):
            await SimCluster(sim, 3)[1].start(**changes)

    simulate(1, scenario)


def test_the_secret_is_not_shown() -> None:
    async def scenario(sim: Simulation) -> str:
        return repr(SimCluster(sim, 3)[1].settings())

    assert "all brokers" not in simulate(1, scenario)


@with_three
async def test_a_broker_that_was_away_has_its_lease_again_although_another_machine_is_dark(cluster: SimCluster) -> None:
    """It tells everybody where it is, and the dark one answers nothing: the heartbeat after that must not be late."""
    await cluster.start_all()
    [controller] = [each for each in cluster.up if each.broker and each.broker.node.metadata.quorum.is_controller]
    dark, away = [each for each in cluster.up if each is not controller]
    dark.cut_power()
    away.host.pause()
    await asyncio.sleep(10)
    away.host.resume()
    await until(lambda: away.holds_lease() and controller.holds_lease())
