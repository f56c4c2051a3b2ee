"""Connections between brokers: made when needed, given up in time, bounded."""

import asyncio
from collections.abc import Awaitable, Callable

from millpond.broker.drivers.links import WAITING_MESSAGES_MAX, Identity, Links
from millpond.broker.drivers.quorum import NotController, Unheard
from millpond.core.metadata.changes import Change
from millpond.core.raft.messages import Heartbeat
from millpond.testing import Simulation, simulate
from tests.broker.clusters import SECRET, SimCluster
from tests.broker.test_cluster import until

Steps = Callable[[SimCluster, Links], Awaitable[None]]
NOTHING = Change(base=0, by=2, change_id=bytes(16), commands=())


def from_a_second_broker(steps: Steps) -> Callable[[], None]:
    """Links of a broker 2 that is nothing but its links, to a cluster of broker 1, which is not up yet."""

    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 1)
            identity = Identity(node_id=2, cluster_id="millpond", directory_id=bytes(16), secret=SECRET)
            links = Links(identity, sim.rng, address_of=cluster.peers.get)
            await steps(cluster, links)
            await links.close()
            cluster.check()

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


@from_a_second_broker
async def test_a_change_for_a_broker_that_is_away_is_given_up_in_time(cluster: SimCluster, links: Links) -> None:
    assert await links.ask(1, NOTHING, soon(1.0)) == Unheard()
    assert await links.ask(7, NOTHING, soon(1.0)) == Unheard()  # nobody knows where that is


@from_a_second_broker
async def test_a_connection_is_made_anew_when_the_other_is_back(cluster: SimCluster, links: Links) -> None:
    for _ in range(2):
        await cluster[1].start()
        while await links.ask(1, NOTHING, soon()) == Unheard():
            pass
        cluster[1].kill()
        assert await links.ask(1, NOTHING, soon(1.0)) == Unheard()


@from_a_second_broker
async def test_messages_for_a_broker_that_is_away_are_dropped_beyond_a_few(cluster: SimCluster, links: Links) -> None:
    beat = Heartbeat(sender=2, to=1, term=1, round=1, commit=0)
    for _ in range(10 * WAITING_MESSAGES_MAX):
        links.send([beat])
    [link] = links._links.values()
    assert len(link._waiting) <= WAITING_MESSAGES_MAX
    await until(lambda: not link._waiting)


@from_a_second_broker
async def test_a_silent_machine_is_not_waited_for(cluster: SimCluster, links: Links) -> None:
    await cluster[1].start()
    assert await links.ask(1, NOTHING, soon()) != Unheard()
    cluster.sim.network.isolate("m1")
    assert await links.ask(1, NOTHING, soon(1.0)) == Unheard()
    cluster.sim.network.heal()
    answer = await links.ask(1, NOTHING, soon(10.0))
    while answer in (Unheard(), NotController(None)):
        answer = await links.ask(1, NOTHING, soon(10.0))
    await cluster.stop_all()


@from_a_second_broker
async def test_who_refuses_is_remembered_until_it_does_not(cluster: SimCluster, links: Links) -> None:
    await cluster[1].start(cluster_secret=b"quite another secret than that")
    assert await links.ask(1, NOTHING, soon(1.0)) == Unheard()
    assert "cluster secret" in str(links.refusals[1])
    await cluster[1].stop()
    await cluster[1].start()
    while await links.ask(1, NOTHING, soon()) == Unheard():
        pass
    assert links.refusals == {}
    await cluster.stop_all()
